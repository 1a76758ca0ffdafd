//! When a hold lapses: how long it is, and its place in the order of ends.

use crate::algorithm::{PackedWindow, not_before_us};
use crate::rule::MAX_PERIOD_US;

/// A hold's index in the rows. It changes when another hold ends.
pub type Row = u16;

/// An item in the order of ends: the row of a hold, which stores its end, and the hold's length.
#[derive(Clone, Copy, Debug)]
pub struct Lapse {
    pub row: Row,
    pub length: Length,
}

const _: () = assert!(size_of::<Lapse>() == 6);

/// How long a hold lasts from when it was set or last renewed. The [`PackedWindow`] is exact for a
/// hold of up to 24 days, and rounds up to a second beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length([u16; 2]);

impl Length {
    pub fn new(us: u64) -> Self {
        let PackedWindow(packed) = PackedWindow::new(us.min(MAX_PERIOD_US));
        let [a, b, c, d] = packed.to_ne_bytes();
        Self([u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d])])
    }

    pub fn micros(self) -> u64 {
        let [[a, b], [c, d]] = self.0.map(u16::to_ne_bytes);
        PackedWindow(u32::from_ne_bytes([a, b, c, d])).micros()
    }

    /// True if a hold of this length that ends at `end_us` lives at `now_us`.
    pub fn lives(self, end_us: u64, now_us: u64) -> bool {
        (not_before_us(end_us, self.micros())..end_us).contains(&now_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::{DAY_US, MS_US, SECOND_US};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_length_is_never_shortened(us in 0..=MAX_PERIOD_US) {
            let (stored, exact) = (Length::new(us).micros(), us <= 24 * DAY_US);
            let coarse = if exact { MS_US } else { SECOND_US };
            prop_assert!((us..us + coarse).contains(&stored), "{} for {}", stored, us);
            prop_assert_eq!(Length::new(stored).micros(), stored);
        }
    }

    #[test]
    fn a_length_of_centuries_is_cut_to_the_longest() {
        assert_eq!(Length::new(u64::MAX).micros(), MAX_PERIOD_US);
    }

    #[test]
    fn a_hold_lives_from_one_length_before_it_was_set() {
        let length = Length::new(30 * SECOND_US);
        for (now_s, lives) in [(39, false), (40, true), (70, true), (99, true), (100, false)] {
            assert_eq!(length.lives(100 * SECOND_US, now_s * SECOND_US), lives, "at {now_s}");
        }
    }
}
