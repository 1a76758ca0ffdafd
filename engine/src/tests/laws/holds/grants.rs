//! A grant from a range of costs is the most that passes. A check at the granted cost would pass, but a
//! check at one unit more would not.

use super::traffic::{CALLS, Deed, HoldTraffic, Step, try_check, with_holds};
use crate::key::{Check, CheckOptions, Limiter, Verdict};
use crate::rule::{Kind, MAX_UNITS, Rule};
use crate::tests::laws::rules::{rule_set, with_slots};
use crate::tests::laws::traffic::{Clock, changing, steady};
use crate::tests::laws::{cases, unblocked, would_pass};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

fn grants_are_maximal(traffic: &HoldTraffic, widths: &[u32]) -> TestCaseResult {
    let mut limiter = Limiter::default();
    for (step, width) in traffic.steps().iter().zip(widths.iter().cycle()) {
        let Step { rules, now_us, deed } = *step;
        limiter = unblocked(&limiter);
        let Deed::Check { cost, options } = deed else {
            step.act(&mut limiter);
            continue;
        };
        let cost = cost.clamp(1, MAX_UNITS);
        let most = (cost + width).min(MAX_UNITS);
        // A check of slots needs a hold.
        if options.hold.is_none() && rules.iter().any(|rule| rule.kind() == Kind::Slots) {
            continue;
        }
        let before = limiter.clone();
        let ranged = CheckOptions { up_to: Some(most), ..options };
        let check = Check::new(rules, cost, now_us).with(&ranged);
        let Some((outcome, decisions)) = try_check(&mut limiter, &check) else { continue };
        // The answer to a repeat has the original grant, under any rules.
        if outcome.repeated {
            continue;
        }
        let granted = outcome.cost;
        prop_assert!((cost..=most).contains(&granted));
        let passes = |cost: u32| would_pass(&before, rules, cost, now_us);
        if outcome.summary.verdict == Verdict::Allowed {
            prop_assert!(passes(granted), "{granted} do not pass");
            let own = |rule: &Rule| rule.is_shadow() || rule.cost().own().is_some();
            let lowers = rules.iter().any(|rule| !own(rule));
            prop_assert!(
                granted == most || lowers && !passes(granted + 1),
                "{granted} and one more pass"
            );
        }
        // The check of the range does what a check at the granted cost does.
        let mut alone = before;
        let plain = Check { cost: granted, ..check }.with(&options);
        let expected = try_check(&mut alone, &plain).unwrap();
        prop_assert_eq!(outcome, expected.0);
        let decided = rules.iter().zip(decisions.iter().zip(&expected.1));
        for (rule, (ours, theirs)) in decided.filter(|(rule, _)| !rule.is_shadow()) {
            prop_assert_eq!(ours, theirs, "{}", rule);
        }
        prop_assert_eq!(&limiter, &alone);
    }
    Ok(())
}

fn widths() -> impl Strategy<Value = Vec<u32>> {
    let width = prop_oneof![1 => Just(0), 4 => 0..10u32, 2 => 0..1_000u32, 1 => 0..=MAX_UNITS];
    prop::collection::vec(width, 1..20)
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn grants_of_rates_are_maximal(traffic in with_holds(changing(4, CALLS)), widths in widths()) {
        grants_are_maximal(&traffic, &widths)?;
    }

    #[test]
    fn grants_of_slots_are_maximal(
        traffic in with_holds(steady(with_slots(rule_set(2)), CALLS, Clock::StepsBack)),
        widths in widths(),
    ) {
        grants_are_maximal(&traffic, &widths)?;
    }
}
