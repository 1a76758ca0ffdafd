//! The honest wait foresees lapses. If nothing else happens, a denied request is allowed after
//! its wait and not before. Everything consumed from a rule has come back after the rule's reset and
//! not before. One more unit is free after `next_ms` and not before.
//!
//! A peek does not store which holds have lapsed. Holds ahead of a clock that stepped back may live
//! again later, which a wait takes into account. The resets and next units of a peek are those of a
//! key that stores the lapses.

use super::traffic::{CALLS, Deed, HoldTraffic, Step, try_check, with_holds};
use crate::check::budget::Budget;
use crate::check::{Bounds, Decision, KeyCheck, Outcome, check_keys};
use crate::key::{Change, Check, CheckOptions, HoldRequest, Limiter, Verdict};
use crate::rule::{MAX_PERIOD_US, Rule};
use crate::tests::laws::exact_numbers::{next_is_exact, reset_is_exact};
use crate::tests::laws::honest_wait::is_honest;
use crate::tests::laws::refund::sees_all_states;
use crate::tests::laws::rules::{alike, rule_set};
use crate::tests::laws::traffic::{Clock, changing, steady};
use crate::tests::laws::{cases, later, peek, unblocked};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

fn waits_are_honest(traffic: &HoldTraffic) -> TestCaseResult {
    let mut limiter = Limiter::default();
    for step in &traffic.steps() {
        let Step { rules, now_us, deed } = *step;
        // Continues as if there had been no ban.
        limiter = unblocked(&limiter);
        let asked = match deed {
            Deed::Check { cost, .. } | Deed::Peek(cost) => cost,
            Deed::Refund(..) | Deed::Reset | Deed::Settle { .. } | Deed::Renew { .. } => {
                step.act(&mut limiter);
                continue;
            }
        };
        let (peeked, decisions) = peek(&limiter, rules, asked, now_us);
        let seen = limiter.as_of(now_us);
        // Resets and next units are those of the states that the rules see.
        let sees_all = sees_all_states(&limiter, rules, now_us);
        if sees_all {
            reset_is_exact(&seen, rules, &decisions, now_us)?;
            next_is_exact(&seen, rules, &decisions, now_us)?;
        }
        if peeked.summary.verdict == Verdict::Limited {
            is_honest(&limiter, rules, asked, now_us, peeked.summary.wait_ms)?;
        }
        let Some((outcome, decisions)) =
            step.check().and_then(|check| try_check(&mut limiter, &check))
        else {
            continue;
        };
        let unbanned = unblocked(&limiter);
        if !outcome.repeated {
            prop_assert_eq!(outcome.summary.verdict, peeked.summary.verdict);
            if sees_all && !decisions.is_empty() {
                reset_is_exact(&unbanned, rules, &decisions, now_us)?;
                next_is_exact(&unbanned, rules, &decisions, now_us)?;
            }
        }
        if outcome.summary.verdict == Verdict::Limited && outcome.ban.is_none() {
            is_honest(&unbanned, rules, asked, now_us, outcome.summary.wait_ms)?;
        }
    }
    Ok(())
}

type Keys = [(Limiter, Vec<Rule>); 2];

/// Two keys after traffic with holds, and the time of the last call.
fn played(traffics: &[HoldTraffic; 2]) -> (Keys, u64) {
    let mut keys = Keys::default();
    let steps = traffics.each_ref().map(HoldTraffic::steps);
    let end_us = |steps: &Vec<Step<'_>>| steps.last().map_or(0, |step| step.now_us);
    let ended_us = steps.iter().map(end_us).max().unwrap_or(0);
    for (steps, (limiter, rules)) in steps.iter().zip(&mut keys) {
        for step in steps {
            *limiter = unblocked(limiter);
            step.later_by(ended_us - end_us(steps)).act(limiter);
            *rules = step.rules.to_vec();
        }
        *limiter = unblocked(limiter);
    }
    (keys, ended_us)
}

/// The answer to a check of both keys; `None` if it is refused, bans, or charges a denial.
fn asked(keys: &Keys, cost: u32, hold: Option<HoldRequest<'_>>, now_us: u64) -> Option<Decision> {
    let mut keys = keys.clone();
    let options = CheckOptions { hold, ..CheckOptions::default() };
    let mut parts = keys.each_mut().map(|(limiter, rules)| {
        KeyCheck::new(limiter, Check::new(rules, cost, now_us).with(&options))
    });
    check_keys(&mut parts, Bounds::ANY, &mut Vec::new()).ok()?;
    let charged = parts
        .iter()
        .any(|part| part.outcome().ban.is_some() || part.outcome().change == Change::Charged);
    (!charged).then_some(parts[0].outcome().summary)
}

