//! The saved form of a limiter: one versioned payload.
//!
//! ```text
//! | version: 1 byte | bincode (standard: little endian, variable integers) |
//! ```
//!
//! What is saved is described here by types of its own, so that a change in
//! memory is no change on disk. A change of these types is a new version, with
//! a golden payload added to the tests; every version stays readable.
//!
//! Decoding is total: any byte string gives a limiter or an error. Repeated
//! parts (log entries, counters, past windows) are byte strings in the
//! payload, borrowed while reading. They are read twice: first their number,
//! then, in memory reserved for that number, they themselves. So decoding takes
//! the memory of the value that results, and a payload that asks for more than
//! there is gets an error.

use super::debt::{Debt, Room};
use super::fixed::{Anchor, Fixed, Kept, Past};
use super::interval::Interval;
use super::limiter::Limiter;
use super::log::Log;
use super::needs::{MOST_PAST, Needs, PastNeeds};
use super::overrule::{Override, OverrideKind};
use super::rule::{
    Calendar, MAX_KEEP, MAX_PERIOD_US, MAX_RES, MAX_TIME_US, MAX_TZ_MIN, MAX_UNITS, MS_US, Name,
    SECOND_US,
};
use super::ruling::Verdict;
use super::series::{Extent, Series};
use super::state::State;
use super::term::Term;
use super::trail::{Mark, Trail};
use super::uint48::Uint48;
use super::window::Window;
use bincode::error::DecodeError as DecodingError;
use bincode::{BorrowDecode, Encode, config};
use std::collections::VecDeque;
use std::fmt;

/// The states, and a block or an exemption.
const FIRST: u8 = 1;
/// A trail as well.
const WITH_TRAIL: u8 = 2;
/// Logs that know what is needed of them, and bans that know their length.
const WITH_NEEDS: u8 = 3;
const LATEST: u8 = WITH_NEEDS;

const CONFIG: config::Configuration = config::standard();

/// Why a payload is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    Empty,
    Version(u8),
    Malformed(&'static str),
    Trailing(usize),
    OutOfRange(&'static str),
    /// A limiter, or a state in it, that holds nothing.
    Idle,
    /// There is no memory for so many items.
    NoMemory(usize),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the payload is empty, expected a version byte"),
            Self::Version(version) => {
                write!(f, "the payload has version {version}, expected 1..{LATEST}")
            }
            Self::Malformed(why) => write!(f, "the payload cannot be read: {why}"),
            Self::Trailing(bytes) => write!(f, "{bytes} bytes are left over after the payload"),
            Self::OutOfRange(what) => write!(f, "{what} is out of range in the payload"),
            Self::Idle => f.write_str("the payload holds nothing, expected what was consumed"),
            Self::NoMemory(items) => write!(f, "no memory for the payload's {items} items"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Versions 1 and 2; in version 2 a `SavedTrail` follows.
#[derive(Encode, BorrowDecode)]
struct SavedLimiter<'a> {
    /// `SavedState`s, one after another.
    states: Bytes<'a>,
    overrule: Option<SavedOverride<'a>>,
}

/// Version 3.
#[derive(Encode, BorrowDecode)]
struct SavedLimiter3<'a> {
    /// `SavedState`s, one after another.
    states: Bytes<'a>,
    overrule: Option<SavedOverride<'a>>,
    /// How long a ban was to last, in microseconds.
    ban_us: Option<u64>,
    trail: Option<SavedTrail<'a>>,
}

#[derive(Encode, BorrowDecode)]
struct SavedTrail<'a> {
    keep: u32,
    until_us: u64,
    /// `SavedMark`s, oldest first.
    marks: Bytes<'a>,
}

#[derive(Encode, BorrowDecode)]
struct SavedMark<'a> {
    time_us: u64,
    cost: u32,
    /// 0 allowed, 1 limited, 2 blocked.
    verdict: u8,
    meta: Option<&'a [u8]>,
}

#[derive(Encode, BorrowDecode)]
struct SavedOverride<'a> {
    exempt: bool,
    until_us: Option<u64>,
    reason: &'a [u8],
}

#[derive(Encode, BorrowDecode)]
struct SavedState<'a> {
    name: Option<&'a str>,
    meter: SavedMeter<'a>,
}

