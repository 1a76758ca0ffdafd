//! What all saved values share: their bytes (`form`: items <-> bytes, with bincode), why a payload
//! is refused, and some bounds.

pub(crate) mod form;

use crate::rule::{MAX_PERIOD_US, MAX_TIME_US, MAX_UNITS, MS_US, Name, SECOND_US};
pub(crate) use form::{
    SavedDetail, each_item, load_items, load_text, put, put_bytes, save_items, take,
};

/// The newest version, in which a block or an exemption has an author.
pub const VERSION: u8 = 2;
/// The version of every other limiter.
pub const WITHOUT_AUTHOR: u8 = 1;

/// Why a payload is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It has no bytes.
    #[error("the payload is empty, expected a version byte")]
    Empty,
    /// Its first byte, given here, is not a version that can be read.
    #[error("the payload has version {0}, expected {VERSION} or older")]
    Version(u8),
    /// It ends early or does not have the form of its version. The text says why.
    #[error("the payload cannot be read: {0}")]
    Malformed(&'static str),
    /// This number of bytes follows the value.
    #[error("{0} bytes are left over after the payload")]
    Trailing(usize),
    /// This part of the value is out of bounds.
    #[error("{0} is out of range in the payload")]
    OutOfRange(&'static str),
    /// A limiter, or one of its states, that holds nothing.
    #[error("the payload holds nothing, expected what was consumed")]
    Idle,
    /// Memory is too short for this number of items.
    #[error("no memory for the payload's {0} items")]
    NoMemory(usize),
}

/// Returns the error that `what` is out of range unless `fits`.
pub fn within(fits: bool, what: &'static str) -> Result<(), DecodeError> {
    if fits { Ok(()) } else { Err(DecodeError::OutOfRange(what)) }
}

/// The longest window of a log, rounded up as the log stores it.
pub const MAX_WINDOW_US: u64 = MAX_PERIOD_US.saturating_add(SECOND_US);

pub fn check_time(us: u64) -> Result<(), DecodeError> {
    within(us <= MAX_TIME_US, "a time")
}

pub fn check_period(us: u64) -> Result<(), DecodeError> {
    within((MS_US..=MAX_PERIOD_US).contains(&us), "a period")
}

pub fn check_units(units: u32) -> Result<(), DecodeError> {
    within(units <= MAX_UNITS, "a limit")
}

pub fn check_window(us: u64) -> Result<(), DecodeError> {
    within(us <= MAX_WINDOW_US, "a window")
}

/// A window may start before the epoch, by at most [`MAX_TIME_US`].
pub fn check_start(start_us: i64) -> Result<(), DecodeError> {
    within(start_us.unsigned_abs() <= MAX_TIME_US, "a window's start")
}

pub fn load_name(name: &str) -> Result<Name, DecodeError> {
    Name::new(name.as_bytes()).ok_or(DecodeError::OutOfRange("a name"))
}
