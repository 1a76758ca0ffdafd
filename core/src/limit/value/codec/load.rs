//! Loads a limiter, and tests every bound.

use super::error::DecodeError;
use super::form::{
    SavedAccess, SavedBans, SavedEntry, SavedHistory, SavedMeter, SavedNeeds, SavedPastNeeds,
    SavedState, each_item, load_items, load_text, within,
};
use crate::limit::algorithm::debt::{BurstOrQueue, Debt};
use crate::limit::algorithm::fixed::{Anchor, Fixed, FixedWithPast, Past};
use crate::limit::algorithm::interval::Interval;
use crate::limit::algorithm::log::Log;
use crate::limit::algorithm::meter::Meter;
use crate::limit::algorithm::open_window::OpenWindow;
use crate::limit::algorithm::state::State;
use crate::limit::algorithm::uint48::Uint48;
use crate::limit::algorithm::window::Window;
use crate::limit::series::needs::{MAX_RETAINED_UNITS, MOST_PAST, Needs, PastNeeds};
use crate::limit::series::{Extent, Series};
use crate::limit::value::access::{Access, AccessEntry};
use crate::limit::value::bans::{BanCount, MAX_FORGOTTEN_US, MAX_SPAN_US};
use crate::limit::value::check::Verdict;
use crate::limit::value::history::{Entry, History};
use crate::rule::{
    MAX_KEEP, MAX_PERIOD_US, MAX_RES, MAX_TIME_US, MAX_TZ_MIN, MAX_UNITS, MS_US, Name, SECOND_US,
};
use std::collections::VecDeque;
use std::num::NonZeroU64;

pub fn check_time(us: u64) -> Result<(), DecodeError> {
    within(us <= MAX_TIME_US, "a time")
}

fn check_period(us: u64) -> Result<(), DecodeError> {
    within((MS_US..=MAX_PERIOD_US).contains(&us), "a period")
}

pub fn check_units(units: u32) -> Result<(), DecodeError> {
    within(units <= MAX_UNITS, "a limit")
}

/// The states of a limiter. They are not counted first, because the list takes less memory than the
/// states' own allocations.
pub fn load_states(saved: &[u8]) -> Result<Vec<State>, DecodeError> {
    let mut states = Vec::new();
    each_item(saved, |saved: SavedState<'_>| {
        let state = load_state(saved)?;
        states.try_reserve(1).map_err(|_| DecodeError::NoMemory(states.len()))?;
        states.push(state);
        Ok(())
    })?;
    states.shrink_to_fit();
    Ok(states)
}

pub fn load_history(saved: &SavedHistory<'_>) -> Result<History, DecodeError> {
    let latest_us = MAX_TIME_US.saturating_add(MAX_PERIOD_US);
    const ENTRIES: &str = "the length of a history";
    let keep = saved.keep as usize;
    within(keep > 0, ENTRIES)?;
    within(saved.until_us <= latest_us, "a time")?;
    let entries: VecDeque<Entry> =
        load_items(&saved.entries, keep, ENTRIES, |entry: SavedEntry<'_>| {
            check_time(entry.time_us)?;
            within(entry.cost <= MAX_UNITS, "a cost")?;
            let verdict = match entry.verdict {
                0 => Verdict::Allowed,
                1 => Verdict::Limited,
                2 => Verdict::Blocked,
                _ => return Err(DecodeError::OutOfRange("a verdict")),
            };
            let meta = entry.meta.map(load_text).transpose()?;
            Ok(Entry { time_us: entry.time_us, cost: entry.cost, verdict, meta })
        })?
        .into();
    within(!entries.is_empty(), ENTRIES)?;
    Ok(History { keep: saved.keep, until_us: saved.until_us, entries })
}

pub fn load_access(saved: SavedAccess<'_>) -> Result<AccessEntry, DecodeError> {
    Ok(AccessEntry {
        kind: if saved.exempt { Access::Exempt } else { Access::Block },
        until_us: saved.until_us,
        ban_us: saved.ban_us.and_then(NonZeroU64::new),
        reason: load_text(saved.reason)?,
    })
}

pub fn load_bans(saved: SavedBans) -> Result<BanCount, DecodeError> {
    let SavedBans { bans, forgotten_us, span_us } = saved;
    within(bans > 0, "a number of bans")?;
    within(forgotten_us <= MAX_FORGOTTEN_US, "a time")?;
    within(span_us <= MAX_SPAN_US, "the span of bans")?;
    Ok(BanCount { bans, forgotten_us, span_us })
}

