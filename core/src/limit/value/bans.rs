//! How often a key was banned. A ladder of bans, `ban=1m:10m:1h`, stores this in the key.
//!
//! ```text
//!    ban    ends     ban          ends                            forgotten
//!     |======|  ..... |============| . . . . . . . . . . . . . . . . . |
//!     count 1         count 2       as long as the longest rung
//!                     |------------------- span -----------------------|
//! ```
//!
//! A key counts the bans of all its ladders together, and forgets them all at once. A key without a
//! ladder stores nothing.

use crate::limit::algorithm::reading::Moment;
use crate::rule::{MAX_PERIOD_US, MAX_TIME_US};

/// The longest span: the longest ban plus the longest rung.
pub const MAX_SPAN_US: u64 = 2 * MAX_PERIOD_US;
/// The latest time at which bans can be forgotten.
pub const MAX_FORGOTTEN_US: u64 = MAX_TIME_US + MAX_SPAN_US;

/// A count of bans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BanCount {
    /// At least 1.
    pub bans: u32,
    /// When the bans are forgotten, Unix microseconds.
    pub forgotten_us: u64,
    /// Microseconds from setting the last ban until all are forgotten.
    pub span_us: u64,
}

impl BanCount {
    /// The count after a ban set at `now_us`.
    pub(crate) const fn new(bans: u32, now_us: u64, span_us: u64) -> Self {
        Self { bans, forgotten_us: now_us.saturating_add(span_us), span_us }
    }

    pub(crate) const fn is_remembered(&self, now_us: u64) -> bool {
        self.forgotten_us > now_us
    }

    /// The count, read at `now_us`. It is forgotten at most its span later: if the stored time is
    /// later still, the clock stepped back since the last ban was set.
    #[must_use]
    pub(crate) fn as_of(self, now_us: u64) -> Self {
        let latest_us = now_us.saturating_add(self.span_us);
        Self { forgotten_us: self.forgotten_us.min(latest_us), ..self }
    }

    /// Milliseconds until it is forgotten, rounded up.
    #[must_use]
    pub fn left_ms(&self, now_us: u64) -> i64 {
        Moment::At(self.as_of(now_us).forgotten_us).ms_after(now_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_lasts_no_longer_than_its_span() {
        let count = BanCount::new(2, 10_000, 5_000);
        for (now_us, left_ms) in [(9_000, 5), (10_000, 5), (10_001, 5), (14_999, 1), (15_000, 0)] {
            assert_eq!(count.left_ms(now_us), left_ms, "{now_us}");
            assert_eq!(count.is_remembered(now_us), left_ms > 0, "{now_us}");
        }
        assert_eq!(count.as_of(10_001), count);
        assert_eq!(count.as_of(1_000), BanCount { forgotten_us: 6_000, ..count });
    }
}
