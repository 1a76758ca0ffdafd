//! Several keys in one check: all or nothing over all keys, one honest wait, and an answer
//! composed from the answer of each key alone.

mod expected;
mod overruled;
mod scenario;

use self::expected::{AGES_MS, UNDECIDED, composed, modelled, uncharged, within_ages};
use self::scenario::{Scenario, any_scenario, aside, scenario};
use super::rules::alike;
use super::traffic::{Action, Clock, changing, steady};
use super::{cases, cost_of, hopeless, later, peek, would_pass};
use crate::check;
use crate::check::{Ban, Budget, Decision, KeyCheck, Outcome};
use crate::key::{
    Access, AccessEntry, Change, Check, CheckOptions, Limiter, Meta, Verdict, encode,
};
use crate::rule::{MAX_PERIOD_US, Rule};
use crate::tests::naive::model::Model;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use std::ops::Range;

const KEYS: usize = 4;
const CALLS: usize = 50;

type Keys = [Limiter; KEYS];
/// The check of each key; `None`: the key is not checked.
type Asked<'a> = [Option<Check<'a>>; KEYS];

/// The answer for all keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Conclusion {
    summary: Decision,
    /// Which key decides, by its index; `None` if no key does.
    decider: Option<usize>,
    /// The default cost as decided.
    cost: u32,
}

/// What a check answered and did.
#[derive(Clone, Debug, PartialEq)]
struct Answered {
    conclusion: Conclusion,
    keys: Vec<KeyAnswer>,
}

/// What a check answered and did for one key.
#[derive(Clone, Debug, PartialEq)]
struct KeyAnswer {
    key: usize,
    change: Change,
    ban: Option<Ban>,
    ban_shortened: bool,
    denied: bool,
    access: Option<Access>,
    decisions: Vec<Decision>,
}

impl Answered {
    fn verdict(&self) -> Verdict {
        self.conclusion.summary.verdict
    }

    fn bans(&self) -> bool {
        self.keys.iter().any(|part| part.ban.is_some())
    }
}

/// Checks several keys at once.
fn check_all(keys: &mut Keys, asked: &Asked<'_>) -> Answered {
    let (mut which, mut parts) = (Vec::new(), Vec::new());
    for (key, (limiter, check)) in keys.iter_mut().zip(asked).enumerate() {
        if let Some(check) = check {
            which.push(key);
            parts.push(KeyCheck::new(limiter, *check));
        }
    }
    let mut decisions = Vec::new();
    let decider =
        check::check_keys(&mut parts, crate::check::Bounds::ANY, &mut decisions).expect("room");
    let done: Vec<_> =
        parts.iter().map(|part| (*part.outcome(), part.decisions().clone())).collect();
    let (summary, cost) = done.first().map_or((UNDECIDED, 0), |(key, _)| (key.summary, key.cost));
    let conclusion = Conclusion { summary, decider, cost };
    let answer = |(&key, (outcome, own)): (&usize, &(Outcome, Range<usize>))| {
        let check = Check { cost, ..asked[key].expect("a check") };
        let decisions = &mut decisions[own.clone()];
        keys[key].fill_resets(&check, decisions, &Budget::of_command());
        KeyAnswer {
            key,
            change: outcome.change,
            ban: outcome.ban,
            ban_shortened: outcome.ban_shortened,
            denied: outcome.denied,
            access: outcome.access,
            decisions: decisions.to_vec(),
        }
    };
    Answered { conclusion, keys: which.iter().zip(&done).map(answer).collect() }
}

fn access(limiter: &Limiter, now_us: u64) -> Option<Access> {
    limiter.access_at(now_us).map(|access| access.kind)
}

/// True if the check of each key would pass alone.
fn all_would_pass(keys: &Keys, asked: &Asked<'_>, now_us: u64) -> bool {
    let passes = |(limiter, check): (&Limiter, &Option<Check<'_>>)| {
        check.is_none_or(|check| would_pass(limiter, check.rules, check.cost, now_us))
    };
    keys.iter().zip(asked).all(passes)
}

