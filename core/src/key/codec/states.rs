//! Saves and loads states, and tests every bound.

use super::error::DecodeError;
use super::form::{UNKNOWN_KIND, each_item, load_items, put, save_items, take, within};
use crate::algorithm::debt::{BurstOrQueue, Debt};
use crate::algorithm::fixed::{Anchor, Fixed, FixedWithPast, Past};
use crate::algorithm::interval::Interval;
use crate::algorithm::log::Log;
use crate::algorithm::meter::Meter;
use crate::algorithm::open_window::OpenWindow;
use crate::algorithm::series::Series;
use crate::algorithm::series::needs::{MAX_RETAINED_UNITS, MOST_PAST, Needs, PastNeeds};
use crate::algorithm::state::State;
use crate::algorithm::uint48::Uint48;
use crate::algorithm::window::Window;
use crate::rule::{
    MAX_KEEP, MAX_PERIOD_US, MAX_RES, MAX_TIME_US, MAX_TZ_MIN, MAX_UNITS, MS_US, Name, SECOND_US,
};

/// The kinds of states.
pub const LOG: u32 = 0;
pub const WINDOW: u32 = 1;
pub const FIXED: u32 = 2;
pub const DEBT: u32 = 3;
pub const INTERVAL: u32 = 4;
pub const SLOTS: u32 = 5;

/// A [`Needs`]: its window, its units, and whether admitted requests are counted alone.
type SavedNeeds = (u64, u32, bool);

pub fn save_states(states: &[State]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for state in states {
        put(&mut bytes, &state.name().as_ref().map(Name::as_str));
        save_meter(state.meter(), &mut bytes);
    }
    bytes
}

/// The states of a limiter. They are not counted first, because the list takes less memory than the
/// states' own allocations.
pub fn load_states(mut saved: &[u8]) -> Result<Vec<State>, DecodeError> {
    let mut states = Vec::new();
    while !saved.is_empty() {
        let state = load_state(&mut saved)?;
        states.try_reserve(1).map_err(|_| DecodeError::NoMemory(states.len()))?;
        states.push(state);
    }
    states.shrink_to_fit();
    Ok(states)
}

fn load_state(from: &mut &[u8]) -> Result<State, DecodeError> {
    let name: Option<&str> = take(from)?;
    let meter = load_meter(from)?;
    let name = name.map(load_name).transpose()?;
    within(name.is_none() || !matches!(meter, Meter::Log(_)), "the name of a log")?;
    Ok(State::named(name.as_ref(), meter))
}

pub fn load_name(name: &str) -> Result<Name, DecodeError> {
    Name::new(name.as_bytes()).ok_or(DecodeError::OutOfRange("a name"))
}

/// Writes the kind of a state and its fields.
pub fn save_meter(meter: &Meter, to: &mut Vec<u8>) {
    match meter {
        Meter::Log(log) => {
            let past = log.past_needs().iter();
            let past =
                save_items(past.map(|past| (save_needs(past.needs.unpack()), past.until_us)));
            let admitted = save_entries(log.admitted().iter());
            let charged = save_entries(log.charged().into_iter().flat_map(Series::iter));
            put(to, &(LOG, save_needs(log.needs()), past, admitted, charged));
        }
        Meter::Window(window) => {
            let counts = save_items(window.counts());
            put(to, &(WINDOW, window.last_us(), window.period_us(), window.limit(), counts));
        }
        Meter::Fixed(fixed) => save_fixed(fixed, None, to),
        Meter::FixedWithPast(kept) => {
            let windows = save_items(kept.past.iter().map(|past| (past.start_us, past.count)));
            save_fixed(&kept.fixed, Some((kept.keep, windows)), to);
        }
        Meter::Debt(debt) => {
            let Debt { last_us, period, rem, units, limit, burst_or_queue } = **debt;
            let (burst_or_queue, leaky) = (burst_or_queue.units(), debt.is_leaky());
            put(to, &(DEBT, last_us, period.get(), rem.get(), units, limit, burst_or_queue, leaky));
        }
        Meter::Interval(interval) => {
            let Interval { window, used, limit, burst } = **interval;
            let start_us = window.start_us().cast_unsigned();
            let (last_us, period_us) = (window.last_us(), window.period_us());
            put(to, &(INTERVAL, last_us, period_us, start_us, used, limit, burst));
        }
        Meter::Slots(limit) => put(to, &(SLOTS, limit)),
    }
}