#[derive(Encode, BorrowDecode)]
enum SavedMeter<'a> {
    /// A log of which the longest window is known, but not the largest limit:
    /// as versions 1 and 2 saved it.
    LogOfWindow {
        window_us: u64,
        /// Microseconds since the entry before, then units: first the admitted
        /// ones, then the charged denials.
        admitted: Bytes<'a>,
        charged: Bytes<'a>,
    },
    Window {
        last_us: u64,
        period_us: u64,
        limit: u32,
        /// Newest first.
        counts: Bytes<'a>,
    },
    Fixed {
        last_us: u64,
        period_us: u64,
        start_us: i64,
        count: u64,
        limit: u32,
        tz_min: i16,
        /// 0 epoch, 1 weeks, 2 months, 3 the first request.
        calendar: u8,
        past: Option<SavedPast<'a>>,
    },
    Debt {
        last_us: u64,
        period_us: u64,
        rem: u64,
        units: u32,
        limit: u32,
        room: u32,
        leaky: bool,
    },
    Interval {
        last_us: u64,
        period_us: u64,
        start_us: u64,
        used: u32,
        limit: u32,
        burst: u32,
    },
    /// From version 3 on.
    Log {
        /// Of the check that consumed last.
        needs: SavedNeeds,
        /// `SavedPastNeeds` of checks before it.
        past: Bytes<'a>,
        /// As of `LogOfWindow`.
        admitted: Bytes<'a>,
        charged: Bytes<'a>,
    },
}

#[derive(Encode, BorrowDecode)]
struct SavedNeeds {
    window_us: u64,
    units: u32,
    admitted: bool,
}

#[derive(Encode, BorrowDecode)]
struct SavedPastNeeds {
    needs: SavedNeeds,
    until_us: u64,
}

#[derive(Encode, BorrowDecode)]
struct SavedPast<'a> {
    keep: u16,
    /// Start and count, oldest first.
    windows: Bytes<'a>,
}

/// Items one after another, as a byte string with its length.
type Bytes<'a> = std::borrow::Cow<'a, [u8]>;

/// The saved form, in the lowest version that has a place for all of it: what
/// has no need of a newer version can be read by a module that does not know it.
#[must_use]
pub fn encode(limiter: &Limiter) -> Vec<u8> {
    let mut states = Vec::new();
    for state in limiter.states() {
        let name = state.name();
        let name = name.as_ref().map(Name::as_str);
        put(&mut states, &SavedState { name, meter: save_meter(state) });
    }
    let overrule = limiter.overrule().map(|overrule| SavedOverride {
        exempt: overrule.kind == OverrideKind::Exempt,
        until_us: overrule.until_us,
        reason: &overrule.reason,
    });
    let ban_us = limiter.overrule().and_then(|overrule| overrule.ban_us);
    let trail = limiter.trail().map(save_trail);
    let states = Bytes::from(states);
    let knows_needs = limiter.states().iter().filter_map(State::log_part).any(Log::knows_needs);
    let mut payload = Vec::new();
    if knows_needs || ban_us.is_some() {
        payload.push(WITH_NEEDS);
        put(&mut payload, &SavedLimiter3 { states, overrule, ban_us, trail });
    } else {
        payload.push(if trail.is_some() { WITH_TRAIL } else { FIRST });
        put(&mut payload, &SavedLimiter { states, overrule });
        if let Some(trail) = trail {
            put(&mut payload, &trail);
        }
    }
    payload
}

fn save_trail(trail: &Trail) -> SavedTrail<'static> {
    let marks = save_items(trail.marks.iter().map(|mark| SavedMark {
        time_us: mark.time_us,
        cost: mark.cost,
        verdict: match mark.verdict {
            Verdict::Allowed => 0,
            Verdict::Limited => 1,
            Verdict::Blocked => 2,
        },
        meta: mark.meta.as_deref(),
    }));
    SavedTrail { keep: trail.keep, until_us: trail.until_us, marks }
}

/// Appends an item. Writing to memory cannot fail.
fn put(to: &mut Vec<u8>, item: &impl Encode) {
    let written = bincode::encode_into_std_write(item, to, CONFIG);
    debug_assert!(written.is_ok(), "a type bincode cannot encode");
}

fn save_meter(state: &State) -> SavedMeter<'static> {
    match state {
        State::Log(log) => save_log(log),
        State::Window(window) => SavedMeter::Window {
            last_us: window.last_us(),
            period_us: window.period_us(),
            limit: window.limit(),
            counts: save_items(window.counts()),
        },
        State::Fixed(fixed) => save_fixed(fixed, None),
        State::Kept(kept) => {
            let windows = save_items(kept.past.iter().map(|past| (past.start_us, past.count)));
            save_fixed(&kept.fixed, Some(SavedPast { keep: kept.keep, windows }))
        }
        State::Debt(debt) => SavedMeter::Debt {
            last_us: debt.last_us,
            period_us: debt.period_us(),
            rem: debt.rem.get(),
            units: debt.units,
            limit: debt.limit,
            room: debt.room.units(),
            leaky: debt.is_leaky(),
        },
        State::Interval(interval) => SavedMeter::Interval {
            last_us: interval.last_us(),
            period_us: interval.period_us(),
            start_us: interval.term.start_us().cast_unsigned(),
            used: interval.used,
            limit: interval.limit,
            burst: interval.burst,
        },
        State::Named(named) => save_meter(&named.state),
    }
}

