//! Builds hostile payloads for tests: arbitrary bytes as one part of an otherwise valid payload.
//! Also asserts the bounds of every part of a limiter that was loaded from such a payload.

use super::holds::SavedCharge;
use crate::algorithm::Saved;
use crate::algorithm::bucket::Interval;
use crate::algorithm::debt::Debt;
use crate::algorithm::fixed::Fixed;
use crate::algorithm::log::Log;
use crate::algorithm::log::series::Series;
use crate::algorithm::log::series::needs::{MAX_RETAINED_UNITS, MOST_PAST};
use crate::algorithm::meter::Meter;
use crate::algorithm::slots::Slots;
use crate::algorithm::window::Window;
use crate::key::limiter::Limiter;
use crate::rule::{MAX_KEEP, MAX_RES, MINUTE_US};
use crate::saved::WITHOUT_AUTHOR;
use crate::saved::form::{SavedDetail, put, save_items};
use alloc::vec::Vec;

/// The codes of states.
pub(crate) const LOG: u32 = Log::CODE;
pub(crate) const WINDOW: u32 = Window::CODE;
pub(crate) const FIXED: u32 = Fixed::CODE;
pub(crate) const DEBT: u32 = Debt::CODE;
pub(crate) const INTERVAL: u32 = Interval::CODE;
pub(crate) const SLOTS: u32 = Slots::CODE;

/// 2023-11-15 00:00 UTC.
const DAY_US: u64 = 1_700_006_400_000_000;

/// A list in a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    States,
    Counts,
    PastWindows,
    Admitted,
    ChargedDenials,
    PastNeeds,
    Entries,
    Holds,
    Charges,
    LogNames,
}

const PARTS: [Part; 10] = [
    Part::States,
    Part::Counts,
    Part::PastWindows,
    Part::Admitted,
    Part::ChargedDenials,
    Part::PastNeeds,
    Part::Entries,
    Part::Holds,
    Part::Charges,
    Part::LogNames,
];

/// A payload with a state of each kind, a hold, a history and a count of bans. `bytes` stands
/// in place of the list that `number` chooses.
#[must_use]
pub fn wrap(number: u8, bytes: &[u8]) -> Vec<u8> {
    let chosen = PARTS.get(usize::from(number) % PARTS.len());
    let list = |part: Part, others: Vec<u8>| {
        if chosen == Some(&part) { bytes.to_vec() } else { others }
    };
    let needs = (MINUTE_US, 9_u32, true);
    let limit = 9_u32;
    let past = list(Part::PastNeeds, save_items([(needs, DAY_US)]));
    let admitted = list(Part::Admitted, save_items([(DAY_US, 1_u32), (5, 2)]));
    let charged = list(Part::ChargedDenials, save_items([(DAY_US, 1_u32)]));
    let counts = list(Part::Counts, save_items([3_u64, 4]));
    let windows = list(Part::PastWindows, save_items([(0_i64, 3_u64)]));
    let past_windows = Some((MAX_KEEP, windows));
    let (start_us, count, tz_min, calendar) = (DAY_US.cast_signed(), 3_u64, 0_i16, 0_u8);
    let debt = |leaky: bool| (DEBT, DAY_US, MINUTE_US, 0_u64, 3_u32, limit, 9_u32, leaky);
    let meters = [
        save_items([(LOG, needs, past, admitted, charged)]),
        save_items([(WINDOW, DAY_US, MINUTE_US, limit, counts)]),
        save_items([(
            (FIXED, DAY_US, MINUTE_US, start_us, count),
            (limit, tz_min, calendar, past_windows),
        )]),
        save_items([debt(false)]),
        save_items([debt(true)]),
        save_items([(INTERVAL, DAY_US, MINUTE_US, DAY_US, 3_u32, limit, 9_u32)]),
        save_items([(SLOTS, limit)]),
    ];
    let states = meters.map(|meter| [save_items([NO_NAME]), meter].concat()).concat();
    let charges = list(Part::Charges, save_items((0..7).map(charge)));
    let log_names = list(Part::LogNames, Vec::new());
    let (id, end_us, refund) = (&b"a"[..], DAY_US + MINUTE_US, true);
    let holds = save_items([(id, end_us, MINUTE_US, refund, charges, log_names)]);
    let history = (128_u32, DAY_US, list(Part::Entries, vec![0, 1, 0, 0]));
    let bans = (1_u32, DAY_US, MINUTE_US);
    let (states, holds) = (list(Part::States, states), list(Part::Holds, holds));
    let mut payload = vec![WITHOUT_AUTHOR];
    put(&mut payload, &(states, NOTHING, Some(history), holds, Some(bans)));
    payload
}

/// The name of an unnamed state.
pub const NO_NAME: Option<&str> = None;
/// A part that a limiter does not have.
pub const NOTHING: Option<u8> = None;

/// The charge of a hold on one of the states above.
fn charge(state: u32) -> SavedCharge {
    let detail = match state {
        0 => SavedDetail::Log { window_us: MINUTE_US },
        3 => SavedDetail::Least { older: 0, owed: 0 },
        4 => SavedDetail::Turn { ms: 0, is_last: true },
        _ => SavedDetail::Plain,
    };
    (Some(state), DAY_US, 1, 9, true, false, detail)
}

/// Asserts that each state's lists are within their bounds.
pub fn assert_bounded(limiter: &Limiter) {
    for state in limiter.states() {
        match state.meter() {
            Meter::Log(log) => {
                let series = [Some(log.admitted()), log.charged()].into_iter().flatten();
                assert!(series.map(Series::units).all(|units| units <= MAX_RETAINED_UNITS));
                assert!(log.past_needs().len() <= MOST_PAST);
            }
            Meter::Window(window) => assert!(window.counts().count() <= usize::from(MAX_RES) + 1),
            Meter::FixedWithPast(kept) => {
                assert!(kept.keep <= MAX_KEEP && kept.past.len() <= usize::from(kept.keep));
            }
            Meter::Fixed(_) | Meter::Interval(_) | Meter::Debt(_) | Meter::Slots(_) => {}
        }
    }
    if let Some(history) = limiter.history() {
        assert!(history.entries.len() <= history.keep as usize);
    }
}
