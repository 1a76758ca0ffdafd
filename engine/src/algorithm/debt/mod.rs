//! Debt: the state of `bucket` and `leaky`.
//!
//! A token bucket of capacity `B` with `k` tokens left owes `B - k` units; a leaky bucket owes its
//! queue. Debt drains evenly at `L/W` units a microsecond:
//!
//! ```text
//! debt(t) = max(0, debt(last) - (t - last) * L / W)
//!
//! bucket   admits c  iff  debt(t) + c <= burst
//! leaky    admits c  iff  debt(t) + c <= queue + 1, its turn debt(t)*W/L later
//! ```
//!
//! The debt is stored as whole units and a remainder in `1/W` units. In these fractions a microsecond
//! drains exactly `L`, so nothing is ever rounded. This is GCRA (ITU-T I.371) with the theoretical
//! arrival time (TAT) written as a debt. A debt stays valid when the limit or the burst changes;
//! tokens or a TAT would need a conversion.
//!
//! Units have 32 bits, periods 48 and times 64. A sum of a few products of units
//! with periods or times stays far below 2^128, so additions cannot overflow.

#[cfg(feature = "testing")]
pub mod naive;
#[cfg(feature = "saved")]
pub mod saved;

use super::{
    Algorithm, BucketParams, Excess, LeakyParams, Moment, NO_TIME_US, Params, Reading, Refill,
    Uint48,
};
use crate::exact::{ceil_div, floor_div, narrow, product};
use crate::rule::{Kind, Rule};

/// 32 bytes: half a cache line. The server's entry for the key has the same size, so an allocator
/// with size classes places both next to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debt {
    /// When units were last added; [`NO_TIME_US`] if nothing is owed.
    last_us: u64,
    /// The period, the denominator of `rem`.
    pub period: Uint48,
    /// `rem / period` of a unit is owed on top of `units`.
    pub rem: Uint48,
    /// Whole units owed at `last_us`.
    pub units: u32,
    /// The limit of the last rule that added to it; never 0.
    pub limit: u32,
    /// The burst or the queue.
    pub burst_or_queue: BurstOrQueue,
}

/// The burst of a token bucket or the queue of a leaky one, with two flags, in 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstOrQueue(u32);

impl BurstOrQueue {
    const LEAKY: u32 = 1 << 31;
    const THROTTLE: u32 = 1 << 30;
    const UNITS: u32 = Self::THROTTLE.wrapping_sub(1);

    /// The burst of a token bucket, or the queue of a leaky one.
    pub fn new(units: u32, leaky: bool) -> Self {
        Self(if leaky { Self::LEAKY } else { 0 }).with_units(units)
    }

    fn with_units(self, units: u32) -> Self {
        Self(self.0 & !Self::UNITS | units.min(Self::UNITS))
    }

    pub const fn units(self) -> u32 {
        self.0 & Self::UNITS
    }
}

impl Debt {
    /// True for a leaky bucket.
    pub const fn is_leaky(&self) -> bool {
        self.burst_or_queue.0 & BurstOrQueue::LEAKY != 0
    }

    /// True for a token bucket named `throttle`.
    pub const fn is_throttle(&self) -> bool {
        self.burst_or_queue.0 & BurstOrQueue::THROTTLE != 0
    }

    pub const fn mark_as_throttle(&mut self) {
        self.burst_or_queue.0 |= BurstOrQueue::THROTTLE;
    }

    /// A debt of `units`, consumed at `last_us`.
    pub fn of_units(rule: &Rule, last_us: u64, units: u64) -> Self {
        let leaky = rule.kind() == Kind::Leaky;
        Self {
            last_us: if units == 0 { NO_TIME_US } else { last_us },
            period: Uint48::saturating(rule.period_us()),
            rem: Uint48::default(),
            units: u32::try_from(units).unwrap_or(u32::MAX),
            limit: rule.limit().max(1),
            burst_or_queue: BurstOrQueue::new(rule.burst_or_queue(), leaky),
        }
    }

