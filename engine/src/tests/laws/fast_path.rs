//! The fast path gives the same answer as the general path and leaves an equal limiter. Every check
//! that can take the fast path takes it.

use super::rules::{any_logs, any_namesakes, any_rule, plain, plain_logs, rule_set};
use super::traffic::{
    Action, Call, Clock, Traffic, changing, changing_between, one_at_a_time, steady,
};
use super::{act, cases};
use crate::check::{Bounds, Budget, Decision};
use crate::key::{Access, AccessEntry, Change, Check, CheckOptions, Limiter, Meta, encode};
use crate::rule::{Kind, Rule};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseResult, TestRunner};
use std::cell::Cell;

/// The number of checks, and the number of those that took the fast path.
#[derive(Debug, Default)]
struct Tally {
    asked: Cell<u32>,
    fast: Cell<u32>,
}

impl Tally {
    fn add(&self, fast: bool) {
        self.asked.set(self.asked.get() + 1);
        self.fast.set(self.fast.get() + u32::from(fast));
    }

    fn is_at_least(&self, percent: u32) {
        let (asked, fast) = (self.asked.get(), self.fast.get());
        assert!(fast * 100 >= asked * percent, "{fast} of {asked} took the fast path");
    }
}

/// Does a check on both paths, and leaves the limiter as the general path does. Returns whether
/// the fast path could take the check.
fn on_both_paths(limiter: &mut Limiter, check: &Check<'_>) -> Result<bool, TestCaseError> {
    let before = limiter.clone();
    // What an earlier call left in the list of decisions.
    let left = Decision { limit: 7, ..Decision::UNDECIDED };
    let (mut fast_decisions, mut decisions) = (vec![left; 2], vec![left; 3]);

    if check.meta().is_none() {
        let peeked = limiter.peek_general(check, &mut decisions);
        if let Some(outcome) = limiter.peek_fast(check, &mut fast_decisions) {
            prop_assert_eq!(
                (outcome, &fast_decisions),
                (peeked, &decisions),
                "{:?}\n{:?}",
                check,
                before
            );
        }
        prop_assert_eq!(limiter.peek(check, &mut fast_decisions), peeked);
        prop_assert_eq!(&fast_decisions, &decisions);
    }

    let mut fast = limiter.clone();
    let taken = fast.check_fast(check, &mut fast_decisions);
    let outcome = limiter.check_general(Bounds::ANY, check, &mut decisions).expect("room");
    if let Some(taken) = taken {
        prop_assert_eq!(
            (taken, &fast_decisions),
            (outcome, &decisions),
            "{:?}\n{:?}",
            check,
            before
        );
        prop_assert_eq!(&fast, &*limiter, "{:?}\n{:?}", check, before);
        prop_assert_eq!(encode(&fast), encode(limiter));
        prop_assert_eq!(fast.deadline(), limiter.deadline());
    } else {
        prop_assert_eq!(&fast, &before, "left the fast path after a change: {:?}", check);
    }
    let mut asked = before.clone();
    prop_assert_eq!(asked.check(check, &mut fast_decisions), outcome);
    prop_assert_eq!(&asked, &*limiter);
    prop_assert_eq!(&fast_decisions, &decisions);

    let (mut asked, budget) = (before.clone(), Budget::of_command());
    let passed = asked.check_if_admitted(Bounds::ANY, check, &mut fast_decisions, &budget);
    let passed = passed.expect("room");
    if outcome.denied {
        prop_assert_eq!((passed, &asked), (None, &before));
    } else {
        prop_assert_eq!((passed, &asked), (Some(outcome), &*limiter));
        prop_assert_eq!(&fast_decisions, &decisions);
    }
    Ok(taken.is_some())
}

/// A `META` for a call, and a block or an exemption to set or lift before it.
#[derive(Clone, Copy, Debug)]
struct Extra {
    meta: bool,
    access: Option<(Option<Access>, u64)>,
}

fn extra() -> impl Strategy<Value = Extra> {
    let kind = prop::sample::select(&[Some(Access::Block), Some(Access::Exempt), None, None]);
    let access = prop::option::weighted(0.02, (kind, 1..10_000u64));
    (prop::bool::weighted(0.02), access).prop_map(|(meta, access)| Extra { meta, access })
}

const CALLS: usize = 50;

