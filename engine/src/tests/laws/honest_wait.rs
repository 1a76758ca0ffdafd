//! The honest wait: without other traffic, a denied request is allowed after `wait_ms` and denied 1
//! ms earlier. `wait_ms` is -1 if and only if the request can never pass. Meanwhile, the key may
//! expire at its deadline or later; this changes no answer.

use super::rules::{alike, rule_set};
use super::traffic::{Action, Call, Clock, Traffic, changing, steady};
use super::{act, cases, check, hopeless, later, peek, unblocked, would_pass};
use crate::key::{Change, Check, Limiter, Verdict};
use crate::rule::{DAY_US, MAX_PERIOD_US, MS_US, Rule, SECOND_US};
use crate::tests::rules_of_line;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use std::ops::Range;
use std::slice;

/// The law, for one denied request.
pub(super) fn is_honest(
    limiter: &Limiter,
    rules: &[Rule],
    cost: u32,
    now_us: u64,
    wait_ms: i64,
) -> TestCaseResult {
    prop_assert_eq!(wait_ms == -1, hopeless(rules, cost));
    let deadline = limiter.deadline();
    let expired = Limiter::default();
    let passes = |at_us: u64| {
        let passes = would_pass(limiter, rules, cost, at_us);
        let may_expire = now_us < at_us && deadline.has_passed(at_us);
        prop_assert!(!may_expire || would_pass(&expired, rules, cost, at_us) == passes);
        Ok(passes)
    };
    if wait_ms == -1 {
        for later_us in [0, 1, 1_000, DAY_US, MAX_PERIOD_US, 1_000 * MAX_PERIOD_US] {
            prop_assert!(!passes(now_us + later_us)?);
        }
        return Ok(());
    }
    prop_assert!(wait_ms > 0, "a denial without a wait");
    if let Some(then_us) = later(now_us, wait_ms) {
        prop_assert!(passes(then_us)?, "denied after {wait_ms} ms");
        prop_assert!(!passes(then_us - 1_000)?, "allowed before {wait_ms} ms");
    }
    Ok(())
}

fn holds_throughout(traffic: &Traffic) -> TestCaseResult {
    let mut limiter = Limiter::default();
    for Call { rules, now_us, action } in traffic.calls() {
        // Continues as if there had been no ban.
        limiter = unblocked(&limiter);
        match action {
            Action::Check(cost) => {
                let before = peek(&limiter, rules, cost, now_us).0.summary;
                let outcome = check(&mut limiter, rules, cost, now_us).0;
                prop_assert_eq!(outcome.summary.verdict, before.verdict);
                if outcome.summary.verdict == Verdict::Limited {
                    // The law says nothing about the time during a ban.
                    let unbanned = unblocked(&limiter);
                    let wait_ms = match outcome.ban {
                        None => outcome.summary.wait_ms,
                        Some(_) => peek(&unbanned, rules, cost, now_us).0.summary.wait_ms,
                    };
                    is_honest(&unbanned, rules, cost, now_us, wait_ms)?;
                }
            }
            Action::Peek(cost) => {
                let summary = peek(&limiter, rules, cost, now_us).0.summary;
                if summary.verdict == Verdict::Limited {
                    is_honest(&limiter, rules, cost, now_us, summary.wait_ms)?;
                }
            }
            Action::Refund(..) | Action::Reset => act(&mut limiter, rules, now_us, action),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(6_000))]

    #[test]
    fn the_wait_is_honest_for_one_rule(traffic in steady(rule_set(1), 60, Clock::StepsBack)) {
        holds_throughout(&traffic)?;
    }

    #[test]
    fn the_wait_is_honest_for_several_rules(traffic in steady(rule_set(5), 60, Clock::StepsBack)) {
        holds_throughout(&traffic)?;
    }

    /// Windows of similar length. The clock often steps back until states lie too far ahead of it,
    /// and then comes near them again.
    #[test]
    fn the_wait_is_honest_on_a_jumping_clock(traffic in steady(alike(3), 60, Clock::Reels)) {
        holds_throughout(&traffic)?;
    }

    #[test]
    fn the_wait_is_honest_for_changing_rules(traffic in changing(4, 60)) {
        holds_throughout(&traffic)?;
    }
}

/// A millisecond short of twice the window of a [`chain`].
const STEP_US: u64 = 2 * SECOND_US - MS_US;
const START_US: u64 = 1_700_000_000_000_000;

/// Rules, each with its own state. Their states were last consumed from at times [`STEP_US`] apart.
/// Each rule denies from a second before its state's time to a second after. At the start all states
/// but the first lie too far ahead of the clock to count; each begins to count just before the
/// previous rule admits.
fn chain(links: Range<u64>) -> (Limiter, Vec<Rule>) {
    let names: Vec<String> = links.clone().map(|n| format!("bucket:1/s,name=n{n}")).collect();
    let rules = rules_of_line(&names.join(" "));
    let mut limiter = Limiter::default();
    // The latest first, so that no state is stale.
    for (rule, link) in rules.iter().rev().zip(links.rev()) {
        let last_us = START_US + link * STEP_US;
        let rule = slice::from_ref(rule);
        limiter.record(&Check::new(rule, 1, last_us), Change::Admitted);
    }
    (limiter, rules)
}

#[test]
fn the_wait_covers_later_denials_up_to_the_first_gap() {
    for links in [1, 2, 7, 300] {
        let (mut limiter, rules) = chain(0..links);
        let (denied, _) = peek(&limiter, &rules, 1, START_US);
        let wait_ms = (links - 1) * STEP_US / MS_US + 1_000;
        assert_eq!(denied.summary.wait_ms, wait_ms as i64);
        // Without the state in the middle, its rule admits throughout.
        limiter.refund(1, START_US + links / 2 * STEP_US, &rules[links as usize / 2..][..1]);
        let (denied, _) = peek(&limiter, &rules, 1, START_US);
        let gap_ms = (links / 2).saturating_sub(1) * STEP_US / MS_US + 1_000;
        let gap_ms = if links == 1 { 0 } else { gap_ms };
        assert_eq!(denied.summary.wait_ms, gap_ms as i64, "{links}");
    }
}