fn load_state(saved: SavedState<'_>) -> Result<State, DecodeError> {
    let meter = load_meter(saved.meter)?;
    let named = |text: &str| Name::new(text.as_bytes()).ok_or(DecodeError::OutOfRange("a name"));
    let name = saved.name.map(named).transpose()?;
    within(name.is_none() || !matches!(meter, Meter::Log(_)), "the name of a log")?;
    Ok(State::named(name.as_ref(), meter))
}

pub fn load_meter(saved: SavedMeter<'_>) -> Result<Meter, DecodeError> {
    match saved {
        SavedMeter::Log { needs, past, admitted, charged } => {
            load_log(load_needs(needs)?, &past, &admitted, &charged)
        }
        SavedMeter::Window { last_us, period_us, limit, counts } => {
            check_time(last_us)?;
            check_period(period_us)?;
            check_units(limit)?;
            const COUNTERS: &str = "a number of counters";
            let most = usize::from(MAX_RES).saturating_add(1);
            let counts: Vec<u64> = load_items(&counts, most, COUNTERS, Ok)?;
            within(counts.len() >= 2, COUNTERS)?;
            Ok(Meter::Window(Window::new(last_us, period_us, limit, &counts)))
        }
        SavedMeter::Fixed {
            last_us,
            period_us,
            start_us,
            count,
            limit,
            tz_min,
            calendar,
            past,
        } => {
            check_units(limit)?;
            within((-MAX_TZ_MIN..=MAX_TZ_MIN).contains(&tz_min), "a time zone")?;
            within(calendar <= Anchor::MAX_CODE, "a calendar")?;
            let window = load_open_window(last_us, period_us, start_us)?;
            let fixed = Fixed::new(window, count, Anchor::of_code(calendar, tz_min), limit);
            let Some(saved) = past else { return Ok(Meter::Fixed(Box::new(fixed))) };
            within(saved.keep <= MAX_KEEP, "a number of past windows")?;
            let (most, what) = (usize::from(saved.keep), "the past windows' number");
            let past: Vec<Past> = load_items(&saved.windows, most, what, |(start_us, count)| {
                check_start(start_us)?;
                Ok(Past { start_us, count })
            })?;
            Ok(Meter::FixedWithPast(Box::new(FixedWithPast {
                fixed,
                keep: saved.keep,
                past: past.into(),
            })))
        }
        SavedMeter::Debt { last_us, period_us, rem, units, limit, burst_or_queue, leaky } => {
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
        SavedMeter::Interval { last_us, period_us, start_us, used, limit, burst } => {
            check_time(start_us)?;
            check_units(limit)?;
            check_units(burst)?;
            let window = load_open_window(last_us, period_us, start_us.cast_signed())?;
            let interval = Interval { window, used, limit, burst };
            Ok(Meter::Interval(Box::new(interval)))
        }
        SavedMeter::Slots { limit } => {
            check_units(limit)?;
            Ok(Meter::Slots(limit))
        }
    }
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

fn load_log(
    needs: Needs,
    past: &[u8],
    admitted: &[u8],
    charged: &[u8],
) -> Result<Meter, DecodeError> {
    let past = load_items(past, MOST_PAST, "a number of needs", |past: SavedPastNeeds| {
        within(past.until_us <= MAX_TIME_US.saturating_add(MAX_WINDOW_US), "a time")?;
        Ok(PastNeeds { needs: load_needs(past.needs)?.pack(), until_us: past.until_us })
    })?;
    Ok(Meter::Log(Log::of(load_series(admitted)?, load_series(charged)?, needs, past)))
}

fn load_needs(SavedNeeds { window_us, units, admitted }: SavedNeeds) -> Result<Needs, DecodeError> {
    check_window(window_us)?;
    check_units(units)?;
    Ok(Needs { window_us, units, admitted })
}

pub fn check_window(us: u64) -> Result<(), DecodeError> {
    within(us <= MAX_WINDOW_US, "a window")
}

/// The longest window of a log, rounded up as the log stores it.
const MAX_WINDOW_US: u64 = MAX_PERIOD_US.saturating_add(SECOND_US);

/// A first pass counts the entries, so that a number too large for memory is refused.
fn load_series(bytes: &[u8]) -> Result<Series, DecodeError> {
    let mut extent = Extent::default();
    let mut total = 0_u64;
    each_entry(bytes, |time_us, units| {
        total = total.saturating_add(u64::from(units));
        check_time(time_us)?;
        within(units > 0 && total <= MAX_RETAINED_UNITS, "an entry's units")?;
        if extent.entries == 0 {
            extent.oldest_us = time_us;
        }
        extent.entries = extent.entries.saturating_add(1);
        extent.newest_us = time_us;
        extent.weighted |= units != 1;
        Ok(())
    })?;
    let mut series =
        Series::with_room(extent).ok_or(DecodeError::NoMemory(extent.entries as usize))?;
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
