//! Builds hostile payloads for tests: arbitrary bytes as one part of an otherwise valid payload.
//! Also asserts the bounds of every part of a limiter loaded from one.

use super::error::{DecodeError, VERSION};
use super::form::{
    Bytes, SavedBans, SavedCharge, SavedDetail, SavedHistory, SavedHold, SavedLimiter, SavedMeter,
    SavedNeeds, SavedPast, SavedPastNeeds, SavedState, each_item, put, save_items,
};
use super::save::save_meter;
use crate::limit::algorithm::meter::Meter;
use crate::limit::series::needs::{MAX_RETAINED_UNITS, MOST_PAST};
use crate::limit::value::limiter::Limiter;
use crate::rule::{MAX_KEEP, MAX_RES, MINUTE_US};

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

/// A payload with a state of each kind, a hold, a history and a count of bans, in which the list
/// with this number is replaced by these bytes.
#[must_use]
pub fn wrap(number: u8, bytes: &[u8]) -> Vec<u8> {
    let chosen = PARTS.get(usize::from(number) % PARTS.len());
    let list = |part: Part, others: Bytes<'static>| {
        if chosen == Some(&part) { Bytes::from(bytes) } else { others }
    };
    let needs = || SavedNeeds { window_us: MINUTE_US, units: 9, admitted: true };
    let limit = 9;
    let meters = [
        SavedMeter::Log {
            needs: needs(),
            past: list(
                Part::PastNeeds,
                save_items([SavedPastNeeds { needs: needs(), until_us: DAY_US }].into_iter()),
            ),
            admitted: list(Part::Admitted, save_items([(DAY_US, 1_u32), (5, 2)].into_iter())),
            charged: list(Part::ChargedDenials, save_items([(DAY_US, 1_u32)].into_iter())),
        },
        SavedMeter::Window {
            last_us: DAY_US,
            period_us: MINUTE_US,
            limit,
            counts: list(Part::Counts, save_items([3_u64, 4].into_iter())),
        },
        SavedMeter::Fixed {
            last_us: DAY_US,
            period_us: MINUTE_US,
            start_us: DAY_US.cast_signed(),
            count: 3,
            limit,
            tz_min: 0,
            calendar: 0,
            past: Some(SavedPast {
                keep: MAX_KEEP,
                windows: list(Part::PastWindows, save_items([(0_i64, 3_u64)].into_iter())),
            }),
        },
        debt(false),
        debt(true),
        SavedMeter::Interval {
            last_us: DAY_US,
            period_us: MINUTE_US,
            start_us: DAY_US,
            used: 3,
            limit,
            burst: limit,
        },
        SavedMeter::Slots { limit },
    ];
    let states = save_items(meters.into_iter().map(|meter| SavedState { name: None, meter }));
    let hold = SavedHold {
        id: b"a",
        end_us: DAY_US + MINUTE_US,
        refund: true,
        charges: list(Part::Charges, save_items((0..7).map(charge))),
        log_names: list(Part::LogNames, Bytes::default()),
    };
    let entries = list(Part::Entries, Bytes::from(&[0, 1, 0, 0][..]));
    let limiter = SavedLimiter {
        states: list(Part::States, states),
        access: None,
        history: Some(SavedHistory { keep: 128, until_us: DAY_US, entries }),
        holds: list(Part::Holds, save_items(std::iter::once(hold))),
        bans: Some(SavedBans { bans: 1, forgotten_us: DAY_US, span_us: MINUTE_US }),
    };
    let mut payload = vec![VERSION];
    put(&mut payload, &limiter);
    payload
}

const fn debt(leaky: bool) -> SavedMeter<'static> {
    let (period_us, limit) = (MINUTE_US, 9);
    SavedMeter::Debt {
        last_us: DAY_US,
        period_us,
        rem: 0,
        units: 3,
        limit,
        burst_or_queue: 9,
        leaky,
    }
}

/// The charge of a hold on one of the states above.
fn charge(state: u32) -> SavedCharge {
    let detail = match state {
        0 => SavedDetail::Log { window_us: MINUTE_US },
        3 => SavedDetail::Least { older: 0, owed: 0 },
        4 => SavedDetail::Turn { ms: 0, is_last: true },
        _ => SavedDetail::Plain,
    };
    let (stamp_us, units, limit) = (DAY_US, 1, 9);
    SavedCharge {
        state: Some(state),
        stamp_us,
        units,
        limit,
        by_default: true,
        shadow: false,
        detail,
    }
}

/// Asserts that each state's lists are within their bounds.
pub fn assert_bounded(limiter: &Limiter) {
    for state in limiter.states() {
        let mut count = 0;
        let counted = match save_meter(state.meter()) {
            SavedMeter::Log { past, admitted, charged, .. } => {
                assert!(
                    [admitted, charged].iter().all(|series| units(series) <= MAX_RETAINED_UNITS)
                );
                each_item(&past, tally::<SavedPastNeeds>(&mut count))
            }
            SavedMeter::Window { counts, .. } => each_item(&counts, tally::<u64>(&mut count)),
            SavedMeter::Fixed { past: Some(SavedPast { keep, windows }), .. } => {
                assert!(keep <= MAX_KEEP);
                each_item(&windows, tally::<(i64, u64)>(&mut count))
            }
            SavedMeter::Fixed { past: None, .. }
            | SavedMeter::Debt { .. }
            | SavedMeter::Interval { .. }
            | SavedMeter::Slots { .. } => Ok(()),
        };
        assert_eq!(counted, Ok(()));
        assert!(count <= most_items(state.meter()), "{count} items in {:?}", state.meter());
    }
    if let Some(history) = limiter.history() {
        assert!(history.entries.len() <= history.keep as usize);
    }
}

/// The most counters, past windows or past needs of a state.
fn most_items(meter: &Meter) -> usize {
    match meter {
        Meter::Log(_) => MOST_PAST,
        Meter::Window(_) => usize::from(MAX_RES) + 1,
        Meter::FixedWithPast(kept) => kept.keep.into(),
        Meter::Fixed(_) | Meter::Interval(_) | Meter::Debt(_) | Meter::Slots(_) => 0,
    }
}

/// Counts items.
fn tally<T>(count: &mut usize) -> impl FnMut(T) -> Result<(), DecodeError> {
    |_| {
        *count += 1;
        Ok(())
    }
}

/// The units of a saved log's entries.
fn units(entries: &[u8]) -> u64 {
    let mut sum = 0;
    let added = each_item(entries, |(_, units): (u64, u32)| {
        sum += u64::from(units);
        Ok::<(), DecodeError>(())
    });
    assert_eq!(added, Ok(()));
    sum
}
