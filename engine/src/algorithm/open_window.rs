//! An open window, and the time of the last request counted in it. Shared by `fixed` and `bucket`
//! with `refill=interval`.
//!
//! ```text
//! |<------------ period ------------>|
//! |<----- into ----->|
//! ^ start            ^ last            start <= last < start + period
//! ```
//!
//! A window opens no later than the first request counted in it. A request before the last one is
//! counted at the last one's time, because a state's time never runs backwards. A request after the
//! end opens another window. A month ends by the calendar, although its stored period is 31 days.

use super::Uint48;
#[cfg(feature = "saved")]
use crate::saved::{DecodeError, check_period, check_start, check_time};

/// 20 bytes without alignment, so its owner needs no padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenWindow {
    start: [u8; 8],
    period: Uint48,
    into: Uint48,
}

impl OpenWindow {
    /// A window that opened at or before `last_us`, perhaps before the epoch.
    #[inline]
    pub fn new(period_us: u64, start_us: i64, last_us: u64) -> Self {
        Self {
            start: start_us.to_le_bytes(),
            period: Uint48::saturating(period_us),
            into: Uint48::saturating(since(start_us, last_us)),
        }
    }

    #[inline]
    pub const fn start_us(&self) -> i64 {
        i64::from_le_bytes(self.start)
    }

    #[inline]
    pub const fn period_us(&self) -> u64 {
        self.period.get()
    }

    /// The time of the last request counted.
    #[inline]
    pub const fn last_us(&self) -> u64 {
        self.after_start(self.into.get())
    }

    /// When it ends by its period. The calendar may end it earlier.
    #[inline]
    pub const fn end_us(&self) -> u64 {
        self.after_start(self.period.get())
    }

    /// True if `at_us` lies within its period. The calendar may end it earlier.
    pub const fn contains(&self, at_us: u64) -> bool {
        since(self.start_us(), at_us) < self.period_us()
    }

    /// Moves the last time to `at_us`, which is not earlier.
    #[inline]
    pub fn reach(&mut self, at_us: u64) {
        self.into = Uint48::saturating(since(self.start_us(), at_us));
    }

    /// The time `us` after the start. Callers ask only for times from the last request on, never
    /// before the epoch. A start before the epoch wraps, as in `since`.
    const fn after_start(&self, us: u64) -> u64 {
        self.start_us().cast_unsigned().wrapping_add(us)
    }
}

#[cfg(feature = "saved")]
impl OpenWindow {
    /// A window that was saved; `None` if the last request lies outside it.
    pub fn saved(period_us: u64, start_us: i64, last_us: u64) -> Option<Self> {
        let window = Self::new(period_us, start_us, last_us);
        let fits = since(start_us, last_us) < period_us && period_us <= Uint48::MAX;
        fits.then_some(window)
    }

    /// Loads a window, and refuses it if the last request lies outside it.
    pub fn load(last_us: u64, period_us: u64, start_us: i64) -> Result<Self, DecodeError> {
        check_time(last_us)?;
        check_period(period_us)?;
        check_start(start_us)?;
        Self::saved(period_us, start_us, last_us).ok_or(DecodeError::OutOfRange("a window's start"))
    }
}

/// The time since the start. A start before the epoch wraps to a huge `u64`; the wrapping
/// subtraction undoes this. If the start lies after `at_us`, the result is longer than any period.
const fn since(start_us: i64, at_us: u64) -> u64 {
    at_us.wrapping_sub(start_us.cast_unsigned())
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::rule::{MAX_PERIOD_US, MAX_TIME_US, MS_US};
    use proptest::prelude::*;

    fn period() -> impl Strategy<Value = u64> {
        prop_oneof![Just(MS_US), Just(MAX_PERIOD_US), MS_US..=MAX_PERIOD_US]
    }

    /// Starts of windows that a check can open.
    fn start() -> impl Strategy<Value = i64> {
        let latest = MAX_TIME_US.cast_signed();
        let earliest = -MAX_PERIOD_US.cast_signed();
        prop_oneof![Just(0), Just(latest), earliest..=0, earliest..=latest]
    }

    /// A period, a start, and a time: before that window, in it, after it, or near its bounds.
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
            let window = OpenWindow::saved(period_us, start_us, last_us);
            prop_assert_eq!(window.is_some(), (0..i128::from(period_us)).contains(&into));
            if let Some(window) = window {
                prop_assert_eq!(window, OpenWindow::new(period_us, start_us, last_us));
                prop_assert_eq!(window.period_us(), period_us);
                prop_assert_eq!(window.start_us(), start_us);
                prop_assert_eq!(window.last_us(), last_us);
                prop_assert_eq!(i128::from(window.end_us()), i128::from(start_us) + i128::from(period_us));
            }
        }

        #[test]
        fn counting_later_changes_only_the_last_time(
            (period_us, start_us, last_us) in time(),
            later in any::<prop::sample::Index>(),
        ) {
            let Some(mut window) = OpenWindow::saved(period_us, start_us, last_us) else { return Ok(()) };
            let at_us = last_us + later.index((window.end_us() - last_us) as usize) as u64;
            window.reach(at_us);
            prop_assert_eq!(Some(window), OpenWindow::saved(period_us, start_us, at_us));
        }
    }

    #[test]
    fn no_number_causes_a_panic() {
        for start_us in [i64::MIN, -1, 0, i64::MAX] {
            for last_us in [0, 1, u64::MAX] {
                for period_us in [0, 1, Uint48::MAX, u64::MAX] {
                    let mut window = OpenWindow::new(period_us, start_us, last_us);
                    window.reach(last_us / 2);
                    let _ = (window.last_us(), window.end_us());
                }
            }
        }
    }
}
