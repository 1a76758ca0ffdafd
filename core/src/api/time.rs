//! Times and waits, between these types and the engine.

use crate::rule::{MAX_PERIOD_US, MAX_TIME_US};
use core::time::Duration;

/// The longest period of a rule, and the longest that a hold lasts: 366 days.
pub const MAX_PERIOD: Duration = Duration::from_micros(MAX_PERIOD_US);

/// The engine's time.
pub(super) fn micros(since_epoch: Duration) -> u64 {
    u64::try_from(since_epoch.as_micros()).map_or(MAX_TIME_US, |us| us.min(MAX_TIME_US))
}

/// A wait or reset of the engine, in milliseconds; -1 is never.
pub(super) fn duration(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}
