//! Until it is settled, a hold without `REFUND` changes no decision. A repeat of a live hold is
//! allowed, and changes nothing but the end.

use super::traffic::{CALLS, Deed, Step, try_check, with_holds};
use crate::check::{Bounds, Decision};
use crate::key::{Change, Check, CheckOptions, HoldRequest, Limiter, Verdict, encode};
use crate::rule::{Rule, RuleSpec};
use crate::tests::laws::rules::{distinct, rule_set, spec_of};
use crate::tests::laws::traffic::{Clock, changing, steady};
use crate::tests::laws::{cases, check, peek, unblocked};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

/// The decisions without the resets of rules with limit 0. These resets can differ: a log keeps no
/// entries for such a rule, except while the log has holds.
fn without_resets_of_0(rules: &[Rule], mut decisions: Vec<Decision>) -> Vec<Decision> {
    for (rule, decision) in rules.iter().zip(&mut decisions) {
        if rule.limit() == 0 {
            decision.reset_ms = 0;
        }
    }
    decisions
}

/// Makes the calls twice, once with holds of new ids and once without.
fn decisions_equal(steps: &[Step<'_>]) -> TestCaseResult {
    let (mut held, mut plain) = (Limiter::default(), Limiter::default());
    let mut answers = 0u32;
    for step in steps {
        let Step { rules, now_us, deed } = *step;
        match deed {
            Deed::Check { cost, options: CheckOptions { hold, .. } } => {
                answers += 1;
                let id = answers.to_be_bytes();
                let hold = hold.map(|hold| HoldRequest { id: &id, refund: false, ..hold });
                let options = CheckOptions { hold, ..CheckOptions::default() };
                let with = Check::new(rules, cost, now_us).with(&options);
                let ours = try_check(&mut held, &with).unwrap();
                let theirs = check(&mut plain, rules, cost, now_us);
                prop_assert_eq!(ours.0.summary, theirs.0.summary, "{:?}", step);
                prop_assert_eq!(ours.0.ban, theirs.0.ban, "{:?}", step);
                let seen = |decisions: Vec<Decision>| without_resets_of_0(rules, decisions);
                prop_assert_eq!(seen(ours.1), seen(theirs.1), "{:?}", step);
                prop_assert_eq!(ours.0.held, hold.is_some() && ours.0.change == Change::Admitted);
            }
            Deed::Peek(cost) => {
                let (ours, theirs) =
                    (peek(&held, rules, cost, now_us), peek(&plain, rules, cost, now_us));
                prop_assert_eq!(ours.0.summary, theirs.0.summary, "{:?}", step);
                let seen = |decisions: Vec<Decision>| without_resets_of_0(rules, decisions);
                prop_assert_eq!(seen(ours.1), seen(theirs.1), "{:?}", step);
            }
            Deed::Refund(..) | Deed::Reset | Deed::Settle { .. } | Deed::Renew { .. } => {}
        }
    }
    Ok(())
}

/// A hold at no cost changes its key, which drops a ban that has ended. A clock that then steps back
/// brings the ban back only on a key without the hold.
fn without_bans(rules: &[Rule]) -> Vec<Rule> {
    let unbanned = |rule: &Rule| RuleSpec { ban: None, ..spec_of(rule) }.validate().unwrap();
    distinct(rules.iter().map(unbanned).collect())
}

fn repeats_change_nothing(steps: &[Step<'_>]) -> TestCaseResult {
    let mut limiter = Limiter::default();
    for step in steps {
        limiter = unblocked(&limiter);
        let check = step.check();
        let Some((check, hold)) = check.and_then(|check| Some((check, check.hold()?))) else {
            step.act(&mut limiter);
            continue;
        };
        if limiter.live_hold(hold.id, check.now_us).is_none() {
            step.act(&mut limiter);
            if limiter.live_hold(hold.id, check.now_us).is_none() {
                continue;
            }
        }
        let mut renewed = limiter.clone();
        renewed.renew(hold.id, hold.end_us, check.now_us);
        let mut before = limiter.clone();
        before.lapse_if_due(check.now_us);
        let mut decisions = Vec::new();
        match limiter.check_within(Bounds::ANY, &check, &mut decisions) {
            Ok(outcome) => {
                prop_assert!(outcome.repeated && !outcome.held);
                prop_assert_eq!(outcome.summary.verdict, Verdict::Allowed);
                let moved = limiter != before;
                prop_assert_eq!(
                    outcome.change,
                    if moved { Change::Renewed } else { Change::Nothing }
                );
                // A repeat that moves no end leaves lapsed holds in place for the next change.
                limiter.lapse(check.now_us);
                prop_assert!(decisions.iter().all(|decision| decision.verdict == Verdict::Allowed));
                prop_assert_eq!(&limiter, &renewed);
                prop_assert_eq!(encode(&limiter), encode(&renewed));
            }
            Err(_) => prop_assert_eq!(&limiter, &before),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn a_hold_changes_no_decision(
        traffic in with_holds(steady(rule_set(4), CALLS, Clock::Forward))
    ) {
        decisions_equal(&traffic.steps())?;
    }

    #[test]
    fn a_hold_changes_no_decision_on_a_clock_that_steps_back(
        traffic in with_holds(steady(rule_set(4).prop_map(|rules| without_bans(&rules)), CALLS, Clock::StepsBack))
    ) {
        decisions_equal(&traffic.steps())?;
    }

    #[test]
    fn a_repeat_changes_only_the_end(traffic in with_holds(changing(4, CALLS))) {
        repeats_change_nothing(&traffic.steps())?;
    }
}
