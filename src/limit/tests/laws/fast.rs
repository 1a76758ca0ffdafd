//! The short way and the long way to an answer are one: what is said, and what
//! is left in the limiter. And who can go the short way does.

use super::rules::{any_logs, any_namesakes, any_rule, plain_logs, rule_set, spec_of};
use super::traffic::{
    Action, Call, Clock, Traffic, changing, changing_between, one_at_a_time, steady,
};
use super::{act, cases};
use crate::limit::{Access, AccessEntry, Change, Check, Decision, Limiter, Meta, encode};
use crate::rule::{Kind, Rule, RuleSpec};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseResult, TestRunner};
use std::cell::Cell;

/// How many checks there were, and how many of them went the short way.
#[derive(Debug, Default)]
struct Tally {
    asked: Cell<u32>,
    straight: Cell<u32>,
}

impl Tally {
    fn add(&self, straight: bool) {
        self.asked.set(self.asked.get() + 1);
        self.straight.set(self.straight.get() + u32::from(straight));
    }

    fn is_at_least(&self, percent: u32) {
        let (asked, straight) = (self.asked.get(), self.straight.get());
        assert!(straight * 100 >= asked * percent, "{straight} of {asked} went the short way");
    }
}

/// Checks both ways, and leaves the limiter as the long one does. Whether
/// there was a short one.
fn both_ways(limiter: &mut Limiter, check: &Check<'_>) -> Result<bool, TestCaseError> {
    let before = limiter.clone();
    // What an earlier call left in it.
    let left = Decision { limit: 7, ..Decision::UNDECIDED };
    let (mut short, mut long) = (vec![left; 2], vec![left; 3]);

    if check.meta.is_none() {
        let peeked = limiter.peek_general(check, &mut long);
        if let Some(outcome) = limiter.peek_fast(check, &mut short) {
            prop_assert_eq!((outcome, &short), (peeked, &long), "{:?}\n{:?}", check, before);
        }
        prop_assert_eq!(limiter.peek(check, &mut short), peeked);
        prop_assert_eq!(&short, &long);
    }

    let mut straight = limiter.clone();
    let taken = straight.check_fast(check, &mut short);
    let outcome = limiter.check_general(usize::MAX, check, &mut long).expect("room");
    if let Some(taken) = taken {
        prop_assert_eq!((taken, &short), (outcome, &long), "{:?}\n{:?}", check, before);
        prop_assert_eq!(&straight, &*limiter, "{:?}\n{:?}", check, before);
        prop_assert_eq!(encode(&straight), encode(limiter));
        prop_assert_eq!(straight.deadline(), limiter.deadline());
    } else {
        prop_assert_eq!(&straight, &before, "turned back too late: {:?}", check);
    }
    let mut asked = before;
    prop_assert_eq!(asked.check(check, &mut short), outcome);
    prop_assert_eq!(&asked, &*limiter);
    prop_assert_eq!(&short, &long);
    Ok(taken.is_some())
}

/// What comes before a call, or with it.
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
            let access = kind.map(|kind| AccessEntry {
                kind,
                until_us,
                ban_us: None,
                reason: [7; 3].into(),
            });
            limiter.set_access(access);
        }
        let Action::Check(cost) = action else {
            act(&mut limiter, rules, now_us, action);
            continue;
        };
        let meta = extra.meta.then_some(Meta { text: &[1], keep: 2 });
        tally.add(both_ways(&mut limiter, &Check { rules, cost, now_us, meta })?);
    }
    Ok(())
}

/// So many per cent of the checks, at least, go the short way.
fn always_equal(traffic: impl Strategy<Value = Traffic>, number: u32, percent: u32) {
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
fn one_answer_under_rules_that_change() {
    always_equal(changing(4, CALLS), 3_000, 6);
}

#[test]
fn one_answer_under_one_rule_that_changes() {
    always_equal(changing(1, CALLS), 3_000, 25);
}

/// States of other algorithms and other shapes under one name.
#[test]
fn one_answer_under_namesakes() {
    always_equal(one_at_a_time(any_namesakes(4), CALLS), 3_000, 20);
}

#[test]
fn one_answer_of_one_log() {
    always_equal(steady(plain_logs(4), CALLS, Clock::StepsBack), 3_000, 40);
}

/// Also of those on trial, and of those that charge denials, which others then
/// pass over.
#[test]
fn one_answer_of_one_log_under_rules_that_change() {
    always_equal(changing_between((any_logs(3), any_logs(3)), CALLS), 3_000, 25);
}

/// A check without rules asks nothing of a log, and takes nothing out of it.
#[test]
fn one_answer_to_no_rules() {
    let rules = crate::parse::rules_of_line("20/m 80/h");
    let mut limiter = Limiter::default();
    limiter.check(&Check::new(&rules, 3, 1_700_000_000_000_000), &mut Vec::new());
    assert!(
        !both_ways(&mut limiter, &Check::new(&[], 1, 1_700_000_000_000_000)).expect("one answer")
    );
    assert!(!limiter.is_empty());
}

#[test]
fn one_answer_on_a_reeling_clock() {
    let one = any_rule().prop_map(|rule| vec![rule]);
    always_equal(steady(one, CALLS, Clock::Reels), 3_000, 30);
}

/// A rule that denies and does no more.
fn plain(rule: &Rule) -> Rule {
    let spec = RuleSpec { count_all: false, ban: None, shadow: false, ..spec_of(rule) };
    spec.validate().expect("a valid rule")
}

/// One rule, or some that read one log.
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

    /// As long as the clock does not step back, whatever the cost and whether
    /// it is admitted or denied.
    #[test]
    fn an_ordinary_check_goes_the_short_way(
        traffic in steady(of_one_state(), CALLS, Clock::Forward)
    ) {
        let mut limiter = Limiter::default();
        for Call { rules, now_us, action } in traffic.calls() {
            let Action::Check(cost) = action else { continue };
            let check = Check::new(rules, cost, now_us);
            prop_assert!(both_ways(&mut limiter, &check)?, "{:?}", check);
            if !limiter.is_empty() {
                let short = limiter.peek_fast(&check, &mut Vec::new());
                prop_assert!(short.is_some(), "{:?}", check);
            }
        }
    }

    /// Nor is a denial that also blocks or counts answered the short way.
    #[test]
    fn a_denial_that_does_more_goes_the_long_way(
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
