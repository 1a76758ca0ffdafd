//! A state from which nothing is consumed has no time: on a clock that steps back, its rules answer
//! like those of a key that was never checked, whatever emptied the state and whatever keeps it.

use super::examples::{Key, costs, key};
use super::traffic::{CALLS, Deed, HoldTraffic, IDS, Step, try_check, with_holds};
use crate::algorithm::NO_TIME_US;
use crate::algorithm::fixed::FixedParams;
use crate::algorithm::meter::Params;
use crate::check::Bounds;
use crate::key::{Check, CheckOptions, HoldRequest, Limiter, Settlement};
use crate::rule::{MAX_PERIOD_US, Rule};
use crate::tests::laws::rules::{alike, distinct, plain, rule_set, uncosted, with_slots};
use crate::tests::laws::traffic::{Clock, steady};
use crate::tests::laws::{cases, peek};
use crate::tests::rules_of_line;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

#[test]
fn a_hold_at_no_cost_delays_no_turn() {
    let (mut key, rule) = (key(), "leaky:5/h,queue=4");
    assert_eq!(key.hold(0.0, "h", 7_200.0, 0, rule), [0, 5, 5, 0, 0]);
    assert_eq!(key.check(-1_800.0, 1, rule), [0, 5, 4, 0, 720_000]);
}

#[test]
fn a_hold_at_no_cost_delays_no_refill() {
    let (mut key, rule) = (key(), "bucket:5/h");
    assert_eq!(key.hold(0.0, "h", 7_200.0, 0, rule), [0, 5, 5, 0, 0]);
    assert_eq!(key.check(-1_800.0, 5, rule), [0, 5, 0, 0, 3_600_000]);
    assert_eq!([-1_080.001, -1_080.0].map(|s| key.peek(s, rule)[2]), [0, 1]);
}

/// Takes hold `h` for 300 s at 0 s.
fn hold(key: &mut Key, cost: u32, refund: bool, rules: &str) {
    key.check_with(0.0, Some(("h", 300.0, refund)), cost, rules);
}

fn refund_all(key: &mut Key) {
    let now_us = key.at(0.0);
    key.limiter.refund(9, now_us, &[]);
}

