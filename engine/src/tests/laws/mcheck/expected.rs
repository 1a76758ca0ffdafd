//! The expected answer to a check of several keys, composed from the answer of each key alone.

use super::{Answered, Asked, Conclusion, KEYS, KeyAnswer, Keys, access};
use crate::check::{Ban, Decision};
use crate::key::{Access, AccessEntry, BanCount, Change, Check, Limiter, Verdict};
use crate::rule::{Rule, RuleSpec};
use crate::tests::laws::rules::spec_of;
use crate::tests::laws::{hopeless, peek};
use crate::tests::naive::model::{Answer, Model, Voice};
use std::num::NonZeroU64;

fn length(ms: i64) -> i64 {
    if ms < 0 { i64::MAX } else { ms }
}

fn longer(a_ms: i64, b_ms: i64) -> i64 {
    if length(a_ms) >= length(b_ms) { a_ms } else { b_ms }
}

/// The longest ban that this denial causes for a key; of equally long bans, the first.
fn ban(limiter: &Limiter, check: &Check<'_>, decisions: &[Decision]) -> Option<Ban> {
    let rule = banning_rules(limiter, check, decisions).first()?.0;
    let length_us = ban_us(limiter, check, rule);
    Some(Ban { rule, until_us: check.now_us + length_us })
}

/// The rules that deny and ban, with the longest ban first, and whether each counts bans.
fn banning_rules(
    limiter: &Limiter,
    check: &Check<'_>,
    decisions: &[Decision],
) -> Vec<(usize, bool)> {
    let denies = |(rule, decision): &(usize, &Decision)| {
        decision.verdict == Verdict::Limited && !check.rules[*rule].is_shadow()
    };
    let bans = |(rule, _): (usize, _)| Some((rule, check.rules[rule].ban()?.counts_bans()));
    let mut rules: Vec<_> = decisions.iter().enumerate().filter(denies).filter_map(bans).collect();
    rules.sort_by_key(|&(rule, _)| std::cmp::Reverse(ban_us(limiter, check, rule)));
    rules
}

fn ban_us(limiter: &Limiter, check: &Check<'_>, rule: usize) -> u64 {
    let bans = limiter.bans_at(check.now_us).map_or(0, |count| count.bans);
    check.rules[rule].ban().expect("a ban").rung_us(bans)
}

/// The key's count of bans after a denial that bans: one more if a ladder denies, else the same
/// count. If the clock stepped back, the count is forgotten no later than `span_us` after now.
fn count(limiter: &Limiter, check: &Check<'_>, decisions: &[Decision]) -> Option<BanCount> {
    let banning = banning_rules(limiter, check, decisions);
    let length_us = ban_us(limiter, check, banning.first()?.0);
    let remembered = limiter.bans_at(check.now_us).copied();
    let Some((counting, _)) = banning.iter().find(|(_, counts)| *counts) else {
        let mut count = remembered?;
        count.forgotten_us = count.forgotten_us.min(check.now_us + count.span_us);
        return Some(count);
    };
    let span_us = length_us + check.rules[*counting].ban().expect("a ladder").longest_us();
    let bans = remembered.map_or(0, |count| count.bans) + 1;
    Some(BanCount { bans, forgotten_us: check.now_us + span_us, span_us })
}

fn banned(rule: &Rule, now_us: u64, until_us: u64) -> AccessEntry {
    let label = rule.name().map_or_else(|| rule.to_string(), |name| name.as_str().to_string());
    let reason = format!("rule {label}").into_bytes().into();
    let (until_us, ban_us) = (Some(until_us), NonZeroU64::new(until_us - now_us));
    AccessEntry { kind: Access::Block, until_us, ban_us, reason, author: None }
}

fn with_ban(decision: Decision, now_us: u64, until_us: u64) -> Decision {
    let ban_ms = i64::try_from((until_us - now_us).div_ceil(1_000)).unwrap();
    let [wait_ms, reset_ms] = [decision.wait_ms, decision.reset_ms].map(|ms| longer(ms, ban_ms));
    Decision { wait_ms, reset_ms, ..decision }
}

