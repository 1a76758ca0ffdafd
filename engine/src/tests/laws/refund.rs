//! A refund restores the state from before the consumption.

use super::rules::rule_set;
use super::traffic::{Action, Call, Clock, Traffic, changing, steady};
use super::{cases, check, cost_of, peek, unblocked};
use crate::key::{Change, Limiter, Verdict};
use crate::rule::{Kind, Rule};
use crate::tests::rules_of_line;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestCaseResult};

const START_US: u64 = 1_700_000_000_000_000;

/// Every answer now and later.
fn answers(limiter: &Limiter, rules: &[Rule], now_us: u64) -> Vec<String> {
    let windows = rules.iter().map(Rule::period_us).flat_map(|us| [us / 3, us, 2 * us]);
    let times = [0, 1_000].into_iter().chain(windows);
    let questions = times.flat_map(|after_us| [0, 1, 3].map(|cost| (after_us, cost)));
    let answer = |(after_us, cost)| format!("{:?}", peek(limiter, rules, cost, now_us + after_us));
    questions.map(answer).collect()
}

/// True if the rules see all states. A rule that ignores a state replaces the state when it consumes.
pub(super) fn sees_all_states(limiter: &Limiter, rules: &[Rule], now_us: u64) -> bool {
    let shortest_us = rules.iter().map(Rule::period_us).min().unwrap_or(0);
    limiter.states().iter().all(|state| state.meter().last_us() <= now_us + shortest_us)
}

/// Refunds each check that every rule admitted, to its rules if `named`, else to all states.
/// Compares the limiter before the check with the refunded one.
fn each_undone(
    traffic: &Traffic,
    named: bool,
    compare: impl Fn(&Limiter, &Limiter, &[Rule], u64) -> TestCaseResult,
) -> TestCaseResult {
    let mut limiter = Limiter::default();
    for Call { rules, now_us, action } in traffic.calls() {
        limiter = unblocked(&limiter);
        let Action::Check(cost) = action else { continue };
        let before = limiter.clone();
        let (outcome, decisions) = check(&mut limiter, rules, cost, now_us);
        // A shadow over its limit is charged at most up to its capacity.
        let fits = decisions.iter().all(|decision| decision.verdict == Verdict::Allowed);
        if outcome.change != Change::Admitted || !fits || !sees_all_states(&before, rules, now_us) {
            continue;
        }
        let undone = undone(&limiter, rules, cost, now_us, named)?;
        compare(&before, &undone, rules, now_us)?;
    }
    Ok(())
}

/// A refund undoes a check exactly.
fn undoes_a_check(traffic: &Traffic, named: bool) -> TestCaseResult {
    each_undone(traffic, named, |before, undone, rules, now_us| {
        prop_assert_eq!(answers(undone, rules, now_us), answers(before, rules, now_us));
        Ok(())
    })
}

/// Refunds a check at this default cost, and returns the limiter.
fn undone(
    limiter: &Limiter,
    rules: &[Rule],
    cost: u32,
    now_us: u64,
    named: bool,
) -> Result<Limiter, TestCaseError> {
    let mut undone = limiter.clone();
    // Log rules share one log and have one cost.
    let (logs, others): (Vec<Rule>, Vec<Rule>) =
        rules.iter().partition(|rule| rule.kind() == Kind::Log);
    for of in std::iter::once(&*logs).chain(others.chunks(1)) {
        let Some(rule) = of.first() else { continue };
        let cost = cost_of(rule, cost);
        let back = undone.refund(cost, now_us, if named { of } else { &[] });
        prop_assert_eq!(back, u64::from(cost));
    }
    Ok(undone)
}

#[test]
fn a_refund_of_everything_empties_the_key() {
    for rule in ["9/m", "window:9/m", "fixed:9/m", "fixed:9/m,keep=3", "bucket:9/m", "leaky:9/m"] {
        let (mut limiter, rules) = (Limiter::default(), rules_of_line(rule));
        assert_eq!(check(&mut limiter, &rules, 3, START_US).0.change, Change::Admitted);
        assert_eq!(limiter.refund(2, START_US, &[]), 2);
        assert!(!limiter.is_empty(), "{rule}");
        assert_eq!(limiter.refund(2, START_US, &[]), 1);
        assert!(limiter.is_empty(), "{rule}");
    }
}

/// Reshaping to a longer period would move the end of the units that are left.
#[test]
fn a_refund_reshapes_no_state() {
    let (mut limiter, rules) = (Limiter::default(), rules_of_line("bucket:9/m,name=a"));
    check(&mut limiter, &rules, 3, START_US);
    let longer = rules_of_line("bucket:9/h,name=a");
    let ends_ms = 2 * 60_000 / 9 + 1;
    assert_eq!(limiter.refund(1, START_US, &longer), 1);
    let left = peek(&limiter, &longer, 1, START_US).0.summary;
    assert_eq!((left.remaining, left.reset_ms), (7, ends_ms));
    let ends_us = START_US + 1_000 * ends_ms.cast_unsigned();
    assert_eq!(limiter.refund(1, ends_us, &longer), 0, "the state has ended");
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn a_refund_undoes_a_check(traffic in steady(rule_set(4), 50, Clock::StepsBack)) {
        undoes_a_check(&traffic, true)?;
    }

    /// Under other rates or needs, a check may make earlier units count longer. Its refund does not
    /// undo that.
    #[test]
    fn a_refund_under_changing_rules_frees_no_more_than_it_took(traffic in changing(4, 50)) {
        each_undone(&traffic, true, |before, undone, rules, now_us| {
            let longest_us = rules.iter().map(Rule::period_us).max().unwrap_or(0);
            for after_us in [0, 1_000, longest_us / 3, longest_us, 2 * longest_us] {
                let [(_, was), (_, is)] =
                    [before, undone].map(|limiter| peek(limiter, rules, 0, now_us + after_us));
                for (was, is) in was.iter().zip(is) {
                    prop_assert!(is.remaining <= was.remaining, "{is:?}, was {was:?}");
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_refund_of_all_states_undoes_a_check(traffic in steady(rule_set(1), 50, Clock::Forward)) {
        undoes_a_check(&traffic, false)?;
    }

    /// A refund of more than was consumed empties the states.
    #[test]
    fn a_refund_gives_no_more_than_was_consumed(traffic in steady(rule_set(4), 40, Clock::Forward)) {
        let mut limiter = Limiter::default();
        for Call { rules, now_us, action } in traffic.calls() {
            limiter = unblocked(&limiter);
            let Action::Check(cost) = action else { continue };
            check(&mut limiter, rules, cost, now_us);
            let mut undone = limiter.clone();
            // A counter with charged denials may hold more units than one refund can give back.
            while undone.refund(u32::MAX, now_us, rules) >= u64::from(u32::MAX) {}
            let (_, decisions) = peek(&undone, rules, 0, now_us);
            for (rule, decision) in rules.iter().zip(decisions) {
                prop_assert_eq!(decision.remaining, decision.limit, "{}", rule);
            }
            prop_assert_eq!(undone.refund(1, now_us, rules), 0);
        }
    }
}