    /// Converts the debt to the limit and the fractions of a rule, rounding up.
    pub fn reshaped(self, rule: &Rule) -> Self {
        let (limit, period_us) = (rule.limit().max(1), rule.period_us());
        if period_us == self.period_us() {
            return Self { limit, ..self };
        }
        let rem = ceil_div(product(self.rem.get(), period_us), self.period_us());
        let carry = u32::from(rem >= period_us);
        Self {
            period: Uint48::saturating(period_us),
            rem: Uint48::saturating(if carry == 1 { 0 } else { rem }),
            units: self.units.saturating_add(carry),
            limit,
            ..self
        }
    }

    /// The debt at `last_us`, in fractions of the period.
    pub fn owed(&self) -> u128 {
        product(u64::from(self.units), self.period_us()).wrapping_add(self.rem.get().into())
    }

    /// The debt at `at_us >= last_us`, in fractions of the period. If `limit` is below the debt's
    /// own limit, the debt drains more slowly, but ends no later than at its own limit.
    #[inline(always)]
    pub fn owed_at(&self, limit: u32, at_us: u64) -> u128 {
        if limit < self.limit && self.has_drained(at_us) { 0 } else { self.left_at(limit, at_us) }
    }

    /// The debt that is left at `at_us >= last_us` if it drains at this limit.
    #[inline(always)]
    fn left_at(&self, limit: u32, at_us: u64) -> u128 {
        let drained = product(at_us.saturating_sub(self.last_us), u64::from(limit));
        self.owed().saturating_sub(drained)
    }

    /// True if the debt has drained to 0 at its own limit.
    #[cold]
    fn has_drained(&self, at_us: u64) -> bool {
        self.left_at(self.limit, at_us) == 0
    }

    /// What a rule reads if its limit is below the debt's own limit.
    #[cold]
    fn read_until_its_end(&self, rule: &Rule, at_us: u64, cost: u32) -> Reading {
        let owed = self.owed_at(rule.limit(), at_us);
        let reading = self.read_owed(owed, rule, at_us, cost);
        if owed > 0 { reading.until(self.ends()) } else { reading }
    }

    #[inline(always)]
    fn read_owed(&self, owed: u128, rule: &Rule, at_us: u64, cost: u32) -> Reading {
        let (period_us, limit) = (self.period_us(), u64::from(rule.limit()));
        let capacity = rule.capacity();
        let over = owed
            .wrapping_add(product(u64::from(cost), period_us))
            .saturating_sub(product(capacity, period_us));
        let admits = match (over, limit) {
            (0, _) => Moment::At(at_us),
            (_, 0) => Moment::Never,
            (over, limit) => Moment::At(at_us.saturating_add(ceil_div(over, limit))),
        };
        let turn_us = if self.is_leaky() { at_us.saturating_add(ceil_div(owed, limit)) } else { 0 };
        let remaining = capacity.saturating_sub(ceil_div(owed, period_us));
        Reading { at_us, remaining, admits, turn_us }
    }

    /// Drains the debt at `limit`, then adds `units` up to `capacity`. If the debt had
    /// drained, stores `limit`; otherwise keeps the stored limit. When a rule consumes, the caller
    /// stores the limit and the burst or queue of the rule. Saturates at 2^32 - 1 units, more than
    /// four times the largest burst.
    #[inline(always)]
    pub fn add(&mut self, limit: u32, at_us: u64, units: u32, capacity: u64) {
        let owed = self.owed_at(limit, at_us);
        if owed == 0 {
            self.limit = limit.max(1);
        }
        let free = product(capacity, self.period_us()).saturating_sub(owed);
        self.last_us = at_us;
        self.set(owed.wrapping_add(product(u64::from(units), self.period_us()).min(free)));
    }

    /// Lowers the stored limit to the limit of a hold's charge. The stored limit decides when the
    /// debt ends.
    pub fn drain_no_faster_than(&mut self, limit: u32) {
        if limit > 0 {
            self.limit = self.limit.min(limit);
        }
    }

    /// The most units that may be owed under the stored burst or queue.
    pub fn capacity(&self) -> u64 {
        u64::from(self.burst_or_queue.units()).saturating_add(self.is_leaky().into())
    }

