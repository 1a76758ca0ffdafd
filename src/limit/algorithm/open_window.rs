//! A open: a period that has begun, and when in it something was last counted.
//! What `fixed` and `bucket` with `refill=interval` have in common.
//!
//! ```text
//! |<------------ period ------------>|
//! |<----- into ----->|
//! ^ start            ^ last            start <= last < start + period
//! ```
//!
//! A open opens no later than what is first counted in it. What comes before
//! the last is counted at the last, for a state's time never runs backwards,
//! and what comes after the end opens another open. A month ends by the
//! calendar instead, but never after the 31 days it counts as.

use super::uint48::Uint48;

/// 20 bytes, aligned to nothing, so that whoever has one needs no padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenWindow {
    start: [u8; 8],
    period: Uint48,
    into: Uint48,
}

impl OpenWindow {
    /// One that opened at a time not after `last_us`; maybe before the epoch.
    #[inline]
    pub fn new(period_us: u64, start_us: i64, last_us: u64) -> Self {
        Self {
            start: start_us.to_le_bytes(),
            period: Uint48::saturating(period_us),
            into: Uint48::saturating(since(start_us, last_us)),
        }
    }

    /// One that opens with what is first counted in it.
    #[inline]
    pub fn opened_by_count(period_us: u64, at_us: u64) -> Self {
        Self::new(period_us, at_us.cast_signed(), at_us)
    }

    /// One that was saved; `None` if the last count was not in it.
    pub fn saved(period_us: u64, start_us: i64, last_us: u64) -> Option<Self> {
        let open = Self::new(period_us, start_us, last_us);
        let fits = since(start_us, last_us) < period_us && period_us <= Uint48::MAX;
        fits.then_some(open)
    }

    #[inline]
    pub const fn start_us(&self) -> i64 {
        i64::from_le_bytes(self.start)
    }

    #[inline]
    pub const fn period_us(&self) -> u64 {
        self.period.get()
    }

    /// When something was last counted.
    #[inline]
    pub const fn last_us(&self) -> u64 {
        self.after_start(self.into.get())
    }

    /// When it is over, if its length is the period's.
    #[inline]
    pub const fn end_us(&self) -> u64 {
        self.after_start(self.period.get())
    }

    /// Something is counted at a time not before the last.
    #[inline]
    pub fn reach(&mut self, at_us: u64) {
        self.into = Uint48::saturating(since(self.start_us(), at_us));
    }

    /// Wraps as `since` does: no time after the last lies before the epoch.
    const fn after_start(&self, us: u64) -> u64 {
        self.start_us().cast_unsigned().wrapping_add(us)
    }
}

/// How long after the start. A start before the epoch wraps, and the difference
/// wraps back; it is longer than any period if the start comes later.
const fn since(start_us: i64, at_us: u64) -> u64 {
    at_us.wrapping_sub(start_us.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::{MAX_PERIOD_US, MAX_TIME_US, MS_US};
    use proptest::prelude::*;

    fn period() -> impl Strategy<Value = u64> {
        prop_oneof![Just(MS_US), Just(MAX_PERIOD_US), MS_US..=MAX_PERIOD_US]
    }

    /// Starts of open windows that some time we decide at can lie in.
    fn start() -> impl Strategy<Value = i64> {
        let latest = MAX_TIME_US.cast_signed();
        let earliest = -MAX_PERIOD_US.cast_signed();
        prop_oneof![Just(0), Just(latest), earliest..=0, earliest..=latest]
    }

    /// Before a open, in it, at its bounds, after it.
    fn time() -> impl Strategy<Value = (u64, i64, u64)> {
        (period(), start(), 0..4u8, -2..=2i64, any::<prop::sample::Index>()).prop_map(
            |(period_us, start_us, near, by_us, index)| {
                let into_us = match near {
                    0 => 0,
                    1 => period_us.cast_signed(),
                    2 => index.index(period_us as usize) as i64,
                    _ => index.index(usize::MAX / 4) as i64 - (1 << 61),
                };
                let last_us = u64::try_from(start_us + into_us + by_us).unwrap_or(0);
                (period_us, start_us, last_us)
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn a_saved_open_window_is_exact_or_refused((period_us, start_us, last_us) in time()) {
            let into = i128::from(last_us) - i128::from(start_us);
            let open = OpenWindow::saved(period_us, start_us, last_us);
            prop_assert_eq!(open.is_some(), (0..i128::from(period_us)).contains(&into));
            if let Some(open) = open {
                prop_assert_eq!(open, OpenWindow::new(period_us, start_us, last_us));
                prop_assert_eq!(open.period_us(), period_us);
                prop_assert_eq!(open.start_us(), start_us);
                prop_assert_eq!(open.last_us(), last_us);
                prop_assert_eq!(i128::from(open.end_us()), i128::from(start_us) + i128::from(period_us));
            }
        }

        #[test]
        fn reaching_a_time_is_all_that_changes(
            (period_us, start_us, last_us) in time(),
            later in any::<prop::sample::Index>(),
        ) {
            let Some(mut open) = OpenWindow::saved(period_us, start_us, last_us) else { return Ok(()) };
            let at_us = last_us + later.index((open.end_us() - last_us) as usize) as u64;
            open.reach(at_us);
            prop_assert_eq!(Some(open), OpenWindow::saved(period_us, start_us, at_us));
        }
    }

    #[test]
    fn numbers_no_one_decides_at_bring_nothing_down() {
        for start_us in [i64::MIN, -1, 0, i64::MAX] {
            for last_us in [0, 1, u64::MAX] {
                for period_us in [0, 1, Uint48::MAX, u64::MAX] {
                    let mut open = OpenWindow::new(period_us, start_us, last_us);
                    open.reach(last_us / 2);
                    let _ = (open.last_us(), open.end_us());
                }
            }
        }
    }
}