/// The law of the honest wait, for one denied check that caused no ban.
fn honest(keys: &Keys, asked: &Asked<'_>, now_us: u64, wait_ms: i64) -> TestCaseResult {
    let ruled = keys.iter().zip(asked).filter(|(key, _)| access(key, now_us).is_none());
    let mut ruled = ruled.filter_map(|(_, check)| check.as_ref());
    prop_assert_eq!(wait_ms == -1, ruled.any(|check| hopeless(check.rules, check.cost)));
    if wait_ms == -1 {
        for later_us in [1_000, MAX_PERIOD_US, 1_000 * MAX_PERIOD_US] {
            prop_assert!(!all_would_pass(keys, asked, now_us + later_us));
        }
    } else if let Some(then_us) = later(now_us, wait_ms) {
        prop_assert!(wait_ms > 0, "a denial without a wait");
        prop_assert!(all_would_pass(keys, asked, then_us), "denied after {wait_ms} ms");
        prop_assert!(!all_would_pass(keys, asked, then_us - 1_000), "allowed before {wait_ms} ms");
        let again: Asked<'_> =
            asked.map(|check| check.map(|check| Check { now_us: then_us, ..check }));
        prop_assert_eq!(check_all(&mut keys.clone(), &again).verdict(), Verdict::Allowed);
    }
    Ok(())
}

