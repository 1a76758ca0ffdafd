//! How long a rule's bans last: the value of `ban=`.
//!
//! ```text
//! ban=1m             every ban lasts a minute; bans are not counted
//! ban=1m:10m:1h      the first ban of a key, the second, the third and all others
//! ```

use super::{MAX_PERIOD_US, MS_US};
use crate::exact::Uint48;

/// The most rungs of a ladder.
pub const MAX_RUNGS: usize = 8;

/// The lengths of a rule's bans, in the order in which a key gets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ladder {
    /// In milliseconds; 0 after the last rung.
    rungs: [Uint48; MAX_RUNGS],
}

impl Ladder {
    /// A ladder of one rung: every ban lasts that long. `None` if the rung is outside 1 ms ..=
    /// 366 d.
    pub fn new(rung_us: u64) -> Option<Self> {
        Self { rungs: [Uint48::default(); MAX_RUNGS] }.and(rung_us)
    }

    /// The ladder with one more rung; `None` if the rung is outside 1 ms ..= 366 d, or the
    /// ladder is full.
    #[must_use]
    pub fn and(mut self, rung_us: u64) -> Option<Self> {
        let next = self.rungs.iter_mut().find(|rung| rung.get() == 0)?;
        *next = Uint48::saturating(rung_us / MS_US);
        (MS_US..=MAX_PERIOD_US).contains(&rung_us).then_some(self)
    }

    /// True if the key counts bans by this ladder: it has more than one rung.
    pub fn counts_bans(&self) -> bool {
        self.rungs_us().nth(1).is_some()
    }

    /// The length in microseconds of the ban that follows `bans` earlier ones.
    pub fn rung_us(&self, bans: u32) -> u64 {
        let reached = usize::try_from(bans).unwrap_or(MAX_RUNGS).saturating_add(1);
        self.rungs_us().take(reached).last().unwrap_or(0)
    }

    /// Every rung, in microseconds.
    pub fn rungs_us(&self) -> impl Iterator<Item = u64> {
        let rungs_ms = self.rungs.iter().map(|rung| rung.get()).take_while(|&ms| ms > 0);
        rungs_ms.map(|ms| ms.saturating_mul(MS_US))
    }

    /// The longest rung, in microseconds.
    pub fn longest_us(&self) -> u64 {
        self.rungs_us().max().unwrap_or(0)
    }
}

#[cfg(feature = "testing")]
#[allow(clippy::expect_used, clippy::arithmetic_side_effects, reason = "only for tests")]
impl Ladder {
    /// The ladder of these rungs, in milliseconds.
    pub fn of_ms(rungs_ms: &[u64]) -> Self {
        let (first, others) = rungs_ms.split_first().expect("a rung");
        let first = Self::new(first * MS_US).expect("a rung");
        others.iter().fold(first, |ladder, rung_ms| ladder.and(rung_ms * MS_US).expect("a rung"))
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX_MS: u64 = MAX_PERIOD_US / MS_US;

    #[test]
    fn a_rung_out_of_range_or_beyond_the_eighth_is_refused() {
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