fn save_log(log: &Log) -> SavedMeter<'static> {
    let admitted = save_entries(log.admitted().iter());
    let charged = save_entries(log.charged().iter().flat_map(|series| series.iter()));
    if !log.knows_needs() {
        return SavedMeter::LogOfWindow { window_us: log.needs().window_us, admitted, charged };
    }
    let past = save_items(log.past_needs().iter().map(|past| SavedPastNeeds {
        needs: save_needs(past.needs.unpack()),
        until_us: past.until_us,
    }));
    SavedMeter::Log { needs: save_needs(log.needs()), past, admitted, charged }
}

const fn save_needs(Needs { window_us, units, admitted }: Needs) -> SavedNeeds {
    SavedNeeds { window_us, units, admitted }
}

fn save_fixed<'a>(fixed: &Fixed, past: Option<SavedPast<'a>>) -> SavedMeter<'a> {
    SavedMeter::Fixed {
        last_us: fixed.last_us(),
        period_us: fixed.period_us(),
        start_us: fixed.start_us(),
        count: fixed.count(),
        limit: fixed.limit,
        tz_min: fixed.tz_min(),
        calendar: match fixed.calendar() {
            Some(Calendar::Epoch) => 0,
            Some(Calendar::Weeks) => 1,
            Some(Calendar::Months) => 2,
            None => 3,
        },
        past,
    }
}

fn save_items<T: Encode>(items: impl Iterator<Item = T>) -> Bytes<'static> {
    let mut bytes = Vec::new();
    for item in items {
        put(&mut bytes, &item);
    }
    bytes.into()
}

fn save_entries(entries: impl Iterator<Item = (u64, u32)>) -> Bytes<'static> {
    let mut before_us = 0u64;
    save_items(entries.map(|(time_us, units)| {
        let gap_us = time_us.saturating_sub(before_us);
        before_us = time_us;
        (gap_us, units)
    }))
}

/// Reads a saved form.
///
/// # Errors
/// [`DecodeError`] for any byte string that [`encode`] could not have written.
pub fn decode(payload: &[u8]) -> Result<Limiter, DecodeError> {
    let (&version, body) = payload.split_first().ok_or(DecodeError::Empty)?;
    let (saved, left) = match version {
        FIRST | WITH_TRAIL => {
            let (SavedLimiter { states, overrule }, left) = take(body)?;
            let (trail, left) = match version {
                WITH_TRAIL => take(left).map(|(trail, left)| (Some(trail), left))?,
                _ => (None, left),
            };
            (SavedLimiter3 { states, overrule, ban_us: None, trail }, left)
        }
        WITH_NEEDS => take(body)?,
        version => return Err(DecodeError::Version(version)),
    };
    if !left.is_empty() {
        return Err(DecodeError::Trailing(left.len()));
    }
    let states = load_items(&saved.states, load_state)?;
    let log_of_later = |state: &State| state.log_part().is_some_and(Log::knows_needs);
    if version < WITH_NEEDS && states.iter().any(log_of_later) {
        return Err(DecodeError::Malformed(UNKNOWN_KIND));
    }
    let ban_us = saved.ban_us;
    let overrule = saved.overrule.map(|overrule| load_override(overrule, ban_us)).transpose()?;
    let trail = saved.trail.map(|trail| load_trail(&trail)).transpose()?;
    let limiter = Limiter::from_parts(states, overrule, trail);
    if limiter.is_empty() { Err(DecodeError::Idle) } else { Ok(limiter) }
}

const UNKNOWN_KIND: &str = "an unknown kind of state";

/// Takes an item off the front.
fn take<'a, T: BorrowDecode<'a, ()>>(bytes: &'a [u8]) -> Result<(T, &'a [u8]), DecodeError> {
    let (item, read) = bincode::borrow_decode_from_slice(bytes, CONFIG)
        .map_err(|error| DecodeError::Malformed(why(&error)))?;
    Ok((item, bytes.get(read..).unwrap_or_default()))
}

/// What was wrong, without the words of the library for our own types.
const fn why(error: &DecodingError) -> &'static str {
    match error {
        DecodingError::UnexpectedEnd { .. } => "it ends too early",
        DecodingError::UnexpectedVariant { .. } => UNKNOWN_KIND,
        DecodingError::Utf8 { .. } => "a name is no text",
        _ => "a malformed number",
    }
}

