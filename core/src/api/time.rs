//! Times and waits, between these types and the engine.

use crate::rule::MAX_TIME_US;
use core::time::Duration;

/// The engine's time.
pub(super) fn micros(since_epoch: Duration) -> u64 {
    u64::try_from(since_epoch.as_micros()).map_or(MAX_TIME_US, |us| us.min(MAX_TIME_US))
}

/// A wait or reset of the engine, in milliseconds; -1 is never.
pub(super) fn duration(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}
