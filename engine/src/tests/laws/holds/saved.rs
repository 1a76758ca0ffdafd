//! decode(encode(x)) = x for a limiter with holds. A damaged payload decodes to a limiter or to
//! an error, and no decoded limiter can cause a panic.

use super::examples::key;
use super::traffic::{CALLS, HoldTraffic, Step, with_holds};
use crate::key::{DecodeError, Limiter, decode, encode};
use crate::tests::laws::cases;
use crate::tests::laws::codec::{Damage, damage, damaged};
use crate::tests::laws::rules::{rule_set, with_slots};
use crate::tests::laws::traffic::{Clock, changing, steady};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

/// Tests that saving and loading leaves the limiter equal.
fn is_saved(limiter: &Limiter) -> TestCaseResult {
    let payload = encode(limiter);
    let read = decode(&payload);
    // An empty key is never saved.
    let expected = if limiter.is_empty() { Err(&DecodeError::Idle) } else { Ok(limiter) };
    prop_assert_eq!(read.as_ref(), expected);
    if let Ok(read) = read {
        prop_assert_eq!(encode(&read), payload);
    }
    Ok(())
}

fn play(limiter: &mut Limiter, steps: &[Step<'_>]) -> TestCaseResult {
    for step in steps {
        step.act(limiter);
        let _ = limiter.deadline().expiry(step.now_us, step.now_us, None);
        is_saved(limiter)?;
    }
    Ok(())
}

/// Damages a payload in the middle of the traffic, and continues with what it decodes to.
fn survives(traffic: &HoldTraffic, damages: &[Damage]) -> TestCaseResult {
    let steps = traffic.steps();
    let (first, last) = steps.split_at(steps.len() / 2);
    let mut limiter = Limiter::default();
    for step in first {
        step.act(&mut limiter);
    }
    let Ok(mut read) = decode(&damaged(encode(&limiter), damages)) else { return Ok(()) };
    is_saved(&read)?;
    play(&mut read, &last[..last.len().min(12)])
}

/// A limit of 0 keeps nothing of a denial that it charges.
#[test]
fn a_log_without_entries_is_saved_beside_a_hold() {
    let (mut key, rules) = (key(), "slots:4 log:0/1s,count=all,shadow");
    key.hold(0.0, "h", 60.0, 4, rules);
    let now_us = key.at(0.0);
    key.limiter.refund(4, now_us, &[]);
    assert_eq!(key.check(0.0, 1, rules)[0], 1);
    is_saved(&key.limiter).unwrap();
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn decoding_undoes_encoding_of_holds(traffic in with_holds(changing(4, CALLS))) {
        play(&mut Limiter::default(), &traffic.steps())?;
    }

    #[test]
    fn decoding_undoes_encoding_of_slots(
        traffic in with_holds(steady(with_slots(rule_set(3)), CALLS, Clock::StepsBack))
    ) {
        play(&mut Limiter::default(), &traffic.steps())?;
    }

    #[test]
    fn a_payload_with_holds_of_another_length_is_refused(
        traffic in with_holds(steady(with_slots(rule_set(3)), CALLS, Clock::StepsBack))
    ) {
        let mut limiter = Limiter::default();
        traffic.steps().iter().for_each(|step| step.act(&mut limiter));
        let payload = encode(&limiter);
        for end in 0..payload.len() {
            prop_assert!(decode(&payload[..end]).is_err(), "{end} bytes of {payload:?}");
        }
        prop_assert!(decode(&[&payload[..], &[0]].concat()).is_err());
    }

    #[test]
    fn a_damaged_payload_with_holds_causes_no_panic(
        traffic in with_holds(changing(4, CALLS)),
        damages in vec(damage(), 1..6),
    ) {
        survives(&traffic, &damages)?;
    }

    #[test]
    fn a_damaged_payload_with_slots_causes_no_panic(
        traffic in with_holds(steady(with_slots(rule_set(2)), CALLS, Clock::StepsBack)),
        damages in vec(damage(), 1..6),
    ) {
        survives(&traffic, &damages)?;
    }
}
