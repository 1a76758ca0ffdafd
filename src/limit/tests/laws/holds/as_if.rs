//! As if: after a hold is settled for no more than it was charged, every answer is that
//! of the history in which the check cost that much. What it cost beyond its charge is
//! consumed when it is settled.

use super::history::History;
use super::traffic::{CALLS, Deed, HoldTraffic, Step, live_ids, try_check, with_holds_settled_for};
use crate::limit::tests::laws::models::same_answer;
use crate::limit::tests::laws::rules::settled_exactly;
use crate::limit::tests::laws::traffic::{Action, Call, Clock, steady};
use crate::limit::tests::laws::{cases, peek};
use crate::limit::tests::naive::model::Model;
use crate::limit::{Change, Limiter, Settlement};
use crate::rule::Rule;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

/// The limiter without holds, as if all charges stood, so that no answer foresees a lapse.
fn unforeseeing(limiter: &Limiter, now_us: u64) -> Limiter {
    let mut settled = limiter.clone();
    for id in live_ids(limiter, now_us) {
        settled.settle(id, Settlement::AsCharged, now_us);
    }
    settled
}

/// Every answer equals that of the naive states, now or later.
fn answers_equal(
    limiter: &Limiter,
    model: &mut Model,
    rules: &[Rule],
    now_us: u64,
    after_us: &[u64],
) -> TestCaseResult {
    let limiter = unforeseeing(limiter, now_us);
    for after_us in after_us {
        let now_us = now_us + after_us;
        for cost in [0, 1, 5] {
            let call = Call { rules, now_us, action: Action::Peek(cost) };
            let (outcome, decisions) = peek(&limiter, rules, cost, now_us);
            same_answer(&outcome, &decisions, &model.check(rules, cost, now_us, false), &call)?;
        }
    }
    Ok(())
}

fn is_as_if(traffic: &HoldTraffic) -> TestCaseResult {
    let steps = traffic.steps();
    let Some(&Step { rules, .. }) = steps.first() else { return Ok(()) };
    let longest_us = rules.iter().map(Rule::period_us).max().unwrap_or(0);
    let (mut limiter, mut history) = (Limiter::default(), History::new(rules));
    for step in steps {
        let now_us = step.now_us;
        let mut change = Change::Nothing;
        match step.deed {
            Deed::Check { .. } => {
                let check = step.check().unwrap();
                let mut before = limiter.clone();
                before.lapse_if_due(now_us);
                let Some((outcome, _)) = try_check(&mut limiter, &check) else {
                    prop_assert_eq!(&limiter, &before);
                    continue;
                };
                change = outcome.change;
            }
            Deed::Settle { id, settlement } => {
                let lives = history.lives(id, now_us);
                prop_assert_eq!(limiter.settle(id, settlement, now_us), lives);
            }
            Deed::Renew { id, end_us } => {
                let lives = history.lives(id, now_us);
                prop_assert_eq!(limiter.renew(id, end_us, now_us), lives);
            }
            Deed::Peek(_) | Deed::Refund(..) | Deed::Reset => {}
        }
        if matches!(step.deed, Deed::Refund(..) | Deed::Reset) {
            continue;
        }
        history.note(&step, change);
        answers_equal(&limiter, &mut history.played(), rules, now_us, &[0])?;
    }
    let last_us = traffic.steps().last().map_or(0, |step| step.now_us);
    history.lapse(last_us);
    let later_us = [1, longest_us / 7, longest_us / 2, longest_us - 1, longest_us, 2 * longest_us];
    answers_equal(&limiter, &mut history.played(), rules, last_us, &later_us)
}

fn settled_cost() -> impl Strategy<Value = u32> + Clone {
    prop_oneof![4 => 0..6u32, 2 => 0..30u32, 1 => 0..1_000u32].boxed()
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn a_settled_check_of_one_rule_is_as_if_it_had_cost_that_much(
        traffic in with_holds_settled_for(steady(settled_exactly(1), CALLS, Clock::Forward), settled_cost())
    ) {
        is_as_if(&traffic)?;
    }

    #[test]
    fn a_settled_check_of_several_rules_is_as_if_it_had_cost_that_much(
        traffic in with_holds_settled_for(steady(settled_exactly(4), CALLS, Clock::Forward), settled_cost())
    ) {
        is_as_if(&traffic)?;
    }
}
