//! Token bucket: a [debt](super::debt) that drains evenly. With `refill=interval` it is an
//! [`Interval`] instead:
//!
//! ```text
//!        W                  W
//! |<----------->|    |<----------->|
//! ^ first take       ^ first take after the refill
//! ```
//!
//! The period starts with the first request that takes a token. At the end of the period all
//! tokens come back. Admits `c` iff `used + c <= burst`.

#[cfg(feature = "testing")]
pub mod naive;
#[cfg(feature = "saved")]
pub mod saved;
mod words;

use crate::algorithm::{Algorithm, Excess, Moment, NO_TIME_US, OpenWindow, Params, Reading};
use crate::rule::Rule;
pub use words::{BucketParams, Refill};

/// 32 bytes, a size class of the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Opens when the first token is taken.
    pub window: OpenWindow,
    /// Tokens taken in the window.
    pub used: u32,
    /// The limit of the rule that consumed last.
    pub limit: u32,
    /// The burst of the rule that consumed last.
    pub burst: u32,
}

impl Interval {
    /// An interval with `units` tokens taken at `last_us`.
    pub fn of_units(rule: &Rule, last_us: u64, units: u64) -> Self {
        Self {
            window: OpenWindow::new(rule.period_us(), last_us.cast_signed(), last_us),
            used: u32::try_from(units).unwrap_or(u32::MAX),
            limit: rule.limit(),
            burst: rule.burst_or_queue(),
        }
    }

    pub fn used_at(&self, at_us: u64) -> u32 {
        if at_us >= self.window.end_us() { 0 } else { self.used }
    }

    /// Takes tokens up to `capacity`. Does not change the stored limit and burst: when a rule
    /// consumes, the caller stores its limit and burst.
    #[inline(always)]
    pub fn add(&mut self, at_us: u64, units: u32, capacity: u64) {
        let capacity = u32::try_from(capacity).unwrap_or(u32::MAX);
        let used = self.used_at(at_us);
        if used > 0 {
            self.window.reach(at_us);
        } else {
            self.window = OpenWindow::new(self.period_us(), at_us.cast_signed(), at_us);
        }
        self.used = used.max(used.saturating_add(units).min(capacity));
    }

    /// Gives back up to `units` of the tokens taken in its window, and returns how many.
    fn give(&mut self, units: u64) -> u64 {
        let back = u64::from(self.used).min(units);
        self.used = self.used.saturating_sub(u32::try_from(back).unwrap_or(u32::MAX));
        back
    }
}

impl Algorithm for Interval {
    fn params(&self) -> Params {
        Params::Bucket(BucketParams { burst: self.burst, refill: Refill::Interval })
    }

    fn limit(&self) -> Option<u32> {
        Some(self.limit)
    }

    fn period_us(&self) -> u64 {
        self.window.period_us()
    }

    fn last_us(&self) -> u64 {
        if self.is_empty() { NO_TIME_US } else { self.window.last_us() }
    }

    fn is_empty(&self) -> bool {
        self.used == 0
    }

    fn read(&self, rule: &Rule, at_us: u64, cost: u32) -> Reading {
        let (used, capacity) = (self.used_at(at_us).into(), rule.capacity());
        Reading::of_used(at_us, (used, capacity), cost, || Moment::At(self.window.end_us()))
    }

    fn consume(&mut self, rule: &Rule, at_us: u64, cost: u32) {
        self.add(at_us, cost, rule.capacity());
        (self.limit, self.burst) = (rule.limit(), rule.burst_or_queue());
    }

    fn consumed(&self, at_us: u64) -> u64 {
        self.used_at(at_us).into()
    }

    fn ends(&self) -> Moment {
        Moment::At(if self.used == 0 { 0 } else { self.window.end_us() })
    }

    fn refund(&mut self, _window_us: u64, at_us: u64, units: u32) -> u64 {
        if self.used_at(at_us) == 0 { 0 } else { self.give(units.into()) }
    }

    // A hold gives tokens back only if the bucket has not refilled since it took them.
    fn unit(&self) -> Option<u64> {
        Some(1)
    }

    /// The tokens taken.
    fn level(&self, _limit: u32, at_us: u64) -> u128 {
        self.used_at(at_us).into()
    }

    fn give_back(&mut self, stamp_us: u64, units: u64) -> u64 {
        if self.window.contains(stamp_us) { self.give(units) } else { 0 }
    }

    fn consume_excess(&mut self, excess: Excess, at_us: u64) {
        self.add(at_us, excess.units, excess.most(self.burst.into()));
    }
}
