//! A check never gives a key more states than the bound allows. A check that would exceed the bound
//! is refused and changes nothing.

use super::traffic::{Action, Call, changing};
use super::{act, cases};
use crate::check;
use crate::check::{Bounds, CheckError, KeyCheck, Refusal};
use crate::key::{Change, Check, CheckOptions, HoldRequest, Limiter, Verdict};
use crate::rule::DAY_US;
use crate::tests::rules_of_line;
use proptest::prelude::*;

const START_US: u64 = 1_700_000_000_000_000;

const fn within(max_states: usize) -> Bounds {
    Bounds { max_states, max_holds: usize::MAX }
}

const fn too_many(states: usize, max: usize) -> CheckError {
    CheckError { key: 0, why: Refusal::TooManyStates { states, max } }
}

fn states(error: &CheckError) -> usize {
    match error.why {
        Refusal::TooManyStates { states, .. } => states,
        Refusal::TooManyHolds { .. }
        | Refusal::TooManyRulesOfHolds { .. }
        | Refusal::OtherCost { .. } => unreachable!(),
    }
}

/// A key with one state for each name. The states matter for a day.
fn with_states(names: usize) -> Limiter {
    let mut limiter = Limiter::default();
    for n in 0..names {
        let rules = rules_of_line(&format!("bucket:5/d,name=n{n}"));
        limiter.record(&Check::new(&rules, 1, START_US), Change::Admitted);
    }
    limiter
}

/// Checks a key that may have three states. The error is the number of states that it would have.
fn within_three(limiter: &mut Limiter, line: &str, now_us: u64) -> Result<Verdict, usize> {
    let rules = rules_of_line(line);
    let outcome = limiter.check_within(within(3), &Check::new(&rules, 1, now_us), &mut Vec::new());
    outcome.map(|outcome| outcome.summary.verdict).map_err(|error| states(&error))
}

#[test]
fn only_checks_that_create_a_state_are_refused() {
    let mut limiter = with_states(3);
    let mut check = |line: &str| within_three(&mut limiter, line, START_US);
    for (line, answer) in [
        ("bucket:5/d,name=n1", Ok(Verdict::Allowed)),
        ("bucket:5/d,name=n1 bucket:5/d,name=n2", Ok(Verdict::Allowed)),
        // One state replaces another.
        ("window:5/d,name=n2", Ok(Verdict::Allowed)),
        ("bucket:5/d,name=new", Err(4)),
        ("bucket:5/d,name=n1 5/h window:5/h fixed:5/h", Err(6)),
        // A denial makes no state unless it is charged.
        ("bucket:0/d,name=new", Ok(Verdict::Limited)),
        ("bucket:0/d,name=n1 5/h", Ok(Verdict::Limited)),
        ("bucket:5/d,name=n0,count=all", Ok(Verdict::Allowed)),
    ] {
        assert_eq!(check(line), answer, "{line}");
    }
    let rules = rules_of_line("bucket:1/d,name=n0 fixed:9/d,count=all,name=new");
    let asked = Check::new(&rules, 1, START_US);
    let charged = limiter.check_within(within(3), &asked, &mut Vec::new());
    assert_eq!(charged, Err(too_many(4, 3)));
}

#[test]
fn dropped_states_are_not_counted() {
    let mut limiter = with_states(3);
    assert_eq!(within_three(&mut limiter, "5/h", START_US + 2 * DAY_US), Err(4));
    assert_eq!(within_three(&mut limiter, "5/h", START_US + 4 * DAY_US), Ok(Verdict::Allowed));
    assert_eq!(limiter.states().len(), 1);
}

/// Checks a key that may have three states, at a cost of 0 and with a hold of ten days.
fn held_within_three(limiter: &mut Limiter, line: &str) -> Result<Verdict, usize> {
    let (rules, end_us) = (rules_of_line(line), START_US + 10 * DAY_US);
    let hold = Some(HoldRequest { id: line.as_bytes(), end_us, refund: false });
    let options = CheckOptions { hold, ..CheckOptions::default() };
    let check = Check::new(&rules, 0, START_US).with(&options);
    let outcome = limiter.check_within(within(3), &check, &mut Vec::new());
    outcome.map(|outcome| outcome.summary.verdict).map_err(|error| states(&error))
}

#[test]
fn states_that_holds_keep_are_counted() {
    let mut limiter = with_states(2);
    assert_eq!(held_within_three(&mut limiter, "bucket:5/d,name=n0"), Ok(Verdict::Allowed));
    assert_eq!(held_within_three(&mut limiter, "bucket:5/d,name=n1"), Ok(Verdict::Allowed));
    // A hold keeps a state that nothing was consumed from.
    assert_eq!(held_within_three(&mut limiter, "bucket:5/d,name=n2"), Ok(Verdict::Allowed));
    assert_eq!(held_within_three(&mut limiter, "bucket:5/d,name=new"), Err(4));
    assert_eq!(within_three(&mut limiter, "5/h", START_US + 4 * DAY_US), Err(4));
}

#[test]
fn a_key_with_too_many_states_is_checked_but_does_not_grow() {
    let mut limiter = with_states(5);
    let mut check = |line: &str| within_three(&mut limiter, line, START_US);
    assert_eq!(check("bucket:5/d,name=n4"), Ok(Verdict::Allowed));
    assert_eq!(check("window:5/d,name=n4"), Ok(Verdict::Allowed));
    assert_eq!(check("5/h"), Err(6));
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn a_check_is_refused_exactly_if_it_would_leave_too_many_states(
        traffic in changing(5, 50),
        max in 1..6usize,
    ) {
        let mut limiter = Limiter::default();
        for Call { rules, now_us, action } in traffic.calls() {
            let Action::Check(cost) = action else {
                act(&mut limiter, rules, now_us, action);
                continue;
            };
            let check = Check::new(rules, cost, now_us);
            let (before, mut free) = (limiter.clone(), limiter.clone());
            let (mut decisions, mut free_decisions) = (Vec::new(), Vec::new());
            let outcome = free.check(&check, &mut free_decisions);
            match limiter.check_within(within(max), &check, &mut decisions) {
                Ok(within) => {
                    prop_assert_eq!((within, &decisions), (outcome, &free_decisions));
                    prop_assert_eq!(&limiter, &free);
                    prop_assert!(limiter.states().len() <= max);
                }
                Err(error) => {
                    prop_assert_eq!(&limiter, &before);
                    prop_assert_eq!(error, too_many(free.states().len(), max));
                    prop_assert!(free.states().len() > max);
                }
            }
            // Of several keys, none changes if one is refused.
            let mut other = Limiter::default();
            let mut again = before.clone();
            let mut parts = [KeyCheck::new(&mut other, check), KeyCheck::new(&mut again, check)];
            if check::check_keys(&mut parts, within(max), &mut decisions).is_err() {
                prop_assert_eq!((other, again), (Limiter::default(), before));
            }
        }
    }
}