fn throughout(traffic: &Traffic, extras: &[Extra], tally: &Tally) -> TestCaseResult {
    let mut limiter = Limiter::default();
    for (Call { rules, now_us, action }, extra) in traffic.calls().into_iter().zip(extras) {
        if let Some((kind, ms)) = extra.access {
            let until_us = Some(now_us + ms * 1_000);
            let access = kind.map(|kind| AccessEntry::new(kind, until_us, &[7; 3]));
            limiter.set_access(access);
        }
        let Action::Check(cost) = action else {
            act(&mut limiter, rules, now_us, action);
            continue;
        };
        let meta = extra.meta.then_some(Meta { text: &[1], keep: 2 });
        let options = meta.map(|meta| CheckOptions { meta: Some(meta), ..CheckOptions::default() });
        let check = Check { options: options.as_ref(), ..Check::new(rules, cost, now_us) };
        tally.add(on_both_paths(&mut limiter, &check)?);
    }
    Ok(())
}

/// The paths agree, and at least `percent` of the checks take the fast path.
fn paths_agree(traffic: impl Strategy<Value = Traffic>, number: u32, percent: u32) {
    let tally = Tally::default();
    let strategy = (traffic, prop::collection::vec(extra(), CALLS));
    let config = Config { source_file: Some(file!()), ..cases(number) };
    let result = TestRunner::new(config)
        .run(&strategy, |(traffic, extras)| throughout(&traffic, &extras, &tally));
    if let Err(error) = result {
        panic!("{error}");
    }
    tally.is_at_least(percent);
}

#[test]
fn paths_agree_under_changing_rules() {
    paths_agree(changing(4, CALLS), 3_000, 6);
}

#[test]
fn paths_agree_under_one_changing_rule() {
    paths_agree(changing(1, CALLS), 3_000, 25);
}

/// One name for states of different algorithms and shapes.
#[test]
fn paths_agree_under_rules_of_one_name() {
    paths_agree(one_at_a_time(any_namesakes(4), CALLS), 3_000, 20);
}

#[test]
fn paths_agree_on_a_log() {
    paths_agree(steady(plain_logs(4), CALLS, Clock::StepsBack), 3_000, 40);
}

/// Some rules are shadows, and some charge denials, which the others do not count.
#[test]
fn paths_agree_on_a_log_under_changing_rules() {
    paths_agree(changing_between((any_logs(3), any_logs(3)), CALLS, Clock::StepsBack), 3_000, 25);
}

/// A check without rules needs nothing of the log, and must not empty the log.
#[test]
fn paths_agree_without_rules() {
    let rules = crate::tests::rules_of_line("20/m 80/h");
    let mut limiter = Limiter::default();
    limiter.check(&Check::new(&rules, 3, 1_700_000_000_000_000), &mut Vec::new());
    assert!(
        !on_both_paths(&mut limiter, &Check::new(&[], 1, 1_700_000_000_000_000))
            .expect("one answer")
    );
    assert!(!limiter.is_empty());
}

#[test]
fn paths_agree_on_a_jumping_clock() {
    let one = any_rule().prop_map(|rule| vec![rule]);
    paths_agree(steady(one, CALLS, Clock::Reels), 3_000, 30);
}

/// One rule, or several log rules.
fn of_one_state() -> impl Strategy<Value = Vec<Rule>> {
    let logs = rule_set(4).prop_map(|rules| -> Vec<Rule> {
        rules.iter().filter(|rule| rule.kind() == Kind::Log).map(plain).collect()
    });
    prop_oneof![
        3 => any_rule().prop_map(|rule| vec![plain(&rule)]),
        1 => plain_logs(4).prop_map(|rules| rules.iter().map(plain).collect()),
        1 => logs.prop_filter("a rule", |rules| !rules.is_empty()),
    ]
}

proptest! {
    #![proptest_config(cases(3_000))]

    /// An ordinary check may have any cost and any answer, but the clock does not step back.
    #[test]
    fn an_ordinary_check_takes_the_fast_path(
        traffic in steady(of_one_state(), CALLS, Clock::Forward)
    ) {
        let mut limiter = Limiter::default();
        for Call { rules, now_us, action } in traffic.calls() {
            let Action::Check(cost) = action else { continue };
            let check = Check::new(rules, cost, now_us);
            prop_assert!(on_both_paths(&mut limiter, &check)?, "{:?}", check);
            if !limiter.is_empty() {
                let fast = limiter.peek_fast(&check, &mut Vec::new());
                prop_assert!(fast.is_some(), "{:?}", check);
            }
        }
    }

    #[test]
    fn a_denial_that_bans_or_charges_takes_the_general_path(
        traffic in steady(any_rule().prop_map(|rule| vec![rule]), CALLS, Clock::Forward)
    ) {
        let mut limiter = Limiter::default();
        for Call { rules, now_us, action } in traffic.calls() {
            let Action::Check(cost) = action else { continue };
            let check = Check::new(rules, cost, now_us);
            let outcome = limiter.clone().check_fast(&check, &mut Vec::new());
            let done = limiter.check(&check, &mut Vec::new());
            if done.ban.is_some() || done.change == Change::Charged {
                prop_assert_eq!(outcome, None);
            }
        }
    }
}