/// The answer over several keys, given the answer of each key. On a denial the longest wait decides.
/// Otherwise the least remaining/cost decides, and the wait is the longest turn. The first of equals
/// wins.
fn compose(voices: &[Option<Voice>], denied: bool) -> (Conclusion, i128) {
    let mut deciding: Option<(usize, Voice)> = None;
    let mut turn_ms = 0;
    for (index, voice) in voices.iter().enumerate() {
        let Some(voice) = voice else { continue };
        turn_ms = turn_ms.max(voice.decision.wait_ms);
        let wait = |voice: &Voice| length(voice.decision.wait_ms);
        let decides = if denied {
            voice.decision.verdict != Verdict::Allowed
                && deciding.as_ref().is_none_or(|(_, longest)| wait(voice) > wait(longest))
        } else {
            deciding.as_ref().is_none_or(|(_, least)| voice.is_less_than(least))
        };
        if decides {
            deciding = Some((index, *voice));
        }
    }
    let Some((index, Voice { cost, decision: mut summary })) = deciding else {
        return (Conclusion { summary: UNDECIDED, decider: None, cost: 0 }, 0);
    };
    if !denied {
        summary.wait_ms = turn_ms;
    }
    (Conclusion { summary, decider: Some(index), cost: 0 }, cost)
}

pub const UNDECIDED: Decision =
    Decision { verdict: Verdict::Allowed, limit: -1, remaining: -1, wait_ms: 0, reset_ms: 0 };

/// What the rules of a key decide; `None` if all are shadows.
fn voice(check: &Check<'_>, decisions: &[Decision], denied: bool) -> Option<Voice> {
    let voices = check.rules.iter().zip(decisions).filter(|(rule, _)| !rule.is_shadow());
    let voices: Vec<Option<Voice>> =
        voices.map(|(rule, &decision)| Some(Voice::of(rule, check.cost, decision))).collect();
    let any_denies =
        voices.iter().flatten().any(|voice| voice.decision.verdict != Verdict::Allowed);
    let (Conclusion { summary, decider, cost: _ }, cost) = compose(&voices, denied && any_denies);
    decider.map(|_| Voice { cost, decision: summary })
}

