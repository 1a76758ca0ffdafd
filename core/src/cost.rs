//! What a request costs.

use ratelimit_engine::rule::MAX_UNITS;
use thiserror::Error;

/// The cost of a request, or an amount to give back: 0 to a billion units.
///
/// ```
/// use ratelimit_core::Cost;
///
/// const PAGE: Cost = Cost::ONE;
/// let tokens: u32 = 1_500;
/// assert!(Cost::new(tokens.into())? > PAGE);
/// let error = Cost::new(1_000_000_001).unwrap_err();
/// assert_eq!(error.to_string(), "a cost of 1000000001 units, expected at most 1000000000");
/// # Ok::<(), ratelimit_core::CostError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(u32);

impl Cost {
    /// A cost that consumes nothing.
    pub const ZERO: Self = Self(0);
    /// The cost of [`Limiter::check`](crate::Limiter::check).
    pub const ONE: Self = Self(1);
    /// The largest cost: a billion units.
    pub const MAX: Self = Self(MAX_UNITS);

    /// A cost of this number of units.
    ///
    /// # Errors
    /// [`CostError`] if it is more than a billion.
    pub const fn new(units: u64) -> Result<Self, CostError> {
        if units > MAX_UNITS as u64 { Err(CostError { units }) } else { Ok(Self(units as u32)) }
    }

    /// The number of units.
    #[must_use]
    pub const fn units(self) -> u32 {
        self.0
    }
}

/// A cost is more than a billion units.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("a cost of {units} units, expected at most {MAX_UNITS}")]
pub struct CostError {
    units: u64,
}
