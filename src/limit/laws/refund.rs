//! A refund restores what was.

use super::rules::rule_set;
use super::traffic::{Action, Call, Clock, changing, steady};
use super::{cases, check, peek, unblocked};
use crate::limit::rule::Rule;
use crate::limit::{Change, Limiter, Verdict};
use proptest::prelude::*;

/// Every answer now and later.
fn answers(limiter: &Limiter, rules: &[Rule], now_us: u64) -> Vec<String> {
    let windows = rules.iter().map(Rule::period_us).flat_map(|us| [us / 3, us, 2 * us]);
    let times = [0, 1_000].into_iter().chain(windows);
    let asked = times.flat_map(|after_us| [0, 1, 3].map(|cost| (after_us, cost)));
    let answer = |(after_us, cost)| format!("{:?}", peek(limiter, rules, cost, now_us + after_us));
    asked.map(answer).collect()
}

/// No rule passes over a state from the future, which a consumption would
/// replace for good.
fn remembers_all(limiter: &Limiter, rules: &[Rule], now_us: u64) -> bool {
    let shortest_us = rules.iter().map(Rule::period_us).min().unwrap_or(0);
    limiter.states().iter().all(|state| state.last_us() <= now_us + shortest_us)
}

proptest! {
    #![proptest_config(cases(4_000))]

    /// A check that every rule admitted, undone.
    #[test]
    fn after_a_check_restores_what_was(traffic in changing(4, 50)) {
        let mut limiter = Limiter::default();
        for Call { rules, now_us, action } in traffic.calls() {
            limiter = unblocked(&limiter);
            let Action::Check(cost) = action else { continue };
            let before = limiter.clone();
            let (outcome, said) = check(&mut limiter, rules, cost, now_us);
            // A shadow over its limit is charged no more than its capacity.
            let fits = said.iter().all(|ruling| ruling.verdict == Verdict::Allowed);
            if outcome.change != Change::Admitted || !fits || !remembers_all(&before, rules, now_us) {
                continue;
            }
            let mut undone = limiter.clone();
            prop_assert_eq!(undone.refund(cost, now_us, rules), u64::from(cost));
            prop_assert_eq!(answers(&undone, rules, now_us), answers(&before, rules, now_us));
        }
    }

    /// Of one rule, without naming it.
    #[test]
    fn of_everything_restores_what_was(traffic in steady(rule_set(1), 50, Clock::Forward)) {
        let mut limiter = Limiter::default();
        for Call { rules, now_us, action } in traffic.calls() {
            limiter = unblocked(&limiter);
            let Action::Check(cost) = action else { continue };
            let before = limiter.clone();
            let (outcome, said) = check(&mut limiter, rules, cost, now_us);
            if outcome.change == Change::Admitted && said[0].verdict == Verdict::Allowed {
                let mut undone = limiter.clone();
                prop_assert_eq!(undone.refund(cost, now_us, &[]), u64::from(cost));
                prop_assert_eq!(answers(&undone, rules, now_us), answers(&before, rules, now_us));
            }
        }
    }

    /// Never more than was consumed, and asking for all empties the key.
    #[test]
    fn of_more_than_was_gives_what_was(traffic in steady(rule_set(4), 40, Clock::Forward)) {
        let mut limiter = Limiter::default();
        for Call { rules, now_us, action } in traffic.calls() {
            limiter = unblocked(&limiter);
            let Action::Check(cost) = action else { continue };
            check(&mut limiter, rules, cost, now_us);
            let mut undone = limiter.clone();
            undone.refund(u32::MAX, now_us, rules);
            let (_, rulings) = peek(&undone, rules, 0, now_us);
            for (rule, ruling) in rules.iter().zip(rulings) {
                prop_assert_eq!(ruling.remaining, ruling.limit, "{}", rule);
            }
            prop_assert_eq!(undone.refund(1, now_us, rules), 0);
        }
    }
}
