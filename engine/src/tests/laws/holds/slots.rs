//! Slots: a check is admitted if and only if the units of live holds plus its cost are within the
//! limit. So live units never exceed the limit, and freed units serve the next request at once.

use super::traffic::{CALLS, Deed, HoldTraffic, Step, try_check, with_holds};
use crate::key::{Change, CheckOptions, Limiter, Verdict};
use crate::rule::{Kind, Rule};
use crate::tests::laws::honest_wait::is_honest;
use crate::tests::laws::rules::{rule_set, with_slots};
use crate::tests::laws::traffic::{Clock, steady};
use crate::tests::laws::{cases, cost_of, unblocked};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use std::collections::BTreeMap;

/// For each hold: the number of slots that it takes of each rule, and its end.
#[derive(Default)]
struct Leases<'a>(BTreeMap<&'a [u8], (Vec<u32>, u64)>);

impl<'a> Leases<'a> {
    fn lives(&self, id: &[u8], now_us: u64) -> bool {
        self.0.get(id).is_some_and(|&(_, end_us)| end_us > now_us)
    }

    fn used(&self, i: usize) -> i64 {
        self.0.values().map(|(units, _)| i64::from(units[i])).sum()
    }

    fn renew(&mut self, id: &[u8], to_us: u64) {
        if let Some((_, end_us)) = self.0.get_mut(id) {
            *end_us = to_us;
        }
    }

    fn take(&mut self, id: &'a [u8], end_us: u64, rules: &[Rule], cost: u32) {
        self.0.insert(id, (rules.iter().map(|rule| cost_of(rule, cost)).collect(), end_us));
    }
}

/// True if only the number of slots can make this rule deny.
fn is_plain_slots(rule: &Rule) -> bool {
    rule.kind() == Kind::Slots && !rule.is_shadow()
}

fn slots_are_live_holds(traffic: &HoldTraffic) -> TestCaseResult {
    let (mut limiter, mut leases) = (Limiter::default(), Leases::default());
    let steps = traffic.steps();
    for step in &steps {
        let Step { rules, now_us, deed } = *step;
        limiter = unblocked(&limiter);
        leases.0.retain(|_, (_, end_us)| *end_us > now_us);
        match deed {
            Deed::Check { cost, options: CheckOptions { hold: Some(hold), .. } } => {
                let repeats = leases.lives(hold.id, now_us);
                let free = |i: usize| i64::from(rules[i].limit()) - leases.used(i);
                let fits = |i: usize| i64::from(cost_of(&rules[i], cost)) <= free(i);
                let plain = || (0..rules.len()).filter(|&i| is_plain_slots(&rules[i]));
                let all_fit = plain().all(fits);
                let only_slots = plain().count() == rules.len();
                let before = limiter.clone();
                let Some((outcome, decisions)) =
                    step.check().and_then(|check| try_check(&mut limiter, &check))
                else {
                    prop_assert!(repeats);
                    continue;
                };
                prop_assert_eq!(outcome.repeated, repeats);
                if repeats {
                    leases.renew(hold.id, hold.end_us);
                    continue;
                }
                for i in plain() {
                    prop_assert_eq!(decisions[i].verdict == Verdict::Allowed, fits(i));
                }
                let allowed = outcome.summary.verdict == Verdict::Allowed;
                prop_assert!(all_fit || !allowed);
                prop_assert!(allowed || !only_slots || !all_fit);
                prop_assert_eq!(outcome.change == Change::Admitted, allowed);
                if allowed {
                    leases.take(hold.id, hold.end_us, rules, cost);
                } else if outcome.ban.is_none() && !rules.iter().any(Rule::counts_all) {
                    is_honest(&before, rules, cost, now_us, outcome.summary.wait_ms)?;
                }
                for i in plain() {
                    prop_assert!(leases.used(i) <= rules[i].limit().into());
                    let left = i64::from(rules[i].limit()) - leases.used(i);
                    prop_assert_eq!(decisions[i].remaining, left);
                }
            }
            Deed::Settle { id, settlement } => {
                prop_assert_eq!(limiter.settle(id, settlement, now_us), leases.lives(id, now_us));
                leases.0.remove(id);
            }
            Deed::Renew { id, end_us } => {
                prop_assert_eq!(limiter.renew(id, end_us, now_us), leases.lives(id, now_us));
                leases.renew(id, end_us);
            }
            // A check of slots needs a hold, and a refund skips slots.
            Deed::Check { options: CheckOptions { hold: None, .. }, .. }
            | Deed::Peek(_)
            | Deed::Reset => {}
            Deed::Refund(..) => step.act(&mut limiter),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn slots_in_use_are_the_units_of_live_holds(
        traffic in with_holds(steady(with_slots(rule_set(2)), CALLS, Clock::Forward))
    ) {
        slots_are_live_holds(&traffic)?;
    }
}
