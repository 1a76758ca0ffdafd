//! Saves and loads holds. A saved charge names its state, not the numbers of rows, tracks and
//! positions, which differ between servers.

use super::error::DecodeError;
use super::form::{Bytes, SavedCharge, SavedDetail, SavedHold, load_items, save_items, within};
use super::load::{check_time, check_units, check_window};
use crate::limit::algorithm::meter::Meter;
use crate::limit::algorithm::state::State;
use crate::limit::holds::request::{HoldRequest, MAX_ID};
use crate::limit::holds::{
    Charge, Detail, Hold, Holds, MOST_HOLDS, NO_TRACK, PlaceOfCharge, Position, Row, TrackKind,
};
use crate::rule::{MAX_PERIOD_US, MAX_TIME_US, Name};
use std::collections::BTreeMap;

/// Saves equal holds as equal bytes.
pub fn save_holds(holds: &Holds) -> Bytes<'static> {
    let positions = live_positions(holds);
    save_items(holds.in_order_of_ids().map(|hold| SavedHold {
        id: hold.id(),
        end_us: hold.end_us(),
        refund: hold.refunds(),
        charges: save_items(
            hold.charges().iter().map(|charge| save_charge(holds, hold, charge, &positions)),
        ),
        log_names: save_items(hold.log_names().iter().map(Name::as_str)),
    }))
}

/// For each token bucket's track, the sorted positions of the least debts of its live holds.
fn live_positions(holds: &Holds) -> BTreeMap<u16, Vec<Position>> {
    let mut positions: BTreeMap<u16, Vec<Position>> = BTreeMap::new();
    for charge in holds.in_order_of_ids().flat_map(Hold::charges) {
        if let (Some(position), Some(_)) = (charge.detail.position(), holds.least(charge)) {
            positions.entry(charge.track).or_default().push(position);
        }
    }
    positions.values_mut().for_each(|positions| positions.sort_unstable());
    positions
}

fn save_charge(
    holds: &Holds,
    hold: &Hold,
    charge: &Charge,
    positions: &BTreeMap<u16, Vec<Position>>,
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
    SavedCharge { state, stamp_us, units, limit, by_default, shadow, detail }
}

/// A charge on a token bucket, with the least debt to store.
struct Least {
    track: u16,
    older: u32,
    owed: u128,
    of: PlaceOfCharge,
}

/// The holds, if any, and a track for each state that they were charged on. Takes time and memory
/// in proportion to the bytes, except for sorting.
pub fn load_holds(saved: &[u8], states: &[State]) -> Result<Option<Holds>, DecodeError> {
    let mut holds = Holds::default();
    let (mut leasts, mut last_in_queue) = (Vec::new(), Vec::new());
    let mut row: Row = 0;
    let loaded = load_items(saved, MOST_HOLDS, HOLDS, |saved: SavedHold<'_>| {
        within((1..=MAX_ID).contains(&saved.id.len()), "the id of a hold")?;
        within(saved.end_us <= MAX_TIME_US.saturating_add(MAX_PERIOD_US), "a time")?;
        let mut index: u16 = 0;
        let charges =
            load_items(&saved.charges, MOST_CHARGES, "charges", |charge: SavedCharge| {
                let track = track_of(&charge, states, &mut holds)?;
                let of = PlaceOfCharge { row, index };
                match charge.detail {
                    SavedDetail::Plain => {}
                    SavedDetail::Log { window_us } => check_window(window_us)?,
                    SavedDetail::Least { older, owed } => {
                        within(owed <= MOST_OWED, "a debt")?;
                        leasts.push(Least { track, older, owed, of });
                    }
                    SavedDetail::Turn { is_last: true, .. } => last_in_queue.push((track, row)),
                    SavedDetail::Turn { is_last: false, .. } => {}
                }
                index = index.saturating_add(1);
                load_charge(&charge, track)
            })?;
        within(each_on_its_own_state(&charges), "a charge")?;
        let named =
            |text: &str| Name::new(text.as_bytes()).ok_or(DecodeError::OutOfRange("a name"));
        let log_names = load_items(&saved.log_names, MOST_CHARGES, "names", named)?;
        let request = HoldRequest { id: saved.id, end_us: saved.end_us, refund: saved.refund };
        row = row.saturating_add(1);
        Ok(Hold::new(request, charges, log_names))
    })?;
    within(holds.fill(loaded), "the id of a hold")?;
    leasts.sort_by_key(|least| (least.track, least.older));
    for least in leasts {
        within(holds.set_least(least.of, least.owed), "a debt")?;
    }
    holds.set_last_in_queues(&last_in_queue);
    Ok((!holds.is_empty()).then_some(holds))
}

/// True if each charge of a hold is on a different state.
fn each_on_its_own_state(charges: &[Charge]) -> bool {
    let mut tracks: Vec<u16> = charges.iter().map(|charge| charge.track).collect();
    tracks.retain(|&track| track != NO_TRACK);
    tracks.sort_unstable();
    tracks.windows(2).all(|pair| pair.first() != pair.last())
}

const HOLDS: &str = "a number of holds";
/// The most charges of a hold, and the most names of its log rules.
const MOST_CHARGES: usize = 1_000;
/// The largest debt, in fractions of a unit.
const MOST_OWED: u128 = 1 << 80;

/// The track of a charge's state, created if missing.
fn track_of(charge: &SavedCharge, states: &[State], holds: &mut Holds) -> Result<u16, DecodeError> {
    let Some(index) = charge.state else {
        within(matches!(charge.detail, SavedDetail::Plain), "a charge")?;
        return Ok(NO_TRACK);
    };
    let state = states.get(index as usize).ok_or(DecodeError::OutOfRange("a state"))?;
    let fits = match (state.meter(), &charge.detail) {
        (Meter::Debt(_), SavedDetail::Log { .. }) => false,
        (Meter::Debt(debt), SavedDetail::Turn { .. }) => debt.is_leaky(),
        (Meter::Debt(debt), SavedDetail::Least { .. }) => !debt.is_leaky(),
        (Meter::Debt(debt), SavedDetail::Plain) => !debt.is_leaky() && charge.units == 0,
        (Meter::Log(_), detail) => matches!(detail, SavedDetail::Log { .. }),
        (
            Meter::Window(_)
            | Meter::Fixed(_)
            | Meter::FixedWithPast(_)
            | Meter::Interval(_)
            | Meter::Slots(_),
            detail,
        ) => matches!(detail, SavedDetail::Plain),
    };
    within(fits, "a charge")?;
    holds.track_for(index as usize, state.meter()).ok_or(DecodeError::OutOfRange(HOLDS))
}

fn load_charge(charge: &SavedCharge, track: u16) -> Result<Charge, DecodeError> {
    let &SavedCharge { stamp_us, units, limit, by_default, shadow, ref detail, state: _ } = charge;
    check_time(stamp_us)?;
    check_units(units)?;
    check_units(limit)?;
    let detail = match *detail {
        SavedDetail::Plain | SavedDetail::Least { .. } => Detail::least(None),
        SavedDetail::Log { window_us } => Detail::window(window_us),
        SavedDetail::Turn { ms, .. } => Detail::turn(ms.into()),
    };
    Ok(Charge { stamp_us, units, limit, detail, track, by_default, shadow })
}
