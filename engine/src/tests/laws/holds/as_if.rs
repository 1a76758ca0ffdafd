//! After a hold is settled for at most its charge, every answer equals that of a history in
//! which the check cost the settled amount. What a hold costs beyond its charge is consumed when the
//! hold is settled.
//!
//! ```text
//! limits of counters, and bursts, change   exact
//! rates of buckets change                  at least as much is owed as in the history
//! the clock steps back by a window         once the clock has caught up, at least as much is
//!                                          consumed as in the history; there, each request counts
//!                                          at the time at which the state counted it
//! ```

use super::history::History;
use super::traffic::{CALLS, Deed, HoldTraffic, Step, live_ids, try_check, with_holds_settled_for};
use crate::key;
use crate::key::{Limiter, Settlement};
use crate::rule::Rule;
use crate::tests::laws::models::same_answer;
use crate::tests::laws::rules::{Change, settled_exactly, settled_exactly_relimited};
use crate::tests::laws::traffic::{Action, Call, Clock, Traffic, steady, under};
use crate::tests::laws::{cases, peek};
use crate::tests::naive::model::Model;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

/// How the answers relate to those of the naive states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    Equal,
    /// No rule admits more.
    NotLooser,
}

/// The limiter with all holds settled as charged, so that no answer foresees a lapse.
fn unforeseeing(limiter: &Limiter, now_us: u64) -> Limiter {
    let mut settled = limiter.clone();
    for id in live_ids(limiter, now_us) {
        settled.settle(id, Settlement::AsCharged, now_us);
    }
    settled
}

/// Compares every answer with that of the naive states, now and later.
fn answers_compare(
    answers: Answers,
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
            let expected = model.check(rules, cost, now_us, false);
            if answers == Answers::Equal {
                same_answer(&outcome, &decisions, &expected, &call)?;
            }
            for (ours, theirs) in decisions.iter().zip(&expected.decisions) {
                prop_assert!(ours.remaining <= theirs.remaining, "{ours:?}\n{theirs:?}\n{call:?}");
            }
        }
    }
    Ok(())
}

/// The times of the states of these rules.
fn times(limiter: &Limiter, rules: &[Rule], now_us: u64) -> Vec<u64> {
    let last_us = |rule: &Rule| limiter.state_of(rule).map_or(0, |state| state.meter().last_us());
    rules.iter().map(|rule| last_us(rule).max(now_us)).collect()
}

fn periods_us(rules: &[Rule]) -> impl Iterator<Item = u64> {
    rules.iter().map(Rule::period_us)
}

pub fn is_as_if(traffic: &HoldTraffic, answers: Answers) -> TestCaseResult {
    let (mut limiter, mut history) = (Limiter::default(), History::default());
    let (mut latest_us, mut last_rules): (u64, &[Rule]) = (0, &[]);
    let steps = traffic.steps();
    for step in &steps {
        let Step { rules, now_us, deed } = *step;
        // After a longer step back, rules first ignore their states and then drop them.
        if now_us + periods_us(rules).min().unwrap_or(0) < latest_us {
            break;
        }
        if now_us < latest_us {
            // Writes have stored these lapses, before and after the step, so no step undoes them.
            for at_us in [latest_us, now_us] {
                limiter.lapse(at_us);
                history.lapse(at_us);
            }
        }
        latest_us = latest_us.max(now_us);
        last_rules = rules;
        let mut before = limiter.clone();
        before.lapse(now_us);
        let at_us = times(&before, rules, now_us);
        let mut change = key::Change::Nothing;
        match deed {
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
        if matches!(deed, Deed::Refund(..) | Deed::Reset) {
            continue;
        }
        history.note_at(step, change, at_us);
        if now_us == latest_us {
            answers_compare(answers, &limiter, &mut history.played(), rules, now_us, &[0])?;
        }
    }
    history.lapse(latest_us);
    let longest_us = periods_us(last_rules).max().unwrap_or(0);
    let later_us = [1, longest_us / 7, longest_us / 2, longest_us - 1, longest_us, 2 * longest_us];
    answers_compare(answers, &limiter, &mut history.played(), last_rules, latest_us, &later_us)
}

/// Traffic in which most holds are settled for less than they were charged.
fn settled(traffic: impl Strategy<Value = Traffic>) -> impl Strategy<Value = HoldTraffic> {
    let cost = prop_oneof![4 => 0..6u32, 2 => 0..30u32, 1 => 0..1_000u32].boxed();
    with_holds_settled_for(traffic, cost)
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn settling_a_check_of_one_rule_equals_its_history(
        traffic in settled(steady(settled_exactly(1), CALLS, Clock::Forward))
    ) {
        is_as_if(&traffic, Answers::Equal)?;
    }

    #[test]
    fn settling_a_check_of_several_rules_equals_its_history(
        traffic in settled(steady(settled_exactly(4), CALLS, Clock::Forward))
    ) {
        is_as_if(&traffic, Answers::Equal)?;
    }

    #[test]
    fn settling_under_changing_limits_equals_its_history(
        traffic in settled(under(settled_exactly_relimited(3, Change::Room), CALLS, Clock::Forward))
    ) {
        is_as_if(&traffic, Answers::Equal)?;
    }

    #[test]
    fn settling_under_changing_rates_admits_no_more_than_its_history(
        traffic in settled(under(settled_exactly_relimited(3, Change::Rates), CALLS, Clock::Forward))
    ) {
        is_as_if(&traffic, Answers::NotLooser)?;
    }

    #[test]
    fn settling_after_a_step_back_admits_no_more_than_its_history(
        traffic in settled(steady(settled_exactly(3), CALLS, Clock::StepsBack))
    ) {
        is_as_if(&traffic, Answers::NotLooser)?;
    }
}