    /// Sets what is owed at its last time.
    #[inline(always)]
    fn set(&mut self, owed: u128) {
        let units = floor_div(owed, self.period_us());
        let rem = owed.saturating_sub(product(units, self.period_us()));
        self.units = u32::try_from(units).unwrap_or(u32::MAX);
        self.rem = Uint48::saturating(narrow(rem));
        if owed == 0 {
            self.last_us = NO_TIME_US;
        }
    }

    /// When the debt has drained to 0 at `limit` or at its own limit, whichever is higher.
    #[inline(always)]
    fn drained(&self, limit: u32) -> Moment {
        let rate = u64::from(limit.max(self.limit));
        Moment::At(match self.owed() {
            0 => 0,
            owed => self.last_us.saturating_add(ceil_div(owed, rate)),
        })
    }
}

/// The most units that can pass within one period. The words of `bucket` and `leaky` derive it.
pub fn worst_in_period(rule: &Rule) -> u64 {
    let (limit, period_us) = (u64::from(rule.limit()), rule.period_us().max(1));
    rule.capacity().saturating_add(limit).saturating_sub(limit.div_ceil(period_us))
}

impl Algorithm for Debt {
    #[inline]
    fn params(&self) -> Params {
        let units = self.burst_or_queue.units();
        if self.is_leaky() {
            Params::Leaky(LeakyParams { queue: units })
        } else {
            Params::Bucket(BucketParams { burst: units, refill: Refill::Even })
        }
    }

    fn limit(&self) -> Option<u32> {
        Some(self.limit)
    }

    #[inline]
    fn last_us(&self) -> u64 {
        self.last_us
    }

    fn period_us(&self) -> u64 {
        self.period.get()
    }

    fn is_empty(&self) -> bool {
        self.units == 0 && self.rem == Uint48::default()
    }

    fn consumed(&self, at_us: u64) -> u64 {
        ceil_div(self.owed_at(self.limit, at_us), self.period_us())
    }

    #[inline(always)]
    fn read(&self, rule: &Rule, at_us: u64, cost: u32) -> Reading {
        if rule.limit() < self.limit {
            return self.read_until_its_end(rule, at_us, cost);
        }
        self.read_owed(self.left_at(rule.limit(), at_us), rule, at_us, cost)
    }

    fn consume(&mut self, rule: &Rule, at_us: u64, cost: u32) {
        self.add(rule.limit(), at_us, cost, rule.capacity());
        self.burst_or_queue = self.burst_or_queue.with_units(rule.burst_or_queue());
        if rule.limit() > 0 {
            self.limit = rule.limit();
        }
    }

    /// When the debt has drained to 0 at its own limit.
    #[inline(always)]
    fn ends(&self) -> Moment {
        self.drained(self.limit)
    }

    #[inline(always)]
    fn clears(&self, rule: &Rule) -> Moment {
        self.drained(rule.limit())
    }

    fn refund(&mut self, _window_us: u64, at_us: u64, units: u32) -> u64 {
        let owed = self.owed_at(self.limit, at_us);
        if owed == 0 {
            return 0;
        }
        let back = product(units.into(), self.period_us());
        if owed > back {
            self.take_off(back);
        } else {
            self.set(0);
        }
        ceil_div(owed.min(back), self.period_us())
    }

    // A debt does not know when its units were consumed, so `give_back` returns nothing. Instead, a
    // token bucket gives back up to the least debt since the check; the hold's track stores this. A
    // leaky bucket gives back a hold's units only if nothing queued after the hold: no turn may be
    // promised twice.
    fn unit(&self) -> Option<u64> {
        Some(self.period_us())
    }

    /// The debt drained at `limit`, in fractions of the period.
    fn level(&self, limit: u32, at_us: u64) -> u128 {
        self.owed_at(limit, at_us)
    }

    fn take_off(&mut self, fractions: u128) {
        self.set(self.owed().saturating_sub(fractions));
    }

    /// Drains the debt at the limit of the charge, then adds the excess.
    fn consume_excess(&mut self, excess: Excess, at_us: u64) {
        self.add(excess.limit, at_us, excess.units, excess.most(self.capacity()));
        self.drain_no_faster_than(excess.limit);
    }
}
