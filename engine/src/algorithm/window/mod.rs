//! Sliding window counter: an approximation of the sliding log in `res + 1`
//! counters.
//!
//! The window is divided into `res` sub-intervals of `w = W/res`, aligned to the epoch. `e` is the
//! elapsed part of the present one:
//!
//! ```text
//!   old   | ------- res counters: cur ------- |
//! |-------|-------|-------|-------|-------:   |
//!     |<------------- W ----------------->|e  |
//!
//! admits c  iff  old*(w-e) + (cur+c)*w <= L*w
//! ```
//!
//! With `res=1` these are the two counters of the well-known approximation (current count plus
//! weighted previous count). `w` need not be a whole number of microseconds: positions are in ticks
//! of `1/res` microsecond, and a sub-interval is exactly `W` ticks long.

#[cfg(feature = "testing")]
pub mod naive;
#[cfg(feature = "saved")]
pub mod saved;
mod words;

use super::{Algorithm, Details, Excess, Moment, NO_TIME_US, Params, Reading, Uint48};
use crate::exact::{ceil_div, floor_div, product};
use crate::header_slice::HeaderSlice;
use crate::heap::HeapVisitor;
use crate::rule::{MAX_RES, Rule};
pub use words::WindowParams;
#[cfg(all(test, feature = "testing"))]
pub use words::worst;

/// One allocation: a header, then the counts of the last request's sub-interval and of the `res`
/// before it, newest first. With `res=1` it has 32 bytes, a size class of the allocator.
///
/// A count saturates at 2^48 - 1, after 280,000 requests of the largest cost in one sub-interval. A
/// limit is at most 10^9, so only `count=all` and shadows can get there. A saturated count still
/// exceeds the limit. Counts and periods have 48 bits each, so sums of their products stay far
/// below 2^128.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    counts: HeaderSlice<Head, Uint48, u16>,
}

/// With two counters, the usual number, the allocation is as large as the server's entry for a key.
const _: () = assert!(HeaderSlice::<Head, Uint48, u16>::OVERHEAD + 2 * size_of::<Uint48>() == 32);

/// Byte arrays only, so no padding follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    last_us: [u8; 8],
    period: Uint48,
    limit: [u8; 4],
}

/// The counts as read at one time.
struct CountsAt<'a> {
    /// The sub-interval that contains the time, numbered from the epoch.
    index: u64,
    /// The ticks since its start.
    elapsed: u64,
    /// The number of sub-intervals from the last request's to this one.
    shift: usize,
    counts: &'a [Uint48],
}

impl CountsAt<'_> {
    /// The units that count in full, and the weighted ones.
    fn counted(&self) -> (u64, u64) {
        let full = self.weighted_place(0).and_then(|place| self.counts.get(..place));
        let full = full.unwrap_or_default().iter().map(|count| count.get());
        (full.fold(0, u64::saturating_add), self.weighted(0))
    }

    /// The units that will be weighted after `later` sub-intervals if nothing is consumed.
    fn weighted(&self, later: usize) -> u64 {
        let count = self.weighted_place(later).and_then(|place| self.counts.get(place));
        count.map_or(0, |count| count.get())
    }

    fn weighted_place(&self, later: usize) -> Option<usize> {
        let res = self.counts.len().saturating_sub(1);
        res.checked_sub(self.shift.saturating_add(later))
    }
}

impl Window {
    /// Takes at least two counts, newest first.
    pub fn new(last_us: u64, period_us: u64, limit: u32, counts: &[u64]) -> Self {
        let head = Head {
            last_us: last_us.to_le_bytes(),
            period: Uint48::saturating(period_us),
            limit: limit.to_le_bytes(),
        };
        let len = u16::try_from(counts.len()).unwrap_or(u16::MAX);
        let mut window = Self { counts: HeaderSlice::new(head, Uint48::default(), len) };
        for (count, &units) in window.counts.items_mut().iter_mut().zip(counts) {
            *count = Uint48::saturating(units);
        }
        window.forget_time_if_empty();
        window
    }