/// A check of several keys, done with functions for one key: peeks at each, and if all admit,
/// records on each.
pub fn composed(keys: &mut Keys, asked: &Asked<'_>) -> Answered {
    let asked: Vec<(usize, &Check<'_>)> =
        (0..KEYS).filter_map(|key| Some((key, asked[key].as_ref()?))).collect();
    let look = |keys: &Keys| -> Vec<_> {
        let look = |&(key, check): &(usize, &Check<'_>)| {
            peek(&keys[key], check.rules, check.cost, check.now_us)
        };
        asked.iter().map(look).collect()
    };
    let before = look(keys);
    let denied = before.iter().any(|(outcome, _)| outcome.summary.verdict != Verdict::Allowed);
    let charges = denied
        && asked.iter().all(|(key, check)| match access(&keys[*key], check.now_us) {
            Some(kind) => kind == Access::Exempt,
            None => !hopeless(check.rules, check.cost),
        });

    let mut parts = Vec::new();
    for ((key, check), (outcome, decisions)) in asked.iter().zip(&before) {
        let ruled = outcome.access.is_none();
        let mut costly = check.rules.iter().filter(|rule| check.cost_of(rule) > 0);
        let consumes = costly.clone().next().is_some();
        let change = if ruled && !denied && consumes {
            Change::Admitted
        } else if ruled && charges && costly.any(Rule::counts_all) {
            Change::Charged
        } else {
            Change::Nothing
        };
        parts.push(KeyAnswer {
            key: *key,
            change,
            ban: ban(&keys[*key], check, decisions),
            ban_shortened: false,
            denied: outcome.summary.verdict != Verdict::Allowed,
            access: outcome.access,
            decisions: decisions.clone(),
        });
    }
    let counts: Vec<_> = (asked.iter().zip(&before))
        .map(|((key, check), (_, decisions))| count(&keys[*key], check, decisions))
        .collect();
    // The history shows the answer, which is known only when all keys have consumed.
    let mut consumed = keys.clone();
    for ((key, check), part) in asked.iter().zip(&parts) {
        consumed[*key].record(check, part.change);
    }
    let mut voices = Vec::new();
    for (((_, check), part), (outcome, after)) in asked.iter().zip(&mut parts).zip(look(&consumed))
    {
        for (decision, after) in part.decisions.iter_mut().zip(after) {
            *decision = match part.change {
                Change::Admitted => {
                    Decision { remaining: after.remaining, reset_ms: after.reset_ms, ..*decision }
                }
                _ => after,
            };
            if denied && decision.verdict == Verdict::Allowed {
                decision.wait_ms = 0;
            }
        }
        let mut says = match part.access {
            Some(Access::Exempt) => None,
            Some(Access::Block) => Some(Voice { cost: 0, decision: outcome.summary }),
            None => voice(check, &part.decisions, denied),
        };
        if let (Some(says), Some(ban)) = (&mut says, part.ban) {
            says.decision = with_ban(says.decision, check.now_us, ban.until_us);
        }
        voices.push(says);
    }
    let (mut conclusion, _) = compose(&voices, denied);
    conclusion.cost = asked.first().map_or(0, |(_, check)| check.cost);
    for (((key, check), part), count) in asked.iter().zip(&mut parts).zip(counts) {
        if part.change == Change::Nothing && check.meta().is_some() {
            part.change = Change::HistoryOnly(conclusion.summary.verdict);
        }
        if part.access.is_some() {
            part.ban_shortened = keys[*key].shorten_ban(check.now_us);
        }
        keys[*key].record(check, part.change);
        if let Some(Ban { rule, until_us }) = part.ban {
            let ban = banned(&check.rules[rule], check.now_us, until_us);
            keys[*key].set_ban(ban, count);
        }
    }
    Answered { conclusion, keys: parts }
}

/// A check of several keys by one naive model per key, under rules that charge no denial.
pub fn modelled(models: &mut [Model; KEYS], asked: &Asked<'_>) -> (Answered, bool) {
    let asked = || (0..KEYS).filter_map(|key| Some((key, asked[key].as_ref()?)));
    let mut answer = |(key, check): (usize, &Check<'_>), consume| {
        models[key].check(check.rules, check.cost, check.now_us, consume)
    };
    let denies = |answer: &Answer| answer.summary.verdict != Verdict::Allowed;
    let before: Vec<Answer> = asked().map(|key| answer(key, false)).collect();
    let denied = before.iter().any(denies);

    let (mut parts, mut voices, mut passed_over) = (Vec::new(), Vec::new(), false);
    for ((key, check), mut says) in asked().zip(before) {
        let own = denies(&says);
        // A key that admits does not change if another denies.
        if own || !denied {
            says = answer((key, check), true);
        }
        passed_over |= says.passed_over;
        let waits = says.decisions.iter_mut().filter(|_| denied);
        waits.filter(|decision| decision.verdict == Verdict::Allowed).for_each(|r| r.wait_ms = 0);
        let ban =
            says.ban.map(|(rule, length_us)| Ban { rule, until_us: check.now_us + length_us });
        let blocked = says.summary.verdict == Verdict::Blocked;
        parts.push(KeyAnswer {
            key,
            change: says.change,
            ban,
            ban_shortened: says.ban_shortened,
            denied: own,
            access: blocked.then_some(Access::Block),
            decisions: says.decisions,
        });
        let cost = says.cost;
        voices.push((says.summary.limit >= 0).then_some(Voice { cost, decision: says.summary }));
    }
    let cost = asked().next().map_or(0, |(_, check)| check.cost);
    let conclusion = Conclusion { cost, ..compose(&voices, denied).0 };
    (Answered { conclusion, keys: parts }, passed_over)
}

/// The longest wait tested: with a longer one, the time in microseconds would overflow.
pub const AGES_MS: i64 = 10_000_000_000_000_000;

/// The answer, with longer waits cut to [`AGES_MS`].
pub fn within_ages(mut answered: Answered) -> Answered {
    let decisions = answered.keys.iter_mut().flat_map(|part| &mut part.decisions);
    for decision in decisions.chain([&mut answered.conclusion.summary]) {
        decision.wait_ms = decision.wait_ms.min(AGES_MS);
        decision.reset_ms = decision.reset_ms.min(AGES_MS);
    }
    answered
}

pub fn uncharged(rules: &[Rule]) -> Vec<Rule> {
    let uncharged = |rule| RuleSpec { count_all: false, ..spec_of(rule) }.validate().unwrap();
    rules.iter().map(uncharged).collect()
}
