//! Bounds that several parts of the saved form share.

use super::{DecodeError, within};
use crate::rule::{MAX_PERIOD_US, MAX_TIME_US, MAX_UNITS, MS_US, Name, SECOND_US};

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

/// A window may start before the epoch, but not beyond the bound.
pub fn check_start(start_us: i64) -> Result<(), DecodeError> {
    within(start_us.unsigned_abs() <= MAX_TIME_US, "a window's start")
}

pub fn load_name(name: &str) -> Result<Name, DecodeError> {
    Name::new(name.as_bytes()).ok_or(DecodeError::OutOfRange("a name"))
}
