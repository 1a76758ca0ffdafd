//! What is saved, and how it is written and read: in bincode's standard form (little endian,
//! variable integers). Golden payloads keep it from changing.
//!
//! Repeated parts (log entries, counters, past windows) are byte strings in the payload, borrowed
//! while reading. A first pass counts their items, a second one loads them into memory reserved for
//! that number.

use super::error::DecodeError;
use bincode::error::DecodeError as DecodingError;
use bincode::{BorrowDecode, Encode, config};

const CONFIG: config::Configuration = config::standard();

/// The whole content of a limiter.
#[derive(Default, Encode, BorrowDecode)]
pub struct SavedLimiter<'a> {
    /// `SavedState`s, concatenated. A state may be empty if a hold was charged on it.
    pub states: Bytes<'a>,
    pub access: Option<SavedAccess<'a>>,
    pub history: Option<SavedHistory<'a>>,
    /// `SavedHold`s, concatenated, ordered by id.
    pub holds: Bytes<'a>,
    pub bans: Option<SavedBans>,
}

#[derive(Encode, BorrowDecode)]
pub struct SavedBans {
    pub bans: u32,
    pub forgotten_us: u64,
    pub span_us: u64,
}

#[derive(Encode, BorrowDecode)]
pub struct SavedHold<'a> {
    pub id: &'a [u8],
    pub end_us: u64,
    pub refund: bool,
    /// `SavedCharge`s, concatenated.
    pub charges: Bytes<'a>,
    /// The names of log rules, as concatenated strings.
    pub log_names: Bytes<'a>,
}

#[derive(Encode, BorrowDecode)]
pub struct SavedCharge {
    /// The index of the state, from 0; `None` if the state is gone.
    pub state: Option<u32>,
    pub stamp_us: u64,
    pub units: u32,
    pub limit: u32,
    pub by_default: bool,
    pub shadow: bool,
    pub detail: SavedDetail,
}

#[derive(Encode, BorrowDecode)]
pub enum SavedDetail {
    Plain,
    /// For a log: the longest window of the hold's log rules; `limit` is their largest limit.
    Log {
        window_us: u64,
    },
    /// For a token bucket: how many of the bucket's holds were charged earlier, and the least debt
    /// since, in fractions of a unit.
    Least {
        older: u32,
        owed: u128,
    },
    /// For a leaky bucket: its turn, after the stamp, and whether nothing queued after it.
    Turn {
        ms: u32,
        is_last: bool,
    },
}

#[derive(Encode, BorrowDecode)]
pub struct SavedHistory<'a> {
    pub keep: u32,
    pub until_us: u64,
    /// `SavedEntry`s, concatenated, oldest first.
    pub entries: Bytes<'a>,
}

#[derive(Encode, BorrowDecode)]
pub struct SavedEntry<'a> {
    pub time_us: u64,
    pub cost: u32,
    /// 0 allowed, 1 limited, 2 blocked.
    pub verdict: u8,
    pub meta: Option<&'a [u8]>,
}

#[derive(Encode, BorrowDecode)]
pub struct SavedAccess<'a> {
    pub exempt: bool,
    pub until_us: Option<u64>,
    /// The length of a ban, in microseconds; `None` or 0 if no rule banned the key.
    pub ban_us: Option<u64>,
    pub reason: &'a [u8],
}

#[derive(Encode, BorrowDecode)]
pub struct SavedState<'a> {
    pub name: Option<&'a str>,
    pub meter: SavedMeter<'a>,
}

#[derive(Encode, BorrowDecode)]
pub enum SavedMeter<'a> {
    Log {
        /// The needs of the check that consumed last.
        needs: SavedNeeds,
        /// `SavedPastNeeds` of earlier checks.
        past: Bytes<'a>,
        /// Two numbers per entry: microseconds since the previous entry, then units. First come the
        /// admitted entries, then the charged denials.
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
        burst_or_queue: u32,
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
    /// Slots. The holds store the units.
    Slots {
        limit: u32,
    },
}

#[derive(Encode, BorrowDecode)]
pub struct SavedNeeds {
    pub window_us: u64,
    pub units: u32,
    pub admitted: bool,
}

#[derive(Encode, BorrowDecode)]
pub struct SavedPastNeeds {
    pub needs: SavedNeeds,
    pub until_us: u64,
}

#[derive(Encode, BorrowDecode)]
pub struct SavedPast<'a> {
    pub keep: u16,
    /// Start and count, oldest first.
    pub windows: Bytes<'a>,
}

/// Concatenated items, as a byte string with its length.
pub type Bytes<'a> = std::borrow::Cow<'a, [u8]>;

/// Appends an item. Writing to memory cannot fail.
pub fn put(to: &mut Vec<u8>, item: &impl Encode) {
    let written = bincode::encode_into_std_write(item, to, CONFIG);
    debug_assert!(written.is_ok(), "a type bincode cannot encode");
}

pub fn save_items<T: Encode>(items: impl Iterator<Item = T>) -> Bytes<'static> {
    let mut bytes = Vec::new();
    for item in items {
        put(&mut bytes, &item);
    }
    bytes.into()
}

pub const UNKNOWN_KIND: &str = "an unknown kind of state";

/// Reads an item from the front, and returns it with the rest.
pub fn take<'a, T: BorrowDecode<'a, ()>>(bytes: &'a [u8]) -> Result<(T, &'a [u8]), DecodeError> {
    let (item, read) = bincode::borrow_decode_from_slice(bytes, CONFIG)
        .map_err(|error| DecodeError::Malformed(why(&error)))?;
    Ok((item, bytes.get(read..).unwrap_or_default()))
}

/// What was wrong, without the library's names for our types.
const fn why(error: &DecodingError) -> &'static str {
    match error {
        DecodingError::UnexpectedEnd { .. } => "it ends too early",
        DecodingError::UnexpectedVariant { .. } => UNKNOWN_KIND,
        DecodingError::Utf8 { .. } => "a name is no text",
        _ => "a malformed number",
    }
}

/// Passes each item to a function.
pub fn each_item<'a, T: BorrowDecode<'a, ()>>(
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

/// Loads up to `most` items. A first pass counts them, so that a number too large for memory is
/// refused. `what` names the number in the error.
pub fn load_items<'a, T: BorrowDecode<'a, ()>, U>(
    bytes: &'a [u8],
    most: usize,
    what: &'static str,
    mut load: impl FnMut(T) -> Result<U, DecodeError>,
) -> Result<Vec<U>, DecodeError> {
    let mut count = 0_usize;
    each_item(bytes, |_: T| {
        count = count.saturating_add(1);
        within(count <= most, what)
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

pub fn load_text(text: &[u8]) -> Result<Box<[u8]>, DecodeError> {
    let mut copy = room_for(text.len())?;
    copy.extend_from_slice(text);
    Ok(copy.into_boxed_slice())
}

/// An error for `what` unless it is within its bounds.
pub fn within(fits: bool, what: &'static str) -> Result<(), DecodeError> {
    if fits { Ok(()) } else { Err(DecodeError::OutOfRange(what)) }
}