/// Traffic in which exemptions have no end, and each ban is lifted at once.
fn honest_throughout(scenario: &Scenario) -> TestCaseResult {
    let mut keys = Keys::default();
    for (call, turn) in scenario.calls() {
        if let Some((key, kind @ (None | Some(Access::Exempt)), _)) = turn.access {
            let access = kind.map(|kind| AccessEntry::new(kind, None, b""));
            keys[key].set_access(access);
        }
        let Action::Check(cost) = call.action else {
            aside(&mut keys[turn.alone()], call.rules, call.now_us, call.action);
            continue;
        };
        let asked = scenario.asked(&call, turn, cost);
        let answered = check_all(&mut keys, &asked);
        if answered.verdict() == Verdict::Limited && !answered.bans() {
            honest(&keys, &asked, call.now_us, answered.conclusion.summary.wait_ms)?;
        }
        let banned = |limiter: &&mut Limiter| access(limiter, call.now_us) == Some(Access::Block);
        keys.iter_mut().filter(banned).for_each(|limiter| limiter.set_access(None));
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(3_000))]

    /// Keys may be blocked or exempt, and checks may charge denials, ban, and add to histories.
    #[test]
    fn a_check_is_composed_of_what_each_key_answers(scenario in any_scenario()) {
        let (mut keys, mut apart) = (Keys::default(), Keys::default());
        let mut latest_us = 0;
        for (call, turn) in scenario.calls() {
            for keys in [&mut keys, &mut apart] {
                turn.access(keys, call.now_us);
                aside(&mut keys[turn.alone()], call.rules, call.now_us, call.action);
            }
            let Action::Check(cost) = call.action else { continue };
            let asked = scenario.asked(&call, turn, cost);
            let answered = check_all(&mut keys, &asked);
            let mut expected = composed(&mut apart, &asked);
            if call.now_us < latest_us {
                // If a rule ignored its state, only the law of the honest wait can test the wait.
                expected.conclusion.summary.wait_ms = answered.conclusion.summary.wait_ms;
            }
            latest_us = latest_us.max(call.now_us);
            prop_assert_eq!(answered, expected, "{:?} {:?}", call, turn);
            prop_assert_eq!(&keys, &apart, "{:?} {:?}", call, turn);
        }
    }

    #[test]
    fn a_check_is_composed_of_what_each_naive_model_answers(scenario in any_scenario()) {
        let (mut keys, mut models) = (Keys::default(), <[Model; KEYS]>::default());
        for (call, turn) in scenario.calls() {
            let of_keys: [_; KEYS] =
                std::array::from_fn(|key| uncharged(scenario.rules(key, &call)));
            let Action::Check(cost) = call.action else {
                let key = turn.alone();
                aside(&mut keys[key], &of_keys[key], call.now_us, call.action);
                match call.action {
                    Action::Refund(units, of_rules) => {
                        let rules = if of_rules { &*of_keys[key] } else { &[] };
                        models[key].refund(units, call.now_us, rules);
                    }
                    Action::Reset => models[key] = Model::default(),
                    _ => {}
                }
                continue;
            };
            let mut asked = scenario.asked(&call, turn, cost);
            for (check, rules) in asked.iter_mut().zip(&of_keys) {
                *check = check.map(|check| Check { rules, options: None, ..check });
            }
            let answered = within_ages(check_all(&mut keys, &asked));
            let (expected, passed_over) = modelled(&mut models, &asked);
            let mut expected = within_ages(expected);
            if passed_over && answered.verdict() != Verdict::Allowed {
                expected.conclusion.summary.wait_ms = answered.conclusion.summary.wait_ms;
            }
            if [&answered, &expected].iter().all(|answered| answered.conclusion.summary.wait_ms == AGES_MS) {
                // After these waits, the time in microseconds overflows, so any of them may be the
                // longest.
                expected.conclusion = answered.conclusion;
            }
            prop_assert_eq!(answered, expected, "{:?} {:?}", call, turn);
        }
    }

    #[test]
    fn a_check_consumes_from_all_keys_or_from_none(scenario in any_scenario()) {
        let mut keys = Keys::default();
        for (call, turn) in scenario.calls() {
            turn.access(&mut keys, call.now_us);
            aside(&mut keys[turn.alone()], call.rules, call.now_us, call.action);
            let Action::Check(cost) = call.action else { continue };
            let asked = scenario.asked(&call, turn, cost);
            let before = keys.clone();
            let answered = check_all(&mut keys, &asked);
            let allowed = answered.verdict() == Verdict::Allowed;
            for (key, check) in asked.iter().enumerate() {
                if check.is_none() {
                    prop_assert_eq!(&keys[key], &before[key], "not checked");
                }
            }
            for part in &answered.keys {
                let (key, check) = (part.key, asked[part.key].unwrap());
                let free = check.rules.iter().all(|rule| check.cost_of(rule) == 0);
                let consumes = allowed && !free && part.access.is_none();
                prop_assert_eq!(part.change == Change::Admitted, consumes);
                let may_change = part.ban.is_some()
                    || part.ban_shortened
                    || check.meta().is_some()
                    || check.rules.iter().any(Rule::counts_all);
                if consumes {
                    let look = |keys: &Keys| peek(&keys[key], check.rules, cost, call.now_us).1;
                    let both = look(&before).into_iter().zip(look(&keys));
                    for (rule, (before, after)) in check.rules.iter().zip(both) {
                        let left = (before.remaining - i64::from(cost_of(rule, cost))).max(0);
                        prop_assert_eq!(after.remaining, left, "{:?}", call);
                    }
                } else if allowed && check.meta().is_none() || !allowed && !may_change {
                    prop_assert_eq!(&keys[key], &before[key], "{:?}", call);
                    prop_assert_eq!(encode(&keys[key]), encode(&before[key]));
                }
            }
        }
    }

    #[test]
    fn the_wait_is_honest_over_all_keys(scenario in any_scenario()) {
        honest_throughout(&scenario)?;
    }

    /// Windows of similar length. The clock often steps back until states lie too far ahead of it,
    /// and then comes near them again.
    #[test]
    fn the_wait_is_honest_on_a_jumping_clock(
        scenario in scenario(steady(alike(2), CALLS, Clock::Reels), alike(2))
    ) {
        honest_throughout(&scenario)?;
    }

    #[test]
    fn a_replica_that_records_each_key_is_equal(scenario in any_scenario()) {
        let (mut primary, mut replica) = (Keys::default(), Keys::default());
        for (call, turn) in scenario.calls() {
            for keys in [&mut primary, &mut replica] {
                turn.access(keys, call.now_us);
                aside(&mut keys[turn.alone()], call.rules, call.now_us, call.action);
            }
            let Action::Check(cost) = call.action else { continue };
            let asked = scenario.asked(&call, turn, cost);
            for part in check_all(&mut primary, &asked).keys {
                let limiter = &mut replica[part.key];
                if part.change != Change::Nothing {
                    limiter.record(&asked[part.key].unwrap(), part.change);
                }
                if part.ban.is_some() || part.ban_shortened {
                    let primary = &primary[part.key];
                    limiter.set_ban(primary.access().unwrap().clone(), primary.bans().copied());
                }
            }
            prop_assert_eq!(&primary, &replica, "{:?} {:?}", call, turn);
            for (one, other) in primary.iter().zip(&replica) {
                prop_assert_eq!(encode(one), encode(other));
                prop_assert_eq!(one.deadline(), other.deadline());
            }
        }
    }

    /// Exempt keys do not decide.
    #[test]
    fn a_key_among_exempt_ones_is_checked_as_if_alone(
        traffic in changing(4, CALLS),
        at in 0..KEYS,
        keep in prop::option::of(1..6u32),
    ) {
        let exemption = AccessEntry::new(Access::Exempt, None, b"");
        let mut silent = Limiter::default();
        silent.set_access(Some(exemption));
        let mut alone = Limiter::default();
        let mut keys: Keys = std::array::from_fn(|_| silent.clone());
        keys[at] = Limiter::default();
        for call in traffic.calls() {
            let Action::Check(cost) = call.action else { continue };
            let meta = keep.map(|keep| Meta { text: &[1], keep });
            let options = CheckOptions { meta, ..CheckOptions::default() };
            let check = Check::new(call.rules, cost, call.now_us).with(&options);
            let mut decisions = Vec::new();
            let outcome = alone.check(&check, &mut decisions);
            alone.fill_resets(&check, &mut decisions, &Budget::of_command());
            let answered = check_all(&mut keys, &[Some(check); KEYS]);
            prop_assert_eq!(answered.conclusion.summary, outcome.summary);
            let mine = &answered.keys[at];
            prop_assert_eq!((mine.change, mine.ban), (outcome.change, outcome.ban));
            prop_assert_eq!(&mine.decisions, &decisions);
            prop_assert_eq!(&keys[at], &alone);

            let mut one: Keys = Keys::default();
            one[at] = alone.clone();
            let mut again = alone.clone();
            let mut only = [None; KEYS];
            only[at] = Some(check);
            let answered = check_all(&mut one, &only);
            prop_assert_eq!(answered.conclusion.summary, again.check(&check, &mut decisions).summary);
            prop_assert_eq!(&one[at], &again);
        }
    }

    /// The order of the keys decides only which of several equal keys is named.
    #[test]
    fn the_order_of_the_keys_decides_nothing(scenario in any_scenario()) {
        let (mut keys, mut turned) = (Keys::default(), Keys::default());
        for (call, turn) in scenario.calls() {
            turn.access(&mut keys, call.now_us);
            let Action::Check(cost) = call.action else { continue };
            // Without histories, which store the verdict of the key that is named.
            let asked = scenario
                .asked(&call, turn, cost)
                .map(|check| check.map(|check| Check { options: None, ..check }));
            turned.clone_from(&keys);
            turned.reverse();
            let mut backwards = asked;
            backwards.reverse();
            let (one, other) = (check_all(&mut keys, &asked), check_all(&mut turned, &backwards));
            turned.reverse();
            prop_assert_eq!(&keys, &turned, "{:?} {:?}", call, turn);
            let mut rules = asked.iter().flatten().flat_map(|check| check.rules);
            let costs_alike = rules.all(|rule| rule.cost().own().is_none());
            let of = |answered: &Answered| {
                let Decision { verdict, wait_ms, remaining, .. } = answered.conclusion.summary;
                // Compares the wait of a denial, or what remains when allowed. With different
                // costs, equal fractions can have different numerators.
                let is_told = verdict == Verdict::Allowed && costs_alike;
                (verdict, wait_ms, is_told.then_some(remaining))
            };
            let (mut one, mut other) = (of(&one), of(&other));
            // If a block and a rule end together, the first key is named.
            if one.1 == other.1 && one.0 != Verdict::Allowed && other.0 != Verdict::Allowed {
                (one.0, other.0) = (Verdict::Limited, Verdict::Limited);
            }
            prop_assert_eq!(one, other);
        }
    }
}
