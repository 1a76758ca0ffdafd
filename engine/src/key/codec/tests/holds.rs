//! Holds that only a hostile payload can have.

use super::super::holds::SavedCharge;
use super::super::parts::{DEBT, NO_NAME, NOTHING};
use super::super::{DecodeError, WITHOUT_AUTHOR, decode, encode};
use crate::key::Limiter;
use crate::rule::{DAY_US, MAX_PERIOD_US, MS_US, SECOND_US};
use crate::saved::form::{SavedDetail, put, save_items};

/// A state with a debt. The period differs for each `n`.
fn debt(n: u32, leaky: bool) -> Vec<u8> {
    let (last_us, period_us, rem) = (1_u64, (u64::from(n) + 1) * SECOND_US, 0_u64);
    let (units, limit, burst_or_queue) = (9_u32, 9_u32, 9_u32);
    let meter = (DEBT, last_us, period_us, rem, units, limit, burst_or_queue, leaky);
    save_items([(NO_NAME, meter)])
}

fn charge(state: Option<u32>, detail: SavedDetail) -> SavedCharge {
    let (stamp_us, units, limit, by_default, shadow) = (1, 1, 9, true, false);
    (state, stamp_us, units, limit, by_default, shadow, detail)
}

fn least(older: u32) -> SavedDetail {
    SavedDetail::Least { older, owed: 7 }
}

/// A hold to be saved.
struct Held {
    id: [u8; 4],
    end_us: u64,
    charges: Vec<SavedCharge>,
}

fn payload(states: impl Iterator<Item = Vec<u8>>, holds: &[Held]) -> Vec<u8> {
    let (refund, log_names) = (true, Vec::<u8>::new());
    let holds = save_items(holds.iter().map(|Held { id, end_us, charges }| {
        (&id[..], end_us, DAY_US, refund, save_items(charges), &log_names)
    }));
    let mut payload = vec![WITHOUT_AUTHOR];
    let states = states.collect::<Vec<_>>().concat();
    put(&mut payload, &(states, NOTHING, NOTHING, holds, NOTHING));
    payload
}

/// `holds` holds, each charged on `states` states.
fn dense(holds: u32, states: u32, leaky: bool) -> Vec<u8> {
    let held = |n: u32| Held {
        id: n.to_be_bytes(),
        end_us: u64::from(n.wrapping_mul(2_654_435_761)) + 1,
        charges: (0..states)
            .map(|state| {
                let turn = SavedDetail::Turn { ms: 1, is_last: true };
                charge(Some(state), if leaky { turn } else { least(n) })
            })
            .collect(),
    };
    let held: Vec<Held> = (0..holds).map(held).collect();
    payload((0..states).map(|n| debt(n, leaky)), &held)
}

fn loaded(payload: &[u8]) -> Result<usize, DecodeError> {
    decode(payload).map(|limiter: Limiter| limiter.live_holds(0))
}

#[test]
fn saved_holds_must_be_in_the_order_of_their_ids() {
    let state = || std::iter::once(debt(0, false));
    let held = |id: u32, older| {
        let charges = vec![charge(Some(0), least(older))];
        Held { id: id.to_be_bytes(), end_us: 5, charges }
    };
    assert_eq!(loaded(&payload(state(), &[held(1, 0), held(2, 1)])), Ok(2));
    let refused = Err(DecodeError::OutOfRange("the id of a hold"));
    assert_eq!(loaded(&payload(state(), &[held(2, 0), held(1, 1)])), refused);
    assert_eq!(loaded(&payload(state(), &[held(1, 0), held(1, 1)])), refused);
}

