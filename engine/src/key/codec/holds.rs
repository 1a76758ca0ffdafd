//! Saves and loads holds. A saved charge names its state, not the numbers of rows, tracks and
//! positions, which differ between servers.

use crate::algorithm::State;
use crate::key::holds::MOST_HOLDS;
use crate::key::holds::{Detail, Id, Position, TrackKind, TrackNumber};
use crate::key::{Charge, Hold, HoldRequest, Holds, Length, MAX_END_US, MAX_ID};
use crate::rule::{MAX_PERIOD_US, Name};
use crate::saved::{
    DecodeError, SavedDetail, check_time, check_units, check_window, load_items, load_name,
    save_items, within,
};
use alloc::{collections::BTreeMap, vec::Vec};

/// An id, the end, the length, whether it refunds, its charges, and the names of its log rules.
type SavedHold<'a> = (&'a [u8], u64, u64, bool, &'a [u8], &'a [u8]);
/// The place of its state, then the fields of a [`Charge`].
pub type SavedCharge = (Option<u32>, u64, u32, u32, bool, bool, SavedDetail);

/// Holds with the same saved form are equal.
impl PartialEq for Holds {
    fn eq(&self, other: &Self) -> bool {
        save_holds(self) == save_holds(other)
    }
}

impl Eq for Holds {}

/// Saves equal holds as equal bytes.
pub fn save_holds(holds: &Holds) -> Vec<u8> {
    let positions = live_positions(holds);
    save_items(holds.in_order_of_ids().map(|hold| {
        let charges = hold.charges().iter();
        let charges =
            save_items(charges.map(|charge| save_charge(holds, hold, charge, &positions)));
        let log_names = save_items(hold.log_names().iter().map(Name::as_str));
        let length_us = holds.length_of(hold).micros();
        (hold.id(), hold.end_us(), length_us, hold.refunds(), charges, log_names)
    }))
}

/// For each token bucket's track, the sorted positions of the least debts of its live holds.
fn live_positions(holds: &Holds) -> BTreeMap<TrackNumber, Vec<Position>> {
    let mut positions: BTreeMap<TrackNumber, Vec<Position>> = BTreeMap::new();
    for charge in holds.in_order_of_ids().flat_map(Hold::charges) {
        let kind = holds.track(charge.track).map(|track| &track.kind);
        if let (Some(position), Some(TrackKind::Bucket(_))) = (charge.detail.position(), kind) {
            positions.entry(charge.track).or_default().push(position);
        }
    }
    for positions in positions.values_mut() {
        positions.sort_unstable();
    }
    positions
}

fn save_charge(
    holds: &Holds,
    hold: &Hold,
    charge: &Charge,
    positions: &BTreeMap<TrackNumber, Vec<Position>>,
) -> SavedCharge {
    let Charge { stamp_us, units, limit, by_default, shadow, detail, track } = *charge;
    let place = holds.place_of(charge);
    let own = holds.track(track).filter(|_| place.is_some());
    let detail = match (own.map(|own| &own.kind), detail.position()) {
        (Some(TrackKind::Bucket(leasts)), Some(position)) => {
            let older = positions.get(&track).map(|all| all.partition_point(|&p| p < position));
            let older = older.and_then(|older| u32::try_from(older).ok()).unwrap_or(u32::MAX);
            SavedDetail::Least { older, owed: leasts.get(position) }
        }
        (Some(TrackKind::Queue { .. }), _) => {
            let is_last = own.is_some_and(|own| own.queued_last(hold));
            SavedDetail::Turn { ms: detail.turn_ms(), is_last }
        }
        (Some(TrackKind::Log), _) => SavedDetail::Log { window_us: detail.window_us() },
        (Some(TrackKind::Plain | TrackKind::Bucket(_)) | None, _) => SavedDetail::Plain,
    };
    let state = place.and_then(|place| u32::try_from(place).ok());
    (state, stamp_us, units, limit, by_default, shadow, detail)
}

const HOLDS: &str = "a number of holds";
const ID: &str = "the id of a hold";
/// The most charges of a hold, and the most names of its log rules.
const MOST_CHARGES: usize = 1_000;
/// The largest debt, in fractions of a unit.
const MOST_OWED: u128 = 1 << 80;