    /// A window with `units` consumed at `last_us`.
    pub fn of_units(rule: &Rule, res: u8, last_us: u64, units: u64) -> Self {
        let mut counts = [0; MAX_RES as usize + 1];
        if let Some(newest) = counts.first_mut() {
            *newest = units;
        }
        let counts = counts.get(..=usize::from(res)).unwrap_or_default();
        Self::new(last_us, rule.period_us(), rule.limit(), counts)
    }

    /// Newest first.
    pub fn counts(&self) -> impl Iterator<Item = u64> + '_ {
        self.counts.items().iter().map(|count| count.get())
    }

    /// Sub-intervals per window.
    pub fn res(&self) -> u8 {
        u8::try_from(self.counts.count().saturating_sub(1)).unwrap_or(MAX_RES).max(1)
    }

    /// A time in ticks. At 60 ticks a microsecond, 64 bits last until the year 9999.
    fn ticks(&self, at_us: u64) -> u64 {
        at_us.saturating_mul(self.res().into())
    }

    /// Ticks in microseconds, rounded up.
    fn micros(&self, ticks: u64) -> u64 {
        ticks.div_ceil(self.res().into())
    }

    /// The sub-interval that contains a time, numbered from the epoch.
    fn index(&self, at_us: u64) -> u64 {
        self.ticks(at_us).checked_div(self.period_us()).unwrap_or(0)
    }

    fn counts_at(&self, at_us: u64) -> CountsAt<'_> {
        let index = self.index(at_us);
        let start = index.saturating_mul(self.period_us());
        let behind = start.saturating_sub(self.ticks(self.last_us()));
        // Most requests lie in the same sub-interval as the request before, and skip the division.
        let shift = if behind == 0 { 0 } else { behind.div_ceil(self.period_us().max(1)) };
        CountsAt {
            index,
            elapsed: self.ticks(at_us).saturating_sub(start),
            shift: usize::try_from(shift).unwrap_or(usize::MAX),
            counts: self.counts.items(),
        }
    }

    /// `old*(w-e) + cur*w` in ticks.
    fn load(&self, at: &CountsAt<'_>, (cur, old): (u64, u64)) -> u128 {
        let weight = self.period_us().saturating_sub(at.elapsed);
        product(cur, self.period_us()).wrapping_add(product(old, weight))
    }

    /// The first time at which at most `allowance` units count. Call this only if more than
    /// `allowance` units count now. Tries one sub-interval after another, since the load only falls.
    fn fits_us(&self, at: &CountsAt<'_>, (mut cur, mut old): (u64, u64), allowance: u64) -> u64 {
        for later in 0..=self.counts.items().len() {
            if let Some(room) = allowance.checked_sub(cur) {
                // old*(W-e) <= room*W
                let elapsed = match old {
                    0 => 0,
                    old => {
                        let weight = floor_div(product(room, self.period_us()), old);
                        self.period_us().saturating_sub(weight)
                    }
                };
                let index = at.index.saturating_add(later as u64);
                return self.micros(index.saturating_mul(self.period_us()).saturating_add(elapsed));
            }
            // The oldest sub-interval that counts in full becomes the weighted one.
            old = at.weighted(later.saturating_add(1));
            cur = cur.saturating_sub(old);
        }
        0
    }

    /// Counts units. Does not change the stored limit: when a rule consumes, the caller stores
    /// its limit.
    #[inline(always)]
    pub fn add(&mut self, at_us: u64, units: u32) {
        let shift = self.counts_at(at_us).shift;
        self.counts.header_mut().last_us = at_us.to_le_bytes();
        let counts = self.counts.items_mut();
        if shift > 0 {
            let shift = shift.min(counts.len());
            counts.rotate_right(shift);
            counts.iter_mut().take(shift).for_each(|count| *count = Uint48::default());
        }
        if let Some(newest) = counts.first_mut() {
            newest.add(units);
        }
    }

    /// The first address to read, for a prefetch.
    pub fn address(&self) -> *const u8 {
        self.counts.start()
    }

    /// Visits its heap allocation.
    pub fn visit_heap(&mut self, to: &mut impl HeapVisitor) {
        to.header_slice(&mut self.counts);
    }

    /// Called after units were taken from the counts.
    fn forget_time_if_empty(&mut self) {
        if self.is_empty() {
            self.counts.header_mut().last_us = NO_TIME_US.to_le_bytes();
        }
    }
}

