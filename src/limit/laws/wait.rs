//! The honest wait: absent other traffic, a denied request is allowed after
//! `wait_ms` and denied 1 ms earlier; it waits for ever if and only if it can
//! never pass.

use super::rules::{alike, rule_set};
use super::traffic::{Action, Call, Clock, Traffic, changing, steady};
use super::{act, cases, check, later, peek, unblocked, would_pass};
use crate::limit::rule::{DAY_US, MAX_PERIOD_US, Rule};
use crate::limit::{Limiter, Verdict};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

/// The law, for one denied request.
fn holds(
    limiter: &Limiter,
    rules: &[Rule],
    cost: u32,
    now_us: u64,
    wait_ms: i64,
) -> TestCaseResult {
    let hopeless = rules.iter().any(|rule| !rule.is_shadow() && !rule.can_ever_admit(cost));
    prop_assert_eq!(wait_ms == -1, hopeless);
    if wait_ms == -1 {
        for later_us in [0, 1, 1_000, DAY_US, MAX_PERIOD_US, 1_000 * MAX_PERIOD_US] {
            prop_assert!(!would_pass(limiter, rules, cost, now_us + later_us));
        }
        return Ok(());
    }
    prop_assert!(wait_ms > 0, "a denial that need not wait");
    if let Some(then_us) = later(now_us, wait_ms) {
        prop_assert!(would_pass(limiter, rules, cost, then_us), "denied after {wait_ms} ms");
        prop_assert!(
            !would_pass(limiter, rules, cost, then_us - 1_000),
            "allowed before {wait_ms} ms"
        );
    }
    Ok(())
}

fn holds_throughout(traffic: &Traffic) -> TestCaseResult {
    let mut limiter = Limiter::default();
    for Call { rules, now_us, action } in traffic.calls() {
        // Traffic goes on as if no one had been banned.
        limiter = unblocked(&limiter);
        match action {
            Action::Check(cost) => {
                let before = peek(&limiter, rules, cost, now_us).0.summary;
                let outcome = check(&mut limiter, rules, cost, now_us).0;
                prop_assert_eq!(outcome.summary.verdict, before.verdict);
                if outcome.summary.verdict == Verdict::Limited {
                    // The law does not look behind the block of a ban.
                    let unbanned = unblocked(&limiter);
                    let wait_ms = match outcome.ban {
                        None => outcome.summary.wait_ms,
                        Some(_) => peek(&unbanned, rules, cost, now_us).0.summary.wait_ms,
                    };
                    holds(&unbanned, rules, cost, now_us, wait_ms)?;
                }
            }
            Action::Peek(cost) => {
                let summary = peek(&limiter, rules, cost, now_us).0.summary;
                if summary.verdict == Verdict::Limited {
                    holds(&limiter, rules, cost, now_us, summary.wait_ms)?;
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
    fn of_one_rule(traffic in steady(rule_set(1), 60, Clock::StepsBack)) {
        holds_throughout(&traffic)?;
    }

    #[test]
    fn of_many_rules(traffic in steady(rule_set(5), 60, Clock::StepsBack)) {
        holds_throughout(&traffic)?;
    }

    /// Windows of like length, on a clock that often brings back states that
    /// it left too far in the future.
    #[test]
    fn on_a_reeling_clock(traffic in steady(alike(3), 60, Clock::Reels)) {
        holds_throughout(&traffic)?;
    }

    #[test]
    fn of_changing_rules(traffic in changing(4, 60)) {
        holds_throughout(&traffic)?;
    }
}