/// The holds, if any, and a track for each state that they were charged on. Takes time and memory
/// in proportion to the bytes, except for sorting.
pub fn load_holds(saved: &[u8], states: &[State]) -> Result<Option<Holds>, DecodeError> {
    if saved.is_empty() {
        return Ok(None);
    }
    let mut holds = Holds::default();
    // For each charge with a least debt: its track, its rank, the debt, the index of its hold, and
    // the index of the charge.
    let mut leasts = Vec::new();
    let mut row = 0_usize;
    let mut loaded = load_items(saved, MOST_HOLDS, HOLDS, |saved: SavedHold<'_>| {
        let (id, end_us, length_us, refund, charges, log_names) = saved;
        within((1..=MAX_ID).contains(&id.len()), ID)?;
        within(end_us <= MAX_END_US, "a time")?;
        within(length_us <= MAX_PERIOD_US, "the length of a hold")?;
        let mut index = 0_usize;
        let charges = load_items(charges, MOST_CHARGES, "charges", |charge: SavedCharge| {
            let (charge, least) = load_charge(charge, id, states, &mut holds)?;
            leasts.extend(least.map(|(older, owed)| (charge.track, older, owed, row, index)));
            index = index.saturating_add(1);
            Ok(charge)
        })?;
        within(each_on_its_own_state(&charges), "a charge")?;
        let log_names = load_items(log_names, MOST_CHARGES, "names", load_name)?;
        row = row.saturating_add(1);
        let hold = Hold::new(HoldRequest { id, end_us, refund }, charges, log_names);
        Ok((hold, Length::new(length_us)))
    })?;
    within(loaded.is_sorted_by(|(one, _), (next, _)| one.id() < next.id()), ID)?;
    leasts.sort_by_key(|&(track, older, ..)| (track, older));
    for (track, _, owed, row, index) in leasts {
        let hold = loaded.get_mut(row).map(|(hold, _)| hold);
        let charge = hold.and_then(|hold| hold.charges_mut().get_mut(index));
        let kind = holds.track_mut(track).map(|track| &mut track.kind);
        if let (Some(charge), Some(TrackKind::Bucket(leasts))) = (charge, kind) {
            // A hold's least debt is at least that of every older hold.
            within(charge.units > 0 && leasts.youngest() <= owed, "a debt")?;
            charge.detail = Detail::least(leasts.push(owed));
        }
    }
    holds.fill(loaded);
    Ok(Some(holds))
}

/// True if each charge of a hold is on a different state.
fn each_on_its_own_state(charges: &[Charge]) -> bool {
    let mut tracks: Vec<TrackNumber> = charges.iter().map(|charge| charge.track).collect();
    tracks.retain(|&track| track != TrackNumber::NONE);
    tracks.sort_unstable();
    tracks.is_sorted_by(|one, next| one < next)
}

/// Loads a charge of the hold with this id, and creates the track of its state if missing. For a
/// charge with a least debt, also returns the number of older least debts, and that debt.
fn load_charge(
    saved: SavedCharge,
    id: &[u8],
    states: &[State],
    holds: &mut Holds,
) -> Result<(Charge, Option<(u32, u128)>), DecodeError> {
    let (place, stamp_us, units, limit, by_default, shadow, detail) = saved;
    let mut track = TrackNumber::NONE;
    if let Some(place) = place {
        let state = states.get(place as usize).ok_or(DecodeError::OutOfRange("a state"))?;
        let number = holds.track_for(place as usize, state.meter());
        track = number.ok_or(DecodeError::OutOfRange(HOLDS))?;
    }
    let mut least = None;
    let detail = match (holds.track_mut(track).map(|track| &mut track.kind), detail) {
        (None | Some(TrackKind::Plain), SavedDetail::Plain) => Detail::least(None),
        (Some(TrackKind::Bucket(_)), SavedDetail::Plain) if units == 0 => Detail::least(None),
        (Some(TrackKind::Bucket(_)), SavedDetail::Least { older, owed }) => {
            within(owed <= MOST_OWED, "a debt")?;
            least = Some((older, owed));
            Detail::least(None)
        }
        (Some(TrackKind::Queue { last }), SavedDetail::Turn { ms, is_last }) => {
            if is_last {
                *last = Some(Id::new(id));
            }
            Detail::turn(ms.into())
        }
        (Some(TrackKind::Log), SavedDetail::Log { window_us }) => {
            check_window(window_us)?;
            Detail::window(window_us)
        }
        (
            None
            | Some(
                TrackKind::Plain | TrackKind::Log | TrackKind::Bucket(_) | TrackKind::Queue { .. },
            ),
            _,
        ) => {
            return Err(DecodeError::OutOfRange("a charge"));
        }
    };
    check_time(stamp_us)?;
    check_units(units)?;
    check_units(limit)?;
    Ok((Charge { stamp_us, units, limit, detail, track, by_default, shadow }, least))
}