#[test]
fn too_long_holds_and_pauses_are_refused() {
    let none = Vec::<u8>::new();
    let held = |length_us: u64| {
        let holds = save_items([(&b"a"[..], 5_u64, length_us, true, &none, &none)]);
        let mut payload = vec![WITHOUT_AUTHOR];
        put(&mut payload, &(&none, NOTHING, NOTHING, holds, NOTHING));
        decode(&payload).map(drop)
    };
    let paused = |length_us: u64| {
        let mut payload = vec![WITHOUT_AUTHOR];
        put(&mut payload, &(&none, NOTHING, NOTHING, &none, NOTHING));
        put(&mut payload, &Some((5_u64, length_us, &b"429"[..])));
        decode(&payload).map(drop)
    };
    for length_us in [0, MS_US, MAX_PERIOD_US] {
        assert_eq!((held(length_us), paused(length_us)), (Ok(()), Ok(())));
    }
    for length_us in [MAX_PERIOD_US + 1, u64::MAX] {
        let refused = |what| Err(DecodeError::OutOfRange(what));
        assert_eq!(held(length_us), refused("the length of a hold"));
        assert_eq!(paused(length_us), refused("the length of a pause"));
    }
}

#[test]
fn a_hold_has_one_charge_per_state_and_at_most_a_thousand() {
    let of = |states: &[Option<u32>]| {
        let charges = states.iter().map(|&state| {
            charge(state, if state.is_some() { least(0) } else { SavedDetail::Plain })
        });
        let held = Held { id: [1; 4], end_us: 5, charges: charges.collect() };
        loaded(&payload((0..2).map(|n| debt(n, false)), &[held]))
    };
    let refused = |what| Err(DecodeError::OutOfRange(what));
    assert_eq!(of(&[Some(0), Some(1), None, None]), Ok(1));
    assert_eq!(of(&[Some(0), Some(0), Some(1)]), refused("a charge"));
    assert_eq!(of(&[Some(0), Some(1), Some(2)]), refused("a state"));
    let mut many = vec![None; 999];
    many.push(Some(0));
    assert_eq!(of(&many), Ok(1));
    many.push(Some(1));
    assert_eq!(of(&many), refused("charges"));
}

/// The payloads have as many charges as fit into a megabyte. Loading one charge must not search all
/// charges of its hold, or all holds.
#[test]
fn dense_payloads_load() {
    for (holds, states) in [(90, 1_000), (9_000, 10), (50_000, 1)] {
        for leaky in [false, true] {
            assert_eq!(loaded(&dense(holds, states, leaky)), Ok(holds as usize));
        }
    }
}

#[test]
fn least_debts_are_saved_by_rank_and_do_not_fall() {
    let of = |charges: [(u32, u32, u128); 2]| {
        let held = charges.into_iter().zip(1_u32..).map(|((units, older, owed), id)| {
            let (state, stamp_us, _, limit, by_default, shadow, _) = charge(Some(0), least(0));
            let detail = SavedDetail::Least { older, owed };
            let charges = vec![(state, stamp_us, units, limit, by_default, shadow, detail)];
            Held { id: id.to_be_bytes(), end_us: 5, charges }
        });
        payload(std::iter::once(debt(0, false)), &held.collect::<Vec<_>>())
    };
    let payload = of([(1, 1, 7), (1, 0, 6)]);
    assert_eq!(decode(&payload).map(|limiter: Limiter| encode(&limiter)), Ok(payload));
    let refused = Err(DecodeError::OutOfRange("a debt"));
    assert_eq!(loaded(&of([(1, 0, 7), (1, 1, 6)])), refused);
    assert_eq!(loaded(&of([(0, 0, 7), (1, 1, 8)])), refused);
}

#[test]
fn a_charge_on_a_bucket_has_its_least_debt() {
    let held = |charge| [Held { id: [1; 4], end_us: 5, charges: vec![charge] }];
    let of = |charge| loaded(&payload(std::iter::once(debt(0, false)), &held(charge)));
    let mut plain = charge(Some(0), SavedDetail::Plain);
    assert_eq!(of(plain.clone()), Err(DecodeError::OutOfRange("a charge")));
    // Nothing was consumed.
    plain.2 = 0;
    assert_eq!(of(plain), Ok(1));
}