/// The law of the honest wait for keys that are checked at once, each with its own rules. If the
/// check repeats a hold on one key, that hold may end during the wait. From then on the key's rules
/// decide.
fn waits_of_keys_are_honest(keys: &Keys, cost: u32, id: &[u8], now_us: u64) -> TestCaseResult {
    let mut keys = keys.clone();
    for (limiter, _) in &mut keys {
        limiter.lapse(now_us);
    }
    let keys = &keys;
    let hold = HoldRequest { id, end_us: now_us + MAX_PERIOD_US, refund: false };
    let repeated = keys.iter().find(|(limiter, _)| limiter.live_hold(id, now_us).is_some());
    let cost = repeated.and_then(|(limiter, _)| limiter.held_by_default(id)).unwrap_or(cost);
    let Some(denied) = asked(keys, cost, Some(hold), now_us) else { return Ok(()) };
    if denied.verdict != Verdict::Limited {
        return Ok(());
    }
    let wait_ms = denied.wait_ms;
    let passes = |at_us: u64| {
        let answer = asked(keys, cost, Some(hold), at_us);
        answer.is_some_and(|answer| answer.verdict == Verdict::Allowed)
    };
    if wait_ms < 0 {
        for later_us in [1_000, MAX_PERIOD_US, 1_000 * MAX_PERIOD_US] {
            prop_assert!(!passes(now_us + later_us), "passes, but should never");
        }
    } else if let Some(then_us) = later(now_us, wait_ms) {
        prop_assert!(passes(then_us), "denied after {wait_ms} ms");
        prop_assert!(!passes(then_us - 1_000), "allowed before {wait_ms} ms");
    }
    Ok(())
}

/// Peeks that look ahead at only a few charges give lower bounds. Another peek after each wait leads
/// to exactly the time at which the request passes.
fn lower_bounds_lead_to_the_honest_wait(traffic: &HoldTraffic, charges: usize) -> TestCaseResult {
    let mut limiter = Limiter::default();
    for step in &traffic.steps() {
        let Step { rules, now_us, .. } = *step;
        limiter = unblocked(&limiter);
        step.act(&mut limiter);
        let key = unblocked(&limiter);
        let (Outcome { summary: honest, .. }, _) = peek(&key, rules, 1, now_us);
        if honest.verdict == Verdict::Allowed || honest.wait_ms < 0 {
            continue;
        }
        let mut waited_ms = 0;
        while let Some(at_us) = later(now_us, waited_ms) {
            let check = Check::new(rules, 1, at_us);
            let budget = &Budget::of_charges(charges);
            let answer = key.peek_within(&check, &mut Vec::new(), budget).summary;
            if answer.verdict == Verdict::Allowed {
                prop_assert_eq!(waited_ms, honest.wait_ms);
                break;
            }
            prop_assert!(answer.wait_ms > 0);
            waited_ms += answer.wait_ms;
            prop_assert!(waited_ms <= honest.wait_ms);
        }
    }
    Ok(())
}

/// The time that lies `mille` thousandths of the longest window before `now_us`.
fn back(keys: &Keys, now_us: u64, mille: u64) -> u64 {
    let rules = keys.iter().flat_map(|(_, rules)| rules);
    let longest_us = rules.map(Rule::period_us).max().unwrap_or(0);
    now_us.saturating_sub(longest_us / 1_000 * mille)
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn waits_of_one_rule_foresee_lapses(
        traffic in with_holds(steady(rule_set(1), CALLS, Clock::Forward))
    ) {
        waits_are_honest(&traffic)?;
    }

    #[test]
    fn waits_of_several_rules_foresee_lapses(
        traffic in with_holds(steady(rule_set(4), CALLS, Clock::StepsBack))
    ) {
        waits_are_honest(&traffic)?;
    }

    #[test]
    fn waits_that_foresee_few_lapses_are_lower_bounds(
        traffic in with_holds(steady(rule_set(3), CALLS, Clock::StepsBack)),
        charges in 0..8usize,
    ) {
        lower_bounds_lead_to_the_honest_wait(&traffic, charges)?;
    }

    #[test]
    fn waits_of_changing_rules_foresee_lapses(traffic in with_holds(changing(3, CALLS))) {
        waits_are_honest(&traffic)?;
    }

    #[test]
    fn waits_of_several_keys_foresee_lapses(
        first in with_holds(steady(alike(2), 30, Clock::Forward)),
        second in with_holds(steady(alike(2), 30, Clock::Forward)),
        cost in 1..4u32,
        mille in prop_oneof![4 => Just(0), 1 => 0..4_000u64],
    ) {
        let (keys, ended_us) = played(&[first, second]);
        let now_us = back(&keys, ended_us, mille);
        for id in [b"a", b"b", b"z"] {
            waits_of_keys_are_honest(&keys, cost, id, now_us)?;
        }
    }

    /// Windows of similar length. The clock often steps back until states lie too far ahead of it,
    /// and then comes near them again.
    #[test]
    fn waits_on_a_jumping_clock_foresee_lapses(
        traffic in with_holds(steady(alike(3), CALLS, Clock::Reels))
    ) {
        waits_are_honest(&traffic)?;
    }
}