fn save_fixed(fixed: &Fixed, past: Option<(u16, Vec<u8>)>, to: &mut Vec<u8>) {
    put(to, &(FIXED, fixed.last_us(), fixed.period_us(), fixed.start_us(), fixed.count()));
    put(to, &(fixed.limit, fixed.anchor.tz_min(), fixed.anchor.code(), past));
}

/// Takes the kind of a state and its fields.
pub fn load_meter(from: &mut &[u8]) -> Result<Meter, DecodeError> {
    match take(from)? {
        LOG => load_log(from),
        WINDOW => {
            let (last_us, period_us, limit, counts) = take(from)?;
            check_time(last_us)?;
            check_period(period_us)?;
            check_units(limit)?;
            const COUNTERS: &str = "a number of counters";
            let most = usize::from(MAX_RES).saturating_add(1);
            let counts: Vec<u64> = load_items(counts, most, COUNTERS, Ok)?;
            within(counts.len() >= 2, COUNTERS)?;
            Ok(Meter::Window(Window::new(last_us, period_us, limit, &counts)))
        }
        FIXED => load_fixed(from),
        DEBT => {
            let (last_us, period_us, rem, units, limit, burst_or_queue, leaky) = take(from)?;
            check_time(last_us)?;
            check_period(period_us)?;
            check_units(limit)?;
            check_units(burst_or_queue)?;
            within(limit > 0, "a limit")?;
            within(rem < period_us, "a remainder")?;
            let (period, rem) = (Uint48::saturating(period_us), Uint48::saturating(rem));
            let burst_or_queue = BurstOrQueue::new(burst_or_queue, leaky);
            Ok(Meter::Debt(Box::new(Debt { last_us, period, rem, units, limit, burst_or_queue })))
        }
        INTERVAL => {
            let (last_us, period_us, start_us, used, limit, burst): (_, _, u64, _, _, _) =
                take(from)?;
            check_time(start_us)?;
            check_units(limit)?;
            check_units(burst)?;
            let window = load_open_window(last_us, period_us, start_us.cast_signed())?;
            Ok(Meter::Interval(Box::new(Interval { window, used, limit, burst })))
        }
        SLOTS => {
            let limit = take(from)?;
            check_units(limit)?;
            Ok(Meter::Slots(limit))
        }
        _ => Err(UNKNOWN_KIND),
    }
}

fn load_fixed(from: &mut &[u8]) -> Result<Meter, DecodeError> {
    let (last_us, period_us, start_us, count, limit) = take(from)?;
    let (tz_min, calendar, past): (_, _, Option<(u16, &[u8])>) = take(from)?;
    check_units(limit)?;
    within((-MAX_TZ_MIN..=MAX_TZ_MIN).contains(&tz_min), "a time zone")?;
    within(calendar <= Anchor::MAX_CODE, "a calendar")?;
    let window = load_open_window(last_us, period_us, start_us)?;
    let fixed = Fixed::new(window, count, Anchor::of_code(calendar, tz_min), limit);
    let Some((keep, windows)) = past else { return Ok(Meter::Fixed(Box::new(fixed))) };
    within(keep <= MAX_KEEP, "a number of past windows")?;
    let what = "the past windows' number";
    let past = load_items(windows, keep.into(), what, |(start_us, count)| {
        check_start(start_us)?;
        Ok(Past { start_us, count })
    })?;
    Ok(Meter::FixedWithPast(Box::new(FixedWithPast { fixed, keep, past: past.into() })))
}

/// A window may start before the epoch, but not beyond the bound.
fn check_start(start_us: i64) -> Result<(), DecodeError> {
    within(start_us.unsigned_abs() <= MAX_TIME_US, "a window's start")
}

