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
//! payload, borrowed while reading and decoded item by item, so that no length
//! in a payload makes us allocate more than the payload's own size justifies.

use super::debt::{Debt, Room};
use super::fixed::{Anchor, Fixed, Kept, Past};
use super::interval::Interval;
use super::limiter::Limiter;
use super::log::Log;
use super::overrule::{Override, OverrideKind};
use super::rule::{
    Calendar, MAX_KEEP, MAX_PERIOD_US, MAX_RES, MAX_TIME_US, MAX_TZ_MIN, MAX_UNITS, MS_US, Name,
};
use super::ruling::Verdict;
use super::state::State;
use super::term::Term;
use super::trail::{Mark, Trail};
use super::uint48::Uint48;
use super::window::Window;
use bincode::error::DecodeError as DecodingError;
use bincode::{BorrowDecode, Encode, config};
use std::collections::VecDeque;
use std::fmt;

/// A limiter without a trail is written as version 1, so that what has no need
/// of the newer version can be read by who does not know it.
const WITHOUT_TRAIL: u8 = 1;
const WITH_TRAIL: u8 = 2;
const LATEST: u8 = WITH_TRAIL;

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
        }
    }
}

impl std::error::Error for DecodeError {}

#[derive(Encode, BorrowDecode)]
struct SavedLimiter<'a> {
    /// `SavedState`s, one after another.
    states: Bytes<'a>,
    overrule: Option<SavedOverride<'a>>,
}

/// What follows in version 2.
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
    Log {
        horizon_us: u64,
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
}

#[derive(Encode, BorrowDecode)]
struct SavedPast<'a> {
    keep: u16,
    /// Start and count, oldest first.
    windows: Bytes<'a>,
}

/// Items one after another, as a byte string with its length.
type Bytes<'a> = std::borrow::Cow<'a, [u8]>;

/// The saved form.
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
    let version = if limiter.trail().is_some() { WITH_TRAIL } else { WITHOUT_TRAIL };
    let mut payload = vec![version];
    put(&mut payload, &SavedLimiter { states: states.into(), overrule });
    if let Some(trail) = limiter.trail() {
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
        put(&mut payload, &SavedTrail { keep: trail.keep, until_us: trail.until_us, marks });
    }
    payload
}

/// Appends an item. Writing to memory cannot fail.
fn put(to: &mut Vec<u8>, item: &impl Encode) {
    let written = bincode::encode_into_std_write(item, to, CONFIG);
    debug_assert!(written.is_ok(), "a type bincode cannot encode");
}

fn save_meter(state: &State) -> SavedMeter<'static> {
    match state {
        State::Log(log) => SavedMeter::Log {
            horizon_us: log.horizon_us(),
            admitted: save_entries(log.admitted().iter()),
            charged: save_entries(log.charged().iter().flat_map(|series| series.iter())),
        },
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
    if !(WITHOUT_TRAIL..=LATEST).contains(&version) {
        return Err(DecodeError::Version(version));
    }
    let (saved, mut left) = take::<SavedLimiter<'_>>(body)?;
    let mut trail = None;
    if version == WITH_TRAIL {
        let (saved, rest) = take::<SavedTrail<'_>>(left)?;
        trail = Some(load_trail(&saved)?);
        left = rest;
    }
    if !left.is_empty() {
        return Err(DecodeError::Trailing(left.len()));
    }
    let states = load_items(&saved.states, load_state)?;
    let overrule = saved.overrule.map(load_override).transpose()?;
    let limiter = Limiter::from_parts(states, overrule, trail);
    if limiter.is_empty() { Err(DecodeError::Idle) } else { Ok(limiter) }
}

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
        DecodingError::UnexpectedVariant { .. } => "an unknown kind of state",
        DecodingError::Utf8 { .. } => "a name is no text",
        _ => "a malformed number",
    }
}

fn load_items<'a, T: BorrowDecode<'a, ()>, U>(
    bytes: &'a [u8],
    mut load: impl FnMut(T) -> Result<U, DecodeError>,
) -> Result<Vec<U>, DecodeError> {
    let mut items = Vec::new();
    let mut left = bytes;
    while !left.is_empty() {
        let (item, rest) = take(left)?;
        items.push(load(item)?);
        left = rest;
    }
    Ok(items)
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
        let meta = mark.meta.map(Into::into);
        Ok(Mark { time_us: mark.time_us, cost: mark.cost, verdict, meta })
    })?
    .into();
    within(!marks.is_empty() && marks.len() <= saved.keep as usize, "the length of a trail")?;
    Ok(Trail { keep: saved.keep, until_us: saved.until_us, marks })
}

fn load_override(saved: SavedOverride<'_>) -> Result<Override, DecodeError> {
    Ok(Override {
        kind: if saved.exempt { OverrideKind::Exempt } else { OverrideKind::Block },
        until_us: saved.until_us,
        reason: saved.reason.into(),
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
        SavedMeter::Log { horizon_us, admitted, charged } => {
            within(horizon_us <= MAX_PERIOD_US.saturating_add(1_000_000), "a horizon")?;
            let admitted = load_entries(&admitted)?;
            let charged = load_entries(&charged)?;
            let flagged = |denied| move |(time_us, units)| (time_us, units, denied);
            let entries = admitted
                .into_iter()
                .map(flagged(false))
                .chain(charged.into_iter().map(flagged(true)));
            Ok(State::Log(Log::from_entries(horizon_us, entries)))
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

fn load_entries(bytes: &[u8]) -> Result<Vec<(u64, u32)>, DecodeError> {
    let (mut time_us, mut total) = (0u64, 0u64);
    load_items(bytes, |(gap_us, units): (u64, u32)| {
        time_us = time_us.saturating_add(gap_us);
        total = total.saturating_add(u64::from(units));
        check_time(time_us)?;
        within(units > 0 && total <= u64::from(MAX_UNITS), "an entry's units")?;
        Ok((time_us, units))
    })
}

#[cfg(test)]
mod tests;