/// Shows each item to a function.
fn each_item<'a, T: BorrowDecode<'a, ()>>(
    bytes: &'a [u8],
    mut show: impl FnMut(T) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut left = bytes;
    while !left.is_empty() {
        let (item, rest) = take(left)?;
        show(item)?;
        left = rest;
    }
    Ok(())
}

/// Loads each item. They are counted first, so that what they take is known and
/// can be refused.
fn load_items<'a, T: BorrowDecode<'a, ()>, U>(
    bytes: &'a [u8],
    mut load: impl FnMut(T) -> Result<U, DecodeError>,
) -> Result<Vec<U>, DecodeError> {
    let mut count = 0_usize;
    each_item(bytes, |_: T| {
        count = count.saturating_add(1);
        Ok(())
    })?;
    let mut items = room_for(count)?;
    each_item(bytes, |item| {
        items.push(load(item)?);
        Ok(())
    })?;
    Ok(items)
}

fn room_for<T>(items: usize) -> Result<Vec<T>, DecodeError> {
    let mut vec = Vec::new();
    vec.try_reserve_exact(items).map_err(|_| DecodeError::NoMemory(items))?;
    Ok(vec)
}

fn load_text(text: &[u8]) -> Result<Box<[u8]>, DecodeError> {
    let mut copy = room_for(text.len())?;
    copy.extend_from_slice(text);
    Ok(copy.into_boxed_slice())
}

fn within(fits: bool, what: &'static str) -> Result<(), DecodeError> {
    if fits { Ok(()) } else { Err(DecodeError::OutOfRange(what)) }
}

fn check_time(us: u64) -> Result<(), DecodeError> {
    within(us <= MAX_TIME_US, "a time")
}

fn check_period(us: u64) -> Result<(), DecodeError> {
    within((MS_US..=MAX_PERIOD_US).contains(&us), "a period")
}

fn check_units(units: u32) -> Result<(), DecodeError> {
    within(units <= MAX_UNITS, "a limit")
}

fn load_trail(saved: &SavedTrail<'_>) -> Result<Trail, DecodeError> {
    let latest_us = MAX_TIME_US.saturating_add(MAX_PERIOD_US);
    within(saved.keep > 0, "the length of a trail")?;
    within(saved.until_us <= latest_us, "a time")?;
    let marks: VecDeque<Mark> = load_items(&saved.marks, |mark: SavedMark<'_>| {
        check_time(mark.time_us)?;
        within(mark.cost <= MAX_UNITS, "a cost")?;
        let verdict = match mark.verdict {
            0 => Verdict::Allowed,
            1 => Verdict::Limited,
            2 => Verdict::Blocked,
            _ => return Err(DecodeError::OutOfRange("a verdict")),
        };
        let meta = mark.meta.map(load_text).transpose()?;
        Ok(Mark { time_us: mark.time_us, cost: mark.cost, verdict, meta })
    })?
    .into();
    within(!marks.is_empty() && marks.len() <= saved.keep as usize, "the length of a trail")?;
    Ok(Trail { keep: saved.keep, until_us: saved.until_us, marks })
}

fn load_override(saved: SavedOverride<'_>, ban_us: Option<u64>) -> Result<Override, DecodeError> {
    Ok(Override {
        kind: if saved.exempt { OverrideKind::Exempt } else { OverrideKind::Block },
        until_us: saved.until_us,
        ban_us,
        reason: load_text(saved.reason)?,
    })
}

fn load_state(saved: SavedState<'_>) -> Result<State, DecodeError> {
    let state = load_meter(saved.meter)?;
    let Some(text) = saved.name else { return busy(state) };
    let name = Name::new(text.as_bytes()).ok_or(DecodeError::OutOfRange("a name"))?;
    within(!matches!(state, State::Log(_)), "the name of a log")?;
    busy(State::named(Some(&name), state))
}

/// A state that holds nothing is none.
fn busy(state: State) -> Result<State, DecodeError> {
    if state.is_empty() { Err(DecodeError::Idle) } else { Ok(state) }
}

