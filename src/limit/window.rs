//! Sliding window counter: an approximation of the sliding log in `res + 1`
//! counters.
//!
//! The window is cut into `res` sub-intervals of `w = W/res`, aligned to the
//! epoch. With `e` the elapsed part of the present one:
//!
//! ```text
//!   old   | ------- res counters: cur ------- |
//! |-------|-------|-------|-------|-------:   |
//!     |<------------- W ----------------->|e  |
//!
//! admits c  iff  old*(w-e) + (cur+c)*w <= L*w
//! ```
//!
//! With `res=1` these are the two counters of the well-known approximation
//! (current count plus weighted previous count). `w` need not be a whole
//! number of microseconds: positions are kept in ticks of `1/res` of one, in
//! which a sub-interval is exactly `W` long.

use super::exact::{ceil_div, floor_div, narrow, product};
use super::reading::{Moment, Reading};
use super::rule::{Algorithm, Rule};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    pub last_us: u64,
    pub period_us: u64,
    /// Counts of the sub-interval of `last_us` and the `res` before it, newest
    /// first.
    pub counts: Box<[u64]>,
    pub limit: u32,
}

impl Window {
    /// Units consumed at a time, for a state that changes its shape.
    pub fn of_units(rule: &Rule, last_us: u64, units: u64) -> Self {
        let mut counts = vec![0; usize::from(res(rule)).saturating_add(1)].into_boxed_slice();
        if let Some(newest) = counts.first_mut() {
            *newest = units;
        }
        Self { last_us, period_us: rule.period_us(), counts, limit: rule.limit() }
    }

    /// Sub-intervals a window.
    pub fn res(&self) -> u64 {
        (self.counts.len() as u64).saturating_sub(1).max(1)
    }

    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|&n| n == 0)
    }

    /// The sub-interval a time lies in, and the ticks elapsed of it.
    fn position(&self, at_us: u64) -> (u64, u64) {
        let ticks = product(at_us, self.res());
        let index = floor_div(ticks, self.period_us);
        (index, narrow(ticks.saturating_sub(product(index, self.period_us))))
    }

    /// How many sub-intervals a time lies after that of `last_us`.
    fn shift(&self, at_us: u64) -> usize {
        let (then, _) = self.position(self.last_us);
        let (now, _) = self.position(at_us);
        usize::try_from(now.saturating_sub(then)).unwrap_or(usize::MAX)
    }

    /// The counts still in sight after a shift, newest first, and the one that
    /// is weighted.
    fn in_sight(&self, shift: usize) -> (&[u64], u64) {
        let res = self.counts.len().saturating_sub(1);
        match res.checked_sub(shift) {
            None => (&[], 0),
            Some(cur) => (
                self.counts.get(..cur).unwrap_or_default(),
                self.counts.get(cur).copied().unwrap_or(0),
            ),
        }
    }

    /// `old*(w-e) + cur*w` in ticks.
    fn load(&self, at_us: u64) -> u128 {
        let (_, elapsed) = self.position(at_us);
        let (cur, old) = self.in_sight(self.shift(at_us));
        product(sum(cur), self.period_us)
            .saturating_add(product(old, self.period_us.saturating_sub(elapsed)))
    }

    /// What still counts at a time, rounded up.
    pub fn consumed(&self, at_us: u64) -> u64 {
        ceil_div(self.load(at_us), self.period_us)
    }

    pub fn read(&self, rule: &Rule, at_us: u64, cost: u32) -> Reading {
        let limit = product(u64::from(rule.limit()), self.period_us);
        let load = self.load(at_us);
        let fits = load.saturating_add(product(u64::from(cost), self.period_us)) <= limit;
        Reading {
            at_us,
            remaining: floor_div(limit.saturating_sub(load), self.period_us),
            admits: Moment::At(if fits { at_us } else { self.fits_us(rule, at_us, cost) }),
            turn_us: 0,
        }
    }

    /// When a cost that does not fit at `at_us` but fits an empty window will:
    /// one sub-interval after another is tried, the load falling all the while.
    fn fits_us(&self, rule: &Rule, at_us: u64, cost: u32) -> u64 {
        let allowance = u64::from(rule.limit()).saturating_sub(u64::from(cost));
        let (index, _) = self.position(at_us);
        let shift = self.shift(at_us);
        for later in 0..=self.counts.len() {
            let (cur, old) = self.in_sight(shift.saturating_add(later));
            let Some(room) = allowance.checked_sub(sum(cur)) else { continue };
            // old*(W-e) <= room*W
            let elapsed = match old {
                0 => 0,
                old => self.period_us.saturating_sub(floor_div(product(room, self.period_us), old)),
            };
            let ticks = product(index.saturating_add(later as u64), self.period_us)
                .saturating_add(u128::from(elapsed));
            return ceil_div(ticks, self.res()).max(at_us);
        }
        at_us
    }

    /// Counts units in the present sub-interval.
    pub fn consume(&mut self, rule: &Rule, at_us: u64, cost: u32) {
        let shift = self.shift(at_us).min(self.counts.len());
        self.counts.rotate_right(shift);
        if let Some(passed) = self.counts.get_mut(..shift) {
            passed.fill(0);
        }
        if let Some(newest) = self.counts.first_mut() {
            *newest = newest.saturating_add(u64::from(cost));
        }
        self.last_us = at_us;
        self.limit = rule.limit();
    }

    /// Gives units back, newest first, of the counters still in sight.
    pub fn refund(&mut self, at_us: u64, units: u32) -> u64 {
        let in_sight = self.counts.len().saturating_sub(self.shift(at_us));
        let mut left = u64::from(units);
        for count in self.counts.iter_mut().take(in_sight) {
            let back = left.min(*count);
            *count = count.saturating_sub(back);
            left = left.saturating_sub(back);
        }
        u64::from(units).saturating_sub(left)
    }

    pub fn clears(&self) -> Moment {
        let (index, _) = self.position(self.last_us);
        let newest = self.counts.iter().position(|&n| n > 0);
        Moment::At(newest.map_or(0, |age| {
            let out_of_sight =
                index.saturating_add(self.counts.len() as u64).saturating_sub(age as u64);
            ceil_div(product(out_of_sight, self.period_us), self.res())
        }))
    }
}

fn sum(counts: &[u64]) -> u64 {
    counts.iter().fold(0, |total, &n| total.saturating_add(n))
}

fn res(rule: &Rule) -> u8 {
    match rule.algorithm() {
        Algorithm::Window { res } => res,
        _ => 1,
    }
}