type Way = (&'static str, fn(&mut Key, &str));

/// What leaves nothing consumed from a state, although the key was checked at 0 s.
const WAYS: [Way; 7] = [
    ("a hold at no cost", |key, rules| hold(key, 0, false, rules)),
    ("a settlement at once", |key, rules| {
        hold(key, 1, false, rules);
        key.settle(0.0, "h", Settlement::Refund);
    }),
    ("a settlement after the units came back by themselves", |key, rules| {
        hold(key, 3, false, rules);
        key.settle(299.0, "h", costs(0));
    }),
    ("a lapse", |key, rules| {
        hold(key, 3, true, rules);
        let end_us = key.at(300.0);
        key.limiter.lapse(end_us);
    }),
    ("a refund", |key, rules| {
        key.check(0.0, 2, rules);
        refund_all(key);
    }),
    ("a refund of an excess", |key, rules| {
        hold(key, 2, false, rules);
        key.settle(0.0, "h", costs(4));
        refund_all(key);
    }),
    ("a refund of a sync", |key, rules| {
        let now_us = key.at(0.0);
        for mut rule in rules_of_line(rules) {
            assert_eq!(key.limiter.sync(Bounds::ANY, &mut rule, 2, now_us), Ok(3));
        }
        refund_all(key);
    }),
];

#[test]
fn an_emptied_state_has_no_time() {
    for rules in [
        "5/m",
        "5/h",
        "window:5/m",
        "window:5/h,res=6",
        "fixed:5/m",
        "fixed:5/h,align=first",
        "fixed:5/month,tz=+02:00",
        "fixed:5/h,keep=9",
        "bucket:5/m",
        "bucket:5/h",
        "bucket:5/m,refill=interval",
        "bucket:5/h,refill=interval",
        "leaky:5/m,queue=4",
        "leaky:5/h,queue=4",
        "leaky:5/h,queue=4,name=n bucket:5/h,name=m",
    ] {
        for (way, empty) in WAYS {
            let mut emptied = key();
            emptied.hold(0.0, "keep", 90_000.0, 0, rules);
            empty(&mut emptied, rules);
            assert!(emptied.limiter.live_hold(b"keep", emptied.at(0.0)).is_some());
            for back_s in [1.0, 30.0, 59.0, 299.0, 1_800.0, 3_599.0, 80_000.0] {
                let (mut stepped, mut fresh) = (key(), key());
                stepped.limiter = emptied.limiter.clone();
                for cost in [2, 3, 1] {
                    let answer = stepped.check(-back_s, cost, rules);
                    let expected = fresh.check(-back_s, cost, rules);
                    assert_eq!(answer, expected, "{rules} after {way}, {back_s} s before");
                }
            }
        }
    }
}

/// The units of a hold, whose window has closed, do not come back from a window that opened again for
/// others.
#[test]
fn a_hold_takes_nothing_from_a_window_that_opened_again() {
    for rule in ["fixed:5/h", "fixed:5/h,keep=9", "window:5/h", "bucket:5/h,refill=interval", "5/h"]
    {
        let mut key = key();
        key.hold(3_000.0, "old", 99_999.0, 3, rule);
        key.hold(11_000.0, "new", 99_999.0, 1, rule);
        assert!(key.settle(11_000.0, "new", Settlement::Refund));
        key.check(3_100.0, 4, rule);
        let remaining = key.peek(3_100.0, rule)[2];
        assert!(key.settle(3_200.0, "old", Settlement::Refund));
        assert_eq!(key.peek(3_200.0, rule)[2], remaining, "{rule}");
    }
}

/// Both windows hold units at the same times, one of them in the past.
#[test]
fn holds_of_a_window_that_opened_again_give_everything_back() {
    let (mut key, rule) = (key(), "fixed:9/h,keep=9");
    key.hold(3_000.0, "old", 99_999.0, 3, rule);
    key.hold(11_000.0, "new", 99_999.0, 1, rule);
    assert!(key.settle(11_000.0, "new", Settlement::Refund));
    assert_eq!(key.hold(3_100.0, "again", 99_999.0, 4, rule)[2], 5);
    assert!(key.settle(3_200.0, "again", Settlement::Refund));
    assert!(key.settle(3_200.0, "old", Settlement::Refund));
    assert_eq!(key.peek(3_200.0, rule), [0, 9, 9, 0, 0]);
}

/// The length of the hold that keeps every state.
const KEPT_US: u64 = MAX_PERIOD_US;

fn has_no_time(limiter: &Limiter) -> bool {
    limiter.states().iter().all(|state| state.meter().last_us() == NO_TIME_US)
}

/// True if a state of this rule may keep units that holds gave back: a leaky bucket keeps the charge
/// of a hold that others queued after. Kept windows that open with their first requests may overlap
/// after a step back, and then a hold's time does not tell which of them counted it.
fn may_keep_units(rule: &Rule) -> bool {
    match rule.params() {
        Params::Leaky(_) | Params::Fixed(FixedParams { calendar: None, keep: 1.., .. }) => true,
        Params::Log(_)
        | Params::Window(_)
        | Params::Fixed(_)
        | Params::Bucket(_)
        | Params::Slots(_) => false,
    }
}

/// Plays the traffic's holds, which give all their charges back, beside a hold at no cost that keeps
/// every state. Whenever all charges have come back, the key answers like one that was never checked,
/// now and before.
fn emptied_keys_are_like_new(traffic: &HoldTraffic) -> TestCaseResult {
    let (mut limiter, untouched) = (Limiter::default(), Limiter::default());
    for step in &traffic.steps() {
        let Step { rules, now_us, deed } = *step;
        let hold = |hold| CheckOptions { hold: Some(hold), ..CheckOptions::default() };
        let keeps = hold(HoldRequest { id: b"keep", end_us: now_us + KEPT_US, refund: false });
        try_check(&mut limiter, &Check::new(rules, 0, now_us).with(&keeps));
        match deed {
            Deed::Check { cost, options: CheckOptions { hold: Some(asked), .. } } => {
                let options = hold(HoldRequest { refund: true, ..asked });
                try_check(&mut limiter, &Check::new(rules, cost, now_us).with(&options));
            }
            Deed::Settle { id, .. } => drop(limiter.settle(id, Settlement::Refund, now_us)),
            Deed::Renew { .. } | Deed::Refund(..) | Deed::Reset => step.act(&mut limiter),
            Deed::Check { .. } | Deed::Peek(_) => {}
        }
        let mut emptied = limiter.clone();
        emptied.lapse(now_us);
        for id in IDS {
            emptied.settle(id, Settlement::Refund, now_us);
        }
        let exact = !rules.iter().any(may_keep_units);
        prop_assert!(!exact || has_no_time(&emptied), "{emptied:?}");
        if !exact && !emptied.states().iter().all(|state| state.meter().is_empty()) {
            continue;
        }
        for (rule, mille) in rules.iter().zip([0, 140, 500, 1_000].into_iter().cycle()) {
            let at_us = now_us.saturating_sub(rule.period_us() / 1_000 * mille);
            for at_us in [at_us, at_us + rule.period_us() / 10] {
                let (ours, decisions) = peek(&emptied, rules, 1, at_us);
                let (theirs, expected) = peek(&untouched, rules, 1, at_us);
                prop_assert_eq!(ours.summary, theirs.summary, "at {}", at_us);
                prop_assert_eq!(decisions, expected, "at {}", at_us);
            }
        }
    }
    Ok(())
}

/// Rules that cost what a check asks for, and charge nothing else.
fn costless(rules: impl Strategy<Value = Vec<Rule>>) -> impl Strategy<Value = Vec<Rule>> {
    rules.prop_map(|rules| distinct(rules.iter().map(|rule| uncosted(&plain(rule))).collect()))
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn a_key_that_was_given_everything_back_is_like_new(
        traffic in with_holds(steady(costless(rule_set(3)), CALLS, Clock::StepsBack))
    ) {
        emptied_keys_are_like_new(&traffic)?;
    }

    #[test]
    fn a_key_that_was_given_everything_back_on_a_jumping_clock_is_like_new(
        traffic in with_holds(steady(costless(with_slots(alike(3))), CALLS, Clock::Reels))
    ) {
        emptied_keys_are_like_new(&traffic)?;
    }
}