impl Algorithm for Window {
    #[inline]
    fn params(&self) -> Params {
        Params::Window(WindowParams { res: self.res() })
    }

    /// The limit of the rule that consumed last.
    fn limit(&self) -> Option<u32> {
        Some(u32::from_le_bytes(self.counts.header().limit))
    }

    fn period_us(&self) -> u64 {
        self.counts.header().period.get()
    }

    fn last_us(&self) -> u64 {
        u64::from_le_bytes(self.counts.header().last_us)
    }

    fn is_empty(&self) -> bool {
        self.counts().all(|count| count == 0)
    }

    fn consumed(&self, at_us: u64) -> u64 {
        let at = self.counts_at(at_us);
        ceil_div(self.load(&at, at.counted()), self.period_us())
    }

    fn read(&self, rule: &Rule, at_us: u64, cost: u32) -> Reading {
        let at = self.counts_at(at_us);
        let counts = at.counted();
        let limit = product(u64::from(rule.limit()), self.period_us());
        let load = self.load(&at, counts);
        let fits = load.wrapping_add(product(u64::from(cost), self.period_us())) <= limit;
        let admits_us = if fits {
            at_us
        } else {
            let allowance = u64::from(rule.limit()).saturating_sub(u64::from(cost));
            self.fits_us(&at, counts, allowance).max(at_us)
        };
        Reading {
            at_us,
            remaining: floor_div(limit.saturating_sub(load), self.period_us()),
            admits: Moment::At(admits_us),
            turn_us: 0,
        }
    }

    fn consume(&mut self, rule: &Rule, at_us: u64, cost: u32) {
        self.add(at_us, cost);
        self.counts.header_mut().limit = rule.limit().to_le_bytes();
    }

    fn details(&self, at_us: Option<u64>) -> Option<Details> {
        let (current, previous) = at_us.map(|us| self.counts_at(us).counted()).unwrap_or_default();
        Some(Details::Window(WindowReport { current, previous }))
    }

    fn ends(&self) -> Moment {
        let Some(age) = self.counts().position(|count| count > 0) else { return Moment::At(0) };
        let counts = self.counts.items().len().saturating_sub(age);
        let end = self.index(self.last_us()).saturating_add(counts as u64);
        Moment::At(self.micros(end.saturating_mul(self.period_us())))
    }

    fn refund(&mut self, _window_us: u64, at_us: u64, units: u32) -> u64 {
        let units = u64::from(units);
        let still_count = self.counts.items().len().saturating_sub(self.counts_at(at_us).shift);
        let counts = self.counts.items_mut().iter_mut().take(still_count);
        let given = counts.fold(0, |given: u64, count| {
            given.saturating_add(count.take(units.saturating_sub(given)))
        });
        self.forget_time_if_empty();
        given
    }

    fn give_back(&mut self, stamp_us: u64, units: u64) -> u64 {
        let age = self.index(self.last_us()).checked_sub(self.index(stamp_us));
        let age = age.map_or(usize::MAX, |age| usize::try_from(age).unwrap_or(usize::MAX));
        let given = self.counts.items_mut().get_mut(age).map_or(0, |count| count.take(units));
        self.forget_time_if_empty();
        given
    }

    fn consume_excess(&mut self, excess: Excess, at_us: u64) {
        self.add(at_us, excess.units);
    }
}

/// The part of `RL.INFO` that only sliding window counters have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowReport {
    /// Units of the newest `res` sub-intervals, which count in full; with `res=1`, of the present
    /// window.
    pub current: u64,
    /// Units of the sub-interval before them, which are weighted; with `res=1`, of the previous
    /// window.
    pub previous: u64,
}
