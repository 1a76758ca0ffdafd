//! How long a rule's bans last: the value of `ban=`.
//!
//! ```text
//! ban=1m             every ban lasts a minute; bans are not counted
//! ban=1m:10m:1h      the first ban of a key, the second, the third and all others
//! ```

use super::lengths::{MAX_PERIOD_US, MS_US};
use core::fmt;
use core::num::NonZeroU32;

/// The most rungs of a ladder.
pub const MAX_RUNGS: usize = 8;

/// The lengths of a rule's bans, in the order in which a key gets them. Rules are copied often,
/// so a ladder packs into 36 bytes: a rung takes at most 35 bits of milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ladder {
    /// The lower 32 bits of each rung; 0 after the last rung.
    low: [u32; MAX_RUNGS],
    /// The upper 3 bits of each rung, the first rung in the lowest bits; above them, from
    /// [`LEN`](Self::LEN) on, the number of rungs.
    high: NonZeroU32,
}

impl Ladder {
    /// The bits of 8 rungs.
    const LEN: u32 = 24;

    /// A ladder of one rung: every ban lasts that long. `None` if the rung is outside 1 ms ..=
    /// 366 d.
    pub fn new(rung_us: u64) -> Option<Self> {
        let high = NonZeroU32::new(1 << Self::LEN)?;
        Self { low: [0; MAX_RUNGS], high }.with(0, rung_us)
    }

    /// The ladder with one more rung; `None` if the rung is outside 1 ms ..= 366 d, or the
    /// ladder is full.
    #[must_use]
    pub fn and(self, rung_us: u64) -> Option<Self> {
        let high = self.high.checked_add(1 << Self::LEN)?;
        Self { high, ..self }.with(self.len(), rung_us)
    }

    fn with(mut self, index: usize, rung_us: u64) -> Option<Self> {
        if !(MS_US..=MAX_PERIOD_US).contains(&rung_us) {
            return None;
        }
        let [b0, b1, b2, b3, b4, ..] = (rung_us / MS_US).to_le_bytes();
        *self.low.get_mut(index)? = u32::from_le_bytes([b0, b1, b2, b3]);
        self.high |= u32::from(b4).checked_shl(upper_bits_at(index))?;
        Some(self)
    }

    fn len(&self) -> usize {
        usize::try_from(self.high.get() >> Self::LEN).unwrap_or(0)
    }

    /// Whether the key counts its bans.
    pub fn counts_bans(&self) -> bool {
        self.len() > 1
    }

    /// The length in microseconds of the ban that follows `bans` earlier ones.
    pub fn rung_us(&self, bans: u32) -> u64 {
        let last = self.len().saturating_sub(1);
        let index = usize::try_from(bans).map_or(last, |bans| bans.min(last));
        let low = self.low.get(index).copied().unwrap_or_default();
        let high = self.high.get().checked_shr(upper_bits_at(index)).unwrap_or(0) & 0b111;
        ((u64::from(high) << 32) | u64::from(low)).saturating_mul(MS_US)
    }

    /// Every rung, in microseconds.
    pub fn rungs_us(&self) -> impl Iterator<Item = u64> {
        (0..self.high.get() >> Self::LEN).map(|bans| self.rung_us(bans))
    }

    /// The longest rung, in microseconds.
    pub fn longest_us(&self) -> u64 {
        self.rungs_us().max().unwrap_or(0)
    }
}

/// The position of a rung's upper bits.
fn upper_bits_at(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX).saturating_mul(3)
}

impl fmt::Debug for Ladder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.rungs_us()).finish()
    }
}

#[cfg(any(test, feature = "testing"))]
#[allow(clippy::expect_used, clippy::arithmetic_side_effects, reason = "only for tests")]
impl Ladder {
    /// The ladder of these rungs, in milliseconds.
    pub fn of_ms(rungs_ms: &[u64]) -> Self {
        let (first, others) = rungs_ms.split_first().expect("a rung");
        let first = Self::new(first * MS_US).expect("a rung");
        others.iter().fold(first, |ladder, rung_ms| ladder.and(rung_ms * MS_US).expect("a rung"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX_MS: u64 = MAX_PERIOD_US / MS_US;

    #[test]
    fn a_ladder_is_small() {
        assert_eq!(size_of::<Option<Ladder>>(), 36);
    }

    #[test]
    fn rungs_out_of_range_and_one_too_many_are_refused() {
        for rung_us in [0, 1, MS_US - 1, MAX_PERIOD_US + 1, u64::MAX] {
            assert_eq!(Ladder::new(rung_us), None, "{rung_us}");
            assert_eq!(Ladder::of_ms(&[1]).and(rung_us), None, "{rung_us}");
        }
        let full = Ladder::of_ms(&[MAX_MS; MAX_RUNGS]);
        assert_eq!(full.and(MS_US), None);
        assert_eq!(full.longest_us(), MAX_PERIOD_US);
    }

    proptest! {
        #[test]
        fn each_ban_takes_the_next_rung_up_to_the_last(
            rungs_ms in prop::collection::vec(prop_oneof![1..9u64, 1..=MAX_MS], 1..=MAX_RUNGS),
            bans: u32,
        ) {
            let ladder = Ladder::of_ms(&rungs_ms);
            let rungs_us: Vec<u64> = rungs_ms.iter().map(|ms| ms * MS_US).collect();
            prop_assert_eq!(ladder.rungs_us().collect::<Vec<_>>(), rungs_us.clone());
            for bans in [0, 1, 6, 7, 8, bans] {
                let index = (bans as usize).min(rungs_us.len() - 1);
                prop_assert_eq!(ladder.rung_us(bans), rungs_us[index]);
            }
            prop_assert_eq!(ladder.longest_us(), *rungs_us.iter().max().unwrap());
            prop_assert_eq!(ladder.counts_bans(), rungs_us.len() > 1);
        }
    }
}
