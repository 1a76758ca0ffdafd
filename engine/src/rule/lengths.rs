//! Lengths of time in microseconds.

/// A millisecond.
pub const MS_US: u64 = 1_000;
/// A second.
pub const SECOND_US: u64 = 1_000_000;
pub const MINUTE_US: u64 = 60 * SECOND_US;
pub const HOUR_US: u64 = 60 * MINUTE_US;
pub const DAY_US: u64 = 24 * HOUR_US;
pub const WEEK_US: u64 = 7 * DAY_US;
/// The nominal length of a calendar month: 31 days.
pub const MONTH_US: u64 = 31 * DAY_US;
/// The longest period: 366 days.
pub const MAX_PERIOD_US: u64 = 366 * DAY_US;
