//! Exact products and quotients: too wide to overflow, and rounded only where the name says so.

use core::fmt;

/// `a * b`, which always fits.
pub fn product(a: u64, b: u64) -> u128 {
    u128::from(a).wrapping_mul(u128::from(b))
}

/// `n / d`, rounded down; 0 for a divisor of 0; capped at `u64::MAX`.
pub fn floor_div(n: u128, d: u64) -> u64 {
    match (u64::try_from(n), d) {
        (_, 0) => 0,
        (Ok(n), d) => n.checked_div(d).unwrap_or(0),
        (Err(_), d) => wide_floor_div(n, d),
    }
}

/// `n / d`, rounded up; 0 for a divisor of 0; capped at `u64::MAX`.
#[inline(always)]
pub fn ceil_div(n: u128, d: u64) -> u64 {
    match (u64::try_from(n), d) {
        (_, 0) => 0,
        (Ok(n), d) => n.div_ceil(d),
        (Err(_), d) => wide_ceil_div(n, d),
    }
}

/// Out of line, since such large numbers are rare.
#[cold]
#[inline(never)]
fn wide_floor_div(n: u128, d: u64) -> u64 {
    narrow(n.checked_div(u128::from(d)).unwrap_or(0))
}

#[cold]
#[inline(never)]
fn wide_ceil_div(n: u128, d: u64) -> u64 {
    narrow(n.div_ceil(u128::from(d)))
}

/// `n`, capped at `u64::MAX`.
pub fn narrow(n: u128) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// Whole milliseconds, rounded up, so that no caller waits too briefly.
pub fn millis_up(us: u64) -> u64 {
    us.div_ceil(1_000)
}

/// 0 ..= 2^48 - 1: microseconds of almost nine years.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Uint48([u8; 6]);

impl Uint48 {
    pub const MAX: u64 = (1 << 48) - 1;

    /// `n`, capped at 2^48 - 1.
    #[inline]
    pub fn saturating(n: u64) -> Self {
        let [a, b, c, d, e, f, _, _] = n.min(Self::MAX).to_le_bytes();
        Self([a, b, c, d, e, f])
    }

    #[inline]
    pub const fn get(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }

    /// Adds `n`, stopping at 2^48 - 1.
    #[inline]
    pub fn add(&mut self, n: u32) {
        *self = Self::saturating(self.get().saturating_add(n.into()));
    }

    /// Subtracts up to `n`, and returns how much it subtracted.
    pub fn take(&mut self, n: u64) -> u64 {
        let taken = n.min(self.get());
        *self = Self::saturating(self.get().saturating_sub(taken));
        taken
    }
}

impl fmt::Debug for Uint48 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.get(), f)
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::rule::MAX_PERIOD_US;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_exact_up_to_the_largest(n in 0..=Uint48::MAX, beyond in Uint48::MAX..) {
            prop_assert_eq!(Uint48::saturating(n).get(), n);
            prop_assert_eq!(Uint48::saturating(beyond).get(), Uint48::MAX);
        }
    }

    #[test]
    fn six_bytes_hold_every_period() {
        assert_eq!(size_of::<Uint48>(), 6);
        const { assert!(MAX_PERIOD_US <= Uint48::MAX) };
    }
}
