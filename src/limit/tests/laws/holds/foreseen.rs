//! The honest wait foresees lapses: if nothing else happens, a denied request is allowed
//! after its wait and not before, and a rule has reset after its reset and not before.

use super::traffic::{CALLS, Deed, HoldTraffic, Step, try_check, with_holds};
use crate::limit::tests::laws::exact_numbers::reset_is_exact;
use crate::limit::tests::laws::honest_wait::is_honest;
use crate::limit::tests::laws::refund::sees_all_states;
use crate::limit::tests::laws::rules::{alike, rule_set};
use crate::limit::tests::laws::traffic::{Clock, changing, steady};
use crate::limit::tests::laws::{cases, later, peek, unblocked, would_pass};
use crate::limit::{Bounds, Check, KeyCheck, Limiter, Verdict, check_keys};
use crate::rule::Rule;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

fn waits_are_honest(traffic: &HoldTraffic) -> TestCaseResult {
    let mut limiter = Limiter::default();
    for step in &traffic.steps() {
        let Step { rules, now_us, deed } = *step;
        // Traffic goes on as if there had been no ban.
        limiter = unblocked(&limiter);
        let asked = match deed {
            Deed::Check { cost, .. } | Deed::Peek(cost) => cost,
            Deed::Refund(..) | Deed::Reset | Deed::Settle { .. } | Deed::Renew { .. } => {
                step.act(&mut limiter);
                continue;
            }
        };
        // The wait beyond a state that is passed over foresees no lapses.
        if !sees_all_states(&limiter, rules, now_us) {
            step.act(&mut limiter);
            continue;
        }
        let (peeked, decisions) = peek(&limiter, rules, asked, now_us);
        reset_is_exact(&limiter, rules, &decisions, now_us)?;
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
            if !decisions.is_empty() {
                reset_is_exact(&unbanned, rules, &decisions, now_us)?;
            }
        }
        if outcome.summary.verdict == Verdict::Limited && outcome.ban.is_none() {
            is_honest(&unbanned, rules, asked, now_us, outcome.summary.wait_ms)?;
        }
    }
    Ok(())
}

/// Keys with holds that are checked at once, each with its own rules.
fn waits_of_keys_are_honest(traffics: &[HoldTraffic; 2], cost: u32) -> TestCaseResult {
    let mut keys: [(Limiter, Vec<Rule>, u64); 2] = Default::default();
    for (traffic, (limiter, rules, now_us)) in traffics.iter().zip(&mut keys) {
        for step in &traffic.steps() {
            *limiter = unblocked(limiter);
            step.act(limiter);
            (*rules, *now_us) = (step.rules.to_vec(), step.now_us);
        }
        *limiter = unblocked(limiter);
    }
    // Both have the same time: that of the key whose traffic ended last.
    let now_us = keys.iter().map(|&(_, _, now_us)| now_us).max().unwrap_or(0);
    let mut checked = keys.clone();
    let [(first, first_rules, _), (second, second_rules, _)] = &mut checked;
    let mut parts = [
        KeyCheck::new(first, Check::new(first_rules, cost, now_us)),
        KeyCheck::new(second, Check::new(second_rules, cost, now_us)),
    ];
    let conclusion = check_keys(&mut parts, Bounds::ANY, &mut Vec::new()).unwrap();
    let wait_ms = conclusion.summary.wait_ms;
    let charged = parts
        .iter()
        .any(|part| part.ban().is_some() || part.check().rules.iter().any(Rule::counts_all));
    if conclusion.summary.verdict != Verdict::Limited || wait_ms < 0 || charged {
        return Ok(());
    }
    let pass = |at_us: u64| keys.iter().all(|(key, rules, _)| would_pass(key, rules, cost, at_us));
    if let Some(then_us) = later(now_us, wait_ms) {
        prop_assert!(pass(then_us), "denied after {wait_ms} ms");
        prop_assert!(!pass(then_us - 1_000), "allowed before {wait_ms} ms");
    }
    Ok(())
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
    fn waits_of_changing_rules_foresee_lapses(traffic in with_holds(changing(3, CALLS))) {
        waits_are_honest(&traffic)?;
    }

    #[test]
    fn waits_of_several_keys_foresee_lapses(
        first in with_holds(steady(alike(2), 30, Clock::Forward)),
        second in with_holds(steady(alike(2), 30, Clock::Forward)),
        cost in 1..4u32,
    ) {
        waits_of_keys_are_honest(&[first, second], cost)?;
    }
}