/// Refuses a window whose last count lies outside it.
fn load_open_window(
    last_us: u64,
    period_us: u64,
    start_us: i64,
) -> Result<OpenWindow, DecodeError> {
    check_time(last_us)?;
    check_period(period_us)?;
    check_start(start_us)?;
    OpenWindow::saved(period_us, start_us, last_us)
        .ok_or(DecodeError::OutOfRange("a window's start"))
}

fn load_log(from: &mut &[u8]) -> Result<Meter, DecodeError> {
    let (needs, past, admitted, charged) = take(from)?;
    let needs = load_needs(needs)?;
    let past = load_items(past, MOST_PAST, "a number of needs", |(needs, until_us)| {
        within(until_us <= MAX_TIME_US.saturating_add(MAX_WINDOW_US), "a time")?;
        Ok(PastNeeds { needs: load_needs(needs)?.pack(), until_us })
    })?;
    Ok(Meter::Log(Log::of(load_series(admitted)?, load_series(charged)?, needs, past)))
}

const fn save_needs(Needs { window_us, units, admitted }: Needs) -> SavedNeeds {
    (window_us, units, admitted)
}

fn load_needs((window_us, units, admitted): SavedNeeds) -> Result<Needs, DecodeError> {
    check_window(window_us)?;
    check_units(units)?;
    Ok(Needs { window_us, units, admitted })
}

/// Each entry is saved as the time since the entry before it, and its units.
fn save_entries(entries: impl Iterator<Item = (u64, u32)>) -> Vec<u8> {
    let mut before_us = 0u64;
    save_items(entries.map(|(time_us, units)| {
        let gap_us = time_us.saturating_sub(before_us);
        before_us = time_us;
        (gap_us, units)
    }))
}

/// A first pass counts the entries, so that a number too large for memory is refused.
fn load_series(bytes: &[u8]) -> Result<Series, DecodeError> {
    let (mut entries, mut oldest_us, mut newest_us) = (0_u32, None, 0);
    let (mut total, mut weighted) = (0_u64, false);
    each_entry(bytes, |time_us, units| {
        total = total.saturating_add(u64::from(units));
        check_time(time_us)?;
        within(units > 0 && total <= MAX_RETAINED_UNITS, "an entry's units")?;
        entries = entries.saturating_add(1);
        oldest_us.get_or_insert(time_us);
        newest_us = time_us;
        weighted |= units != 1;
        Ok(())
    })?;
    let span_us = newest_us.saturating_sub(oldest_us.unwrap_or(newest_us));
    let mut series = Series::with_room(entries, span_us, weighted)
        .ok_or(DecodeError::NoMemory(entries as usize))?;
    each_entry(bytes, |time_us, units| {
        series.push(time_us, units);
        Ok(())
    })?;
    Ok(series)
}

/// Passes each entry's time and units to a function.
fn each_entry(
    bytes: &[u8],
    mut show: impl FnMut(u64, u32) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut time_us = 0_u64;
    each_item(bytes, |(gap_us, units): (u64, u32)| {
        time_us = time_us.saturating_add(gap_us);
        show(time_us, units)
    })
}

/// When a hold or a history can end.
pub const MAX_END_US: u64 = MAX_TIME_US.saturating_add(MAX_PERIOD_US);

pub fn check_time(us: u64) -> Result<(), DecodeError> {
    within(us <= MAX_TIME_US, "a time")
}

fn check_period(us: u64) -> Result<(), DecodeError> {
    within((MS_US..=MAX_PERIOD_US).contains(&us), "a period")
}

pub fn check_units(units: u32) -> Result<(), DecodeError> {
    within(units <= MAX_UNITS, "a limit")
}

/// The longest window of a log, rounded up as the log stores it.
const MAX_WINDOW_US: u64 = MAX_PERIOD_US.saturating_add(SECOND_US);

pub fn check_window(us: u64) -> Result<(), DecodeError> {
    within(us <= MAX_WINDOW_US, "a window")
}
