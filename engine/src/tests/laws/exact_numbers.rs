//! The numbers of an answer are exact. A cost of `remaining` units passes, and a cost of one unit
//! more does not. After `reset_ms` everything consumed has come back, but not 1 ms earlier. After
//! `next_ms` at least one more unit remains, but not 1 ms earlier.

use super::rules::{rule_set, uncosted};
use super::traffic::{Action, Call, Clock, Traffic, changing, steady};
use super::{act, cases, check, later, peek, unblocked, would_pass};
use crate::check::{Budget, Decision, RuleReport};
use crate::key::{Check, Limiter, Verdict};
use crate::rule::{MAX_UNITS, Rule};
use crate::tests::naive::model::Voice;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

/// The least `remaining` of all rules passes as a cost, and one unit more does not.
fn remaining_is_exact(
    limiter: &Limiter,
    rules: &[Rule],
    decisions: &[Decision],
    now_us: u64,
) -> TestCaseResult {
    let denying = rules.iter().zip(decisions).filter(|(rule, _)| !rule.is_shadow());
    let Some(least) = denying.map(|(_, decision)| decision.remaining).min() else { return Ok(()) };
    let least = u32::try_from(least).unwrap();
    let rules: Vec<Rule> = rules.iter().map(uncosted).collect();
    if least > 0 && least <= MAX_UNITS {
        prop_assert!(would_pass(limiter, &rules, least, now_us), "{least} do not pass");
    }
    prop_assert!(!would_pass(limiter, &rules, least + 1, now_us), "{least} and one more pass");
    Ok(())
}

/// After the reset everything consumed has come back, but not 1 ms earlier.
pub(super) fn reset_is_exact(
    limiter: &Limiter,
    rules: &[Rule],
    decisions: &[Decision],
    now_us: u64,
) -> TestCaseResult {
    for (i, decision) in decisions.iter().enumerate().filter(|&(i, _)| rules[i].limit() > 0) {
        let untouched = |at_us| {
            let (_, then) = peek(limiter, rules, 0, at_us);
            then[i].remaining == then[i].limit
        };
        prop_assert!(decision.reset_ms >= 0);
        if let Some(then_us) = later(now_us, decision.reset_ms) {
            prop_assert!(untouched(then_us), "{} has not reset: {decision:?}", rules[i]);
            prop_assert!(
                decision.reset_ms == 0 || !untouched(then_us - 1_000),
                "{} has reset before: {decision:?}",
                rules[i]
            );
        }
    }
    Ok(())
}

/// After `next_ms` more units remain than now, but not 1 ms earlier.
pub(super) fn next_is_exact(
    limiter: &Limiter,
    rules: &[Rule],
    decisions: &[Decision],
    now_us: u64,
) -> TestCaseResult {
    let (check, budget) = (Check::new(rules, 0, now_us), Budget::of_command());
    let reports: Vec<_> = limiter.rule_reports(&check, decisions, &budget).collect();
    prop_assert_eq!(reports.len(), rules.len());
    for (i, RuleReport { decision, next_ms, .. }) in reports.into_iter().enumerate() {
        if decision.limit == 0 || decision.remaining == decision.limit {
            prop_assert_eq!(next_ms, if decision.limit == 0 { -1 } else { 0 });
            continue;
        }
        prop_assert!(next_ms > 0, "{}: {next_ms} ms, {decision:?}", rules[i]);
        let remaining = |at_us| peek(limiter, rules, 0, at_us).1[i].remaining;
        if let Some(then_us) = later(now_us, next_ms) {
            prop_assert!(remaining(then_us) > decision.remaining, "{}: {next_ms} ms", rules[i]);
            prop_assert!(
                remaining(then_us - 1_000) <= decision.remaining,
                "{} has one more before {next_ms} ms: {decision:?}",
                rules[i]
            );
        }
    }
    Ok(())
}

fn exact_throughout(traffic: &Traffic) -> TestCaseResult {
    let mut limiter = Limiter::default();
    for Call { rules, now_us, action } in traffic.calls() {
        limiter = unblocked(&limiter);
        match action {
            Action::Check(cost) | Action::Peek(cost) => {
                let (outcome, decisions) = check(&mut limiter, rules, cost, now_us);
                let limiter = unblocked(&limiter);
                remaining_is_exact(&limiter, rules, &decisions, now_us)?;
                reset_is_exact(&limiter, rules, &decisions, now_us)?;
                if !decisions.is_empty() {
                    next_is_exact(&limiter, rules, &decisions, now_us)?;
                }
                let deciding = |decision: &&Decision| {
                    let summary = outcome.summary;
                    (decision.verdict, decision.limit, decision.remaining)
                        == (summary.verdict, summary.limit, summary.remaining)
                };
                prop_assert!(
                    rules.iter().all(Rule::is_shadow) || decisions.iter().any(|r| deciding(&r)),
                    "the reply differs from every rule's decision"
                );
                if outcome.summary.verdict == Verdict::Allowed {
                    let deciding = rules.iter().zip(&decisions);
                    let deciding = deciding.filter(|(rule, _)| !rule.is_shadow());
                    let voices: Vec<Voice> =
                        deciding.map(|(rule, &decision)| Voice::of(rule, cost, decision)).collect();
                    let is_least =
                        |voice: &&Voice| !voices.iter().any(|other| other.is_less_than(voice));
                    let least = voices.iter().find(is_least);
                    let remaining = least.map_or(-1, |voice| voice.decision.remaining);
                    prop_assert_eq!(outcome.summary.remaining, remaining);
                }
            }
            Action::Refund(..) | Action::Reset => act(&mut limiter, rules, now_us, action),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn numbers_are_exact_for_one_rule(traffic in steady(rule_set(1), 50, Clock::StepsBack)) {
        exact_throughout(&traffic)?;
    }

    #[test]
    fn numbers_are_exact_for_changing_rules(traffic in changing(4, 50)) {
        exact_throughout(&traffic)?;
    }
}
