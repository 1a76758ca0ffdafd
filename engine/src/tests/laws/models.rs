//! Every algorithm equals its naive model.

use super::traffic::{Action, Call, Clock, Traffic, changing, one_at_a_time, steady};
use super::{cases, check, peek, rules};
use crate::check::{Decision, Outcome};
use crate::key::{Limiter, Verdict};
use crate::rule::Kind;
use crate::tests::naive::model::{Answer, Model};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

/// The longest wait tested: with a longer one, the time in microseconds would overflow.
const AGES_MS: i64 = 10_000_000_000_000_000;

fn same_wait(ours: i64, theirs: i64) -> bool {
    ours == theirs || ours >= AGES_MS && theirs >= AGES_MS
}

fn same_decision(ours: &Decision, theirs: &Decision) -> bool {
    (ours.verdict, ours.limit, ours.remaining) == (theirs.verdict, theirs.limit, theirs.remaining)
        && same_wait(ours.wait_ms, theirs.wait_ms)
        && same_wait(ours.reset_ms, theirs.reset_ms)
}

pub(super) fn same_answer(
    outcome: &Outcome,
    decisions: &[Decision],
    answer: &Answer,
    call: &Call<'_>,
) -> TestCaseResult {
    prop_assert_eq!(decisions.len(), answer.decisions.len());
    for (ours, theirs) in decisions.iter().zip(&answer.decisions) {
        prop_assert!(same_decision(ours, theirs), "{ours:?}\nmodel {theirs:?}\n{call:?}");
    }
    // If a rule ignored its state, only the law of the honest wait can test the wait.
    let mut expected = answer.summary;
    if answer.passed_over && expected.verdict == Verdict::Limited {
        expected.wait_ms = outcome.summary.wait_ms;
    }
    // If the time overflows after several waits, any of these waits may be the longest.
    if [&outcome.summary, &expected].iter().all(|answer| answer.wait_ms >= AGES_MS) {
        expected = Decision { verdict: expected.verdict, ..outcome.summary };
    }
    prop_assert!(
        same_decision(&outcome.summary, &expected),
        "{:?}\nmodel {expected:?}\n{call:?}",
        outcome.summary
    );
    prop_assert_eq!(outcome.change, answer.change, "{:?}", call);
    let ban = outcome.ban.map(|ban| (ban.rule, ban.until_us - call.now_us));
    prop_assert_eq!(ban, answer.ban, "{:?}", call);
    prop_assert_eq!(outcome.ban_shortened, answer.ban_shortened, "{:?}", call);
    Ok(())
}

pub fn equals(mut model: Model, traffic: &Traffic) -> TestCaseResult {
    let mut limiter = Limiter::default();
    for call in traffic.calls() {
        let Call { rules, now_us, action } = call;
        match action {
            Action::Check(cost) => {
                let answer = model.check(rules, cost, now_us, true);
                let (outcome, decisions) = check(&mut limiter, rules, cost, now_us);
                same_answer(&outcome, &decisions, &answer, &call)?;
            }
            Action::Peek(cost) => {
                let answer = model.check(rules, cost, now_us, false);
                let (outcome, decisions) = peek(&limiter, rules, cost, now_us);
                same_answer(&outcome, &decisions, &answer, &call)?;
            }
            Action::Refund(units, of_rules) => {
                let rules = if of_rules { rules } else { &[] };
                let back = limiter.refund(units, now_us, rules);
                prop_assert_eq!(back, model.refund(units, now_us, rules), "{:?}", call);
            }
            Action::Reset => {
                limiter.reset(now_us);
                model.reset(now_us);
            }
        }
    }
    Ok(())
}

#[test]
fn each_algorithm_equals_its_model() {
    for kind in Kind::RATES {
        proptest!(cases(3_000), |(traffic in one_at_a_time(rules::namesakes(kind, 3), 50))| {
            equals(Model::default(), &traffic)?;
        });
    }
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn rules_of_one_name_equal_their_models(traffic in one_at_a_time(rules::any_namesakes(4), 50)) {
        equals(Model::default(), &traffic)?;
    }

    #[test]
    fn rules_on_a_jumping_clock_equal_their_models(traffic in steady(rules::alike(4), 50, Clock::Reels)) {
        equals(Model::default(), &traffic)?;
    }

    #[test]
    fn changing_rules_equal_their_models(traffic in changing(4, 50)) {
        equals(Model::default(), &traffic)?;
    }

    /// While the rules do not change, the log drops no entry that a rule still counts.
    #[test]
    fn a_log_drops_nothing_that_is_seen(
        traffic in steady(rules::plain_logs(4), 80, Clock::Forward)
    ) {
        let mut model = Model::default();
        model.log.keeps_all = true;
        equals(model, &traffic)?;
    }
}
