//! All or nothing: a check consumes its cost from every rule or from none. A denied check changes
//! nothing unless a rule has `count=all` or `ban=`.

use super::rules::{cost, rule_set, uncosted};
use super::traffic::{Action, Call, changing};
use super::{cases, check, cost_of, hopeless, peek};
use crate::key::{Change, Check, Limiter, Verdict, encode};
use proptest::prelude::*;

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn a_check_consumes_from_all_rules_or_from_none(traffic in changing(5, 50)) {
        let mut limiter = Limiter::default();
        for Call { rules, now_us, action } in traffic.calls() {
            let Action::Check(cost) = action else { continue };
            let (_, before) = peek(&limiter, rules, cost, now_us);
            let saved = encode(&limiter);
            let (outcome, decisions) = check(&mut limiter, rules, cost, now_us);
            let (_, after) = peek(&limiter, rules, cost, now_us);
            match outcome.change {
                Change::Nothing | Change::Renewed => {
                    let changed = encode(&limiter) != saved;
                    prop_assert_eq!(changed, outcome.ban.is_some() || outcome.ban_shortened);
                    let free = rules.iter().all(|rule| cost_of(rule, cost) == 0);
                    prop_assert!(free || outcome.summary.verdict != Verdict::Allowed);
                }
                Change::Admitted => {
                    prop_assert_eq!(outcome.summary.verdict, Verdict::Allowed);
                    for ((rule, before), after) in rules.iter().zip(&before).zip(&after) {
                        // A shadow that would deny has nothing left.
                        let left = (before.remaining - i64::from(cost_of(rule, cost))).max(0);
                        prop_assert_eq!(after.remaining, left, "{}", rule);
                    }
                }
                Change::HistoryOnly(_) => prop_assert!(false, "no META was given"),
                Change::Charged => {
                    prop_assert_eq!(outcome.summary.verdict, Verdict::Limited);
                    if outcome.ban.is_none() {
                        prop_assert_eq!(&decisions, &after);
                        for ((rule, before), after) in rules.iter().zip(&before).zip(&after) {
                            if !rule.counts_all() {
                                prop_assert_eq!(before.remaining, after.remaining, "{}", rule);
                            }
                            prop_assert!(
                                before.verdict == Verdict::Allowed
                                    || after.verdict == Verdict::Limited,
                                "a charge made {} admit", rule
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_peek_answers_as_a_check_would(traffic in changing(5, 50)) {
        let mut limiter = Limiter::default();
        for Call { rules, now_us, action } in traffic.calls() {
            let Action::Check(cost) = action else { continue };
            let (peeked, _) = peek(&limiter, rules, cost, now_us);
            let (checked, _) = check(&mut limiter, rules, cost, now_us);
            prop_assert_eq!(peeked.summary.verdict, checked.summary.verdict);
            if peeked.summary.verdict == Verdict::Allowed {
                prop_assert_eq!(peeked.summary.wait_ms, checked.summary.wait_ms);
            } else if checked.change == Change::Nothing && checked.ban.is_none() {
                prop_assert_eq!(peeked.summary, checked.summary);
            }
        }
    }

    #[test]
    fn an_untouched_key_admits_what_fits_the_capacity(rules in rule_set(5), cost in cost(), now_us: u32) {
        let (outcome, _) = peek(&Limiter::default(), &rules, cost, now_us.into());
        prop_assert_eq!(outcome.summary.verdict == Verdict::Allowed, !hopeless(&rules, cost));
        let mut limiter = Limiter::default();
        let rules: Vec<_> = rules.iter().map(uncosted).collect();
        limiter.record(&Check::new(&rules, 0, now_us.into()), Change::Admitted);
        prop_assert!(limiter.is_empty());
    }
}