fn load_meter(saved: SavedMeter<'_>) -> Result<State, DecodeError> {
    match saved {
        SavedMeter::LogOfWindow { window_us, admitted, charged } => {
            let needs = SavedNeeds { window_us, units: Needs::ALL_UNITS, admitted: true };
            load_log(needs, &[], &admitted, &charged)
        }
        SavedMeter::Log { needs, past, admitted, charged } => {
            load_log(needs, &past, &admitted, &charged)
        }
        SavedMeter::Window { last_us, period_us, limit, counts } => {
            check_time(last_us)?;
            check_period(period_us)?;
            check_units(limit)?;
            let counts: Vec<u64> = load_items(&counts, Ok)?;
            let counters = 2..=usize::from(MAX_RES).saturating_add(1);
            within(counters.contains(&counts.len()), "a number of counters")?;
            Ok(State::Window(Window::new(last_us, period_us, limit, &counts)))
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
            let calendar = match calendar {
                0 => Some(Calendar::Epoch),
                1 => Some(Calendar::Weeks),
                2 => Some(Calendar::Months),
                3 => None,
                _ => return Err(DecodeError::OutOfRange("a calendar")),
            };
            let term = load_term(last_us, period_us, start_us)?;
            let fixed = Fixed::new(term, count, Anchor::new(calendar, tz_min), limit);
            let Some(saved) = past else { return Ok(State::Fixed(Box::new(fixed))) };
            within(saved.keep <= MAX_KEEP, "a number of past windows")?;
            let past: Vec<Past> = load_items(&saved.windows, |(start_us, count)| {
                check_start(start_us)?;
                Ok(Past { start_us, count })
            })?;
            within(past.len() <= usize::from(saved.keep), "the past windows' number")?;
            Ok(State::Kept(Box::new(Kept { fixed, keep: saved.keep, past: past.into() })))
        }
        SavedMeter::Debt { last_us, period_us, rem, units, limit, room, leaky } => {
            check_time(last_us)?;
            check_period(period_us)?;
            check_units(limit)?;
            check_units(room)?;
            within(limit > 0, "a limit")?;
            within(rem < period_us, "a remainder")?;
            let (period, rem) = (Uint48::saturating(period_us), Uint48::saturating(rem));
            let room = Room::new(room, leaky);
            Ok(State::Debt(Box::new(Debt { last_us, period, rem, units, limit, room })))
        }
        SavedMeter::Interval { last_us, period_us, start_us, used, limit, burst } => {
            check_time(start_us)?;
            check_units(limit)?;
            check_units(burst)?;
            let term = load_term(last_us, period_us, start_us.cast_signed())?;
            let interval = Interval { term, used, limit, burst };
            Ok(State::Interval(Box::new(interval)))
        }
    }
}

/// Windows may begin before the epoch, but not by more than the longest one.
fn check_start(start_us: i64) -> Result<(), DecodeError> {
    within(start_us.unsigned_abs() <= MAX_TIME_US, "a window's start")
}

/// No state was ever last counted in outside its term.
fn load_term(last_us: u64, period_us: u64, start_us: i64) -> Result<Term, DecodeError> {
    check_time(last_us)?;
    check_period(period_us)?;
    check_start(start_us)?;
    Term::saved(period_us, start_us, last_us).ok_or(DecodeError::OutOfRange("a window's start"))
}

fn load_log(
    needs: SavedNeeds,
    past: &[u8],
    admitted: &[u8],
    charged: &[u8],
) -> Result<State, DecodeError> {
    let needs = load_needs(needs)?;
    let past = load_items(past, |past: SavedPastNeeds| {
        within(past.until_us <= MAX_TIME_US.saturating_add(MAX_WINDOW_US), "a time")?;
        Ok(PastNeeds { needs: load_needs(past.needs)?.pack(), until_us: past.until_us })
    })?;
    within(past.len() <= MOST_PAST, "a number of needs")?;
    Ok(State::Log(Log::of(load_series(admitted)?, Some(load_series(charged)?), needs, past)))
}

fn load_needs(SavedNeeds { window_us, units, admitted }: SavedNeeds) -> Result<Needs, DecodeError> {
    within(window_us <= MAX_WINDOW_US, "a window")?;
    within(units <= Needs::ALL_UNITS, "a limit")?;
    Ok(Needs { window_us, units, admitted })
}

/// The longest window of a log, rounded up as a log keeps it.
const MAX_WINDOW_US: u64 = MAX_PERIOD_US.saturating_add(SECOND_US);

/// Entries are looked through first, so that what they take is known and can
/// be refused.
fn load_series(bytes: &[u8]) -> Result<Series, DecodeError> {
    let mut extent = Extent::default();
    let mut total = 0_u64;
    each_entry(bytes, |time_us, units| {
        total = total.saturating_add(u64::from(units));
        check_time(time_us)?;
        within(units > 0 && total <= u64::from(MAX_UNITS), "an entry's units")?;
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

/// Shows the time and the units of each entry.
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

#[cfg(test)]
mod tests;
