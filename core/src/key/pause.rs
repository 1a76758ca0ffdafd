//! The pause of a key. The key's clients share a service, the upstream, which has told one of them to
//! come back later. Until that time every check is denied.
//!
//! Workers report the same pause one by one, each with an end by its own clock. So a pause only
//! grows: of two ends the later one stands. If the clock steps back by more than the pause's length,
//! the pause is over.

use crate::algorithm::{Moment, not_before_us};
use alloc::boxed::Box;

/// A pause, which denies every check of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Its end, Unix microseconds.
    pub until_us: u64,
    /// How long it lasts from when it was set, or last grew, in microseconds.
    pub length_us: u64,
    /// The `REASON` given; may be empty.
    pub reason: Box<[u8]>,
}

impl Pause {
    /// The earliest time at which it is in effect.
    pub(crate) const fn not_before_us(&self) -> u64 {
        not_before_us(self.until_us, self.length_us)
    }

    /// True if it denies checks at `now_us`.
    pub(crate) fn in_effect(&self, now_us: u64) -> bool {
        (self.not_before_us()..self.until_us).contains(&now_us)
    }

    /// Milliseconds until it ends, rounded up.
    pub fn left_ms(&self, now_us: u64) -> i64 {
        Moment::At(self.until_us).ms_after(now_us)
    }
}
