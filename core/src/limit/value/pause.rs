//! The pause of a key: until a service that the key's clients share, the upstream, has said to
//! come back.
//!
//! Workers hear of the same pause one by one, each from its own clock. So a pause only grows: of
//! two ends the later one stands.

use crate::limit::algorithm::reading::Moment;

/// A pause, which denies every check of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Its end, Unix microseconds.
    pub until_us: u64,
    /// The `REASON` given; may be empty.
    pub reason: Box<[u8]>,
}

impl Pause {
    /// Milliseconds until it ends, rounded up.
    pub fn left_ms(&self, now_us: u64) -> i64 {
        Moment::At(self.until_us).ms_after(now_us)
    }
}
