//! decode(encode(x)) = x. Any byte string decodes to a limiter or to an error, and no decoded
//! limiter can cause a panic.

use super::rules::cost;
use super::rules::rule_set;
use super::traffic::{Action, Call, Traffic, changing};
use super::{act, cases};
use crate::key::{
    Access, AccessEntry, Author, BanCount, DecodeError, Limiter, MAX_FORGOTTEN_US, MAX_SPAN_US,
    Plan, decode, encode,
};
use crate::rule::{MAX_TIME_US, Name, Rule};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use std::num::NonZeroU64;

/// A limiter after traffic.
fn after(traffic: &Traffic) -> Limiter {
    let mut limiter = Limiter::default();
    for Call { rules, now_us, action } in traffic.calls() {
        act(&mut limiter, rules, now_us, action);
    }
    limiter
}

/// Makes all calls on a decoded limiter, and saves it after each.
fn survives(payload: &[u8], rules: &[Rule], calls: &[(u64, Action)]) -> TestCaseResult {
    let Ok(read) = decode(payload) else { return Ok(()) };
    let again = decode(&encode(&read));
    prop_assert_eq!(again.as_ref(), Ok(&read));
    let mut limiter = read;
    for &(now_us, action) in calls {
        act(&mut limiter, rules, now_us, action);
        let _ = limiter.deadline().expiry(now_us, now_us, None);
        let again = decode(&encode(&limiter));
        let expected = if limiter.is_empty() { Err(&DecodeError::Idle) } else { Ok(&limiter) };
        prop_assert_eq!(again.as_ref(), expected);
    }
    Ok(())
}

fn some_calls() -> impl Strategy<Value = Vec<(u64, Action)>> {
    let time = prop_oneof![
        1_600_000_000_000_000..1_900_000_000_000_000u64,
        0..=MAX_TIME_US,
        Just(0),
        Just(MAX_TIME_US),
    ];
    let action = prop_oneof![
        cost().prop_map(Action::Check),
        cost().prop_map(Action::Peek),
        (cost(), any::<bool>()).prop_map(|(units, of_rules)| Action::Refund(units, of_rules)),
    ];
    vec((time, action), 0..12)
}

#[derive(Clone, Debug)]
pub(super) enum Damage {
    Set(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
    Cut(prop::sample::Index, u8),
    End(prop::sample::Index),
}

pub(super) fn damage() -> impl Strategy<Value = Damage> {
    let byte = || prop_oneof![any::<u8>(), 248..=255u8, 0..4u8];
    let at = any::<prop::sample::Index>;
    prop_oneof![
        6 => (at(), byte()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        2 => (at(), vec(byte(), 1..12)).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        2 => (at(), 1..9u8).prop_map(|(at, bytes)| Damage::Cut(at, bytes)),
        1 => at().prop_map(Damage::End),
    ]
}

pub(super) fn damaged(mut payload: Vec<u8>, damages: &[Damage]) -> Vec<u8> {
    for damage in damages {
        let len = payload.len();
        if len == 0 {
            break;
        }
        match damage {
            Damage::Set(at, byte) => payload[at.index(len)] = *byte,
            Damage::Insert(at, bytes) => {
                let at = at.index(len);
                payload.splice(at..at, bytes.iter().copied());
            }
            Damage::Cut(at, bytes) => {
                let at = at.index(len);
                payload.drain(at..len.min(at + usize::from(*bytes)));
            }
            Damage::End(at) => payload.truncate(at.index(len)),
        }
    }
    payload
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn decoding_undoes_encoding(
        traffic in changing(5, 60),
        exempt: bool,
        until_us in proptest::option::of(any::<u64>()),
        ban_us in any::<u64>(),
        count in proptest::option::of((1..=u32::MAX, 0..=MAX_FORGOTTEN_US, 0..=MAX_SPAN_US)),
        reason in vec(any::<u8>(), 0..20),
        author in proptest::option::of((0..=MAX_TIME_US, vec(any::<u8>(), 0..99))),
    ) {
        let mut limiter = Limiter::default();
        for Call { rules, now_us, action } in traffic.calls() {
            act(&mut limiter, rules, now_us, action);
            let again = decode(&encode(&limiter));
            // An empty key is never saved.
            let expected = if limiter.is_empty() { Err(&DecodeError::Idle) } else { Ok(&limiter) };
            prop_assert_eq!(again.as_ref(), expected);
        }
        let kind = if exempt { Access::Exempt } else { Access::Block };
        let ban_us = NonZeroU64::new(ban_us).filter(|us| us.get() % 2 == 0);
        let author = author.map(|(since_us, user)| Author::new(since_us, &user));
        let access = AccessEntry { kind, until_us, ban_us, reason: reason.into(), author };
        let count = count.map(|(bans, forgotten_us, span_us)| BanCount { bans, forgotten_us, span_us });
        limiter.set_ban(access, count);
        prop_assert_eq!(decode(&encode(&limiter)), Ok(limiter));
    }

    #[test]
    fn a_payload_of_another_length_is_refused(traffic in changing(4, 40)) {
        let payload = encode(&after(&traffic));
        for end in 0..payload.len() {
            prop_assert!(decode(&payload[..end]).is_err(), "{end} bytes of {payload:?}");
        }
        let mut longer = payload;
        longer.push(0);
        prop_assert!(decode(&longer).is_err());
        // After a plan no part may follow.
        let mut planned = after(&traffic);
        planned.set_plan(Some(Plan { name: Name::new(b"pro").unwrap(), until_us: None }));
        let longer = [encode(&planned), vec![0]].concat();
        prop_assert_eq!(decode(&longer), Err(DecodeError::Trailing(1)));
    }

    #[test]
    fn a_damaged_payload_causes_no_panic(
        traffic in changing(4, 40),
        damages in vec(damage(), 1..6),
        calls in some_calls(),
    ) {
        let payload = damaged(encode(&after(&traffic)), &damages);
        for call in traffic.calls().into_iter().take(2) {
            survives(&payload, call.rules, &calls)?;
        }
    }

    #[test]
    fn arbitrary_bytes_cause_no_panic(
        mut payload in vec(any::<u8>(), 0..200),
        ours: bool,
        rules in rule_set(4),
        calls in some_calls(),
    ) {
        if ours && let Some(version) = payload.first_mut() {
            *version = encode(&Limiter::default())[0];
        }
        survives(&payload, &rules, &calls)?;
    }
}
