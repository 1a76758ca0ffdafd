//! A number in six bytes, because there are millions of states.

use core::fmt;

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

#[cfg(test)]
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
