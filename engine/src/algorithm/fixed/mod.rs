//! Fixed window counter: one count, dropped when its window ends.
//!
//! ```text
//! |--- n ---|--- n' ---|     admits c  iff  n + c <= L
//! ```
//!
//! With `align=first` a window begins at its first request. Otherwise windows begin at multiples of
//! the period since the epoch. Periods in weeks count from Monday 1970-01-05, and months follow the
//! calendar. `tz` shifts the windows.

pub mod calendar;
#[cfg(feature = "testing")]
pub mod naive;
#[cfg(feature = "saved")]
pub mod saved;
mod words;

use super::{
    Algorithm, Details, Excess, Meter, Moment, NO_TIME_US, OpenWindow, Params, Reading, Uint48,
};
use crate::rule::{MS_US, Rule};
use alloc::{boxed::Box, collections::VecDeque};
pub use words::FixedParams;

pub use self::calendar::Anchor;

/// 32 bytes, a size class of the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// The first windows of a time zone or of weeks begin before the epoch.
    pub window: OpenWindow,
    /// Saturates at 2^48 - 1, after 280,000 requests of the largest cost in one window. A limit is at
    /// most 10^9, so only `count=all` and shadows can get there. A saturated count still exceeds the
    /// limit.
    count: Uint48,
    pub anchor: Anchor,
    pub limit: u32,
}

impl Fixed {
    pub fn new(window: OpenWindow, count: u64, anchor: Anchor, limit: u32) -> Self {
        Self { window, count: Uint48::saturating(count), anchor, limit }
    }

    /// A window with `units` consumed at `last_us`.
    pub fn of_units(rule: &Rule, params: FixedParams, last_us: u64, units: u64) -> Self {
        let (period_us, anchor) = (rule.period_us(), Anchor::new(params.calendar, params.tz_min));
        let window = OpenWindow::new(period_us, anchor.start(period_us, last_us), last_us);
        Self::new(window, units, anchor, rule.limit())
    }

    /// When the window opened.
    pub const fn start_us(&self) -> i64 {
        self.window.start_us()
    }

    pub const fn count(&self) -> u64 {
        self.count.get()
    }

    /// When the window ends.
    pub fn end_us(&self) -> u64 {
        u64::try_from(self.anchor.end(self.period_us(), self.start_us())).unwrap_or(0)
    }

    /// True if `at_us` lies in the window of this shape that starts at `start_us`.
    fn contains(&self, start_us: i64, at_us: u64) -> bool {
        let window = start_us..self.anchor.end(self.period_us(), start_us);
        window.contains(&i64::try_from(at_us).unwrap_or(i64::MAX))
    }

    pub fn count_at(&self, at_us: u64) -> u64 {
        if at_us >= self.end_us() { 0 } else { self.count() }
    }

    /// Counts units. Does not change the stored limit: when a rule consumes, the caller stores
    /// its limit. Returns the previous window if it has closed.
    #[inline(always)]
    pub fn add(&mut self, at_us: u64, units: u32) -> Option<Past> {
        let mut closed = None;
        if self.count_at(at_us) > 0 {
            self.window.reach(at_us);
        } else {
            let (start_us, count) = (self.start_us(), self.count());
            closed = Some(Past { start_us, count }).filter(|past| past.count > 0);
            let (period_us, anchor) = (self.period_us(), self.anchor);
            self.window = OpenWindow::new(period_us, anchor.start(period_us, at_us), at_us);
            self.count = Uint48::default();
        }
        self.count.add(units);
        closed
    }

    /// Counts units for a rule, and returns the previous window if it has closed.
    fn count_for(&mut self, rule: &Rule, at_us: u64, cost: u32) -> Option<Past> {
        let closed = self.add(at_us, cost);
        self.limit = rule.limit();
        closed
    }

    /// The parameters of a rule that keeps this number of past windows.
    #[inline]
    fn params_with(&self, keep: u16) -> Params {
        let (calendar, tz_min) = (self.anchor.calendar(), self.anchor.tz_min());
        Params::Fixed(FixedParams { calendar, tz_min, keep })
    }
}

impl Algorithm for Fixed {
    fn period_us(&self) -> u64 {
        self.window.period_us()
    }

    #[inline(always)]
    fn last_us(&self) -> u64 {
        if self.is_empty() { NO_TIME_US } else { self.window.last_us() }
    }

    #[inline]
    fn params(&self) -> Params {
        self.params_with(0)
    }

    fn limit(&self) -> Option<u32> {
        Some(self.limit)
    }

    fn read(&self, rule: &Rule, at_us: u64, cost: u32) -> Reading {
        let (count, limit) = (self.count_at(at_us), rule.limit().into());
        Reading::of_used(at_us, (count, limit), cost, || Moment::At(self.end_us()))
    }

    fn is_empty(&self) -> bool {
        self.count() == 0
    }

    fn consumed(&self, at_us: u64) -> u64 {
        self.count_at(at_us)
    }

    #[inline(always)]
    fn consume(&mut self, rule: &Rule, at_us: u64, cost: u32) {
        self.count_for(rule, at_us, cost);
    }

    fn ends(&self) -> Moment {
        Moment::At(if self.count() == 0 { 0 } else { self.end_us() })
    }

    fn refund(&mut self, _window_us: u64, at_us: u64, units: u32) -> u64 {
        if self.count_at(at_us) == 0 { 0 } else { self.count.take(units.into()) }
    }

    fn give_back(&mut self, stamp_us: u64, units: u64) -> u64 {
        if self.contains(self.start_us(), stamp_us) { self.count.take(units) } else { 0 }
    }

    fn consume_excess(&mut self, excess: Excess, at_us: u64) {
        self.add(at_us, excess.units);
    }
}

/// A window that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Past {
    pub start_us: i64,
    pub count: u64,
}

/// A fixed window that keeps the counts of past ones (`keep=N`), for graphs. No decision reads
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedWithPast {
    pub fixed: Fixed,
    /// The number of windows whose counts are kept.
    pub keep: u16,
    /// Oldest first, without empty windows.
    pub past: VecDeque<Past>,
}

impl FixedWithPast {
    /// Adds a window that has closed, in the order of starts. It is the latest, unless the clock
    /// stepped back while nothing was counted in the open window. Then an older window may have
    /// opened, or one of the past again, whose counts add up.
    fn add_to_past(&mut self, closed: Option<Past>) {
        if let Some(Past { start_us, count }) = closed {
            let index = self.past.partition_point(|past| past.start_us < start_us);
            match self.past.get_mut(index).filter(|past| past.start_us == start_us) {
                Some(past) => past.count = past.count.saturating_add(count),
                None => self.past.insert(index, Past { start_us, count }),
            }
        }
        let oldest = self.fixed.start_us().saturating_sub_unsigned(self.kept_us());
        while self.past.front().is_some_and(|window| window.start_us < oldest)
            || self.past.len() > usize::from(self.keep)
        {
            self.past.pop_front();
        }
    }

    /// Gives back up to `units` counted in the past window that contains `stamp_us`, and returns how
    /// many.
    fn give_back_to_past(&mut self, stamp_us: u64, units: u64) -> u64 {
        let stamp = i64::try_from(stamp_us).unwrap_or(i64::MAX);
        let started = self.past.partition_point(|past| past.start_us <= stamp);
        let Some(index) = started.checked_sub(1) else { return 0 };
        let Some(past) = self.past.get_mut(index) else { return 0 };
        if !self.fixed.contains(past.start_us, stamp_us) {
            return 0;
        }
        let back = past.count.min(units);
        past.count = past.count.saturating_sub(back);
        if past.count == 0 {
            self.past.remove(index);
        }
        back
    }

    fn kept_us(&self) -> u64 {
        self.fixed.period_us().saturating_mul(u64::from(self.keep))
    }
}

impl Algorithm for FixedWithPast {
    fn params(&self) -> Params {
        self.fixed.params_with(self.keep)
    }

    fn limit(&self) -> Option<u32> {
        self.fixed.limit()
    }

    fn period_us(&self) -> u64 {
        self.fixed.period_us()
    }

    fn last_us(&self) -> u64 {
        self.fixed.last_us()
    }

    fn is_empty(&self) -> bool {
        self.fixed.count() == 0 && self.past.is_empty()
    }

    fn consumed(&self, at_us: u64) -> u64 {
        self.fixed.consumed(at_us)
    }

    fn read(&self, rule: &Rule, at_us: u64, cost: u32) -> Reading {
        self.fixed.read(rule, at_us, cost)
    }

    /// If the window has closed, adds it to the past windows.
    fn consume(&mut self, rule: &Rule, at_us: u64, cost: u32) {
        let closed = self.fixed.count_for(rule, at_us, cost);
        self.keep = rule.kept_windows();
        self.add_to_past(closed);
    }

    fn ends(&self) -> Moment {
        self.fixed.ends()
    }

    /// Until when any of the counts matters.
    fn matters_until(&self) -> Moment {
        let until_us = self.fixed.end_us().saturating_add(self.kept_us());
        Moment::At(if self.is_empty() { 0 } else { until_us })
    }

    fn refund(&mut self, window_us: u64, at_us: u64, units: u32) -> u64 {
        self.fixed.refund(window_us, at_us, units)
    }

    fn details(&self, _at_us: Option<u64>) -> Option<Details> {
        let past = self.past.iter().map(|past| (past.start_us, past.count));
        let present = (self.fixed.start_us(), self.fixed.count());
        let in_ms =
            |(start_us, count): (i64, u64)| (start_us.div_euclid(MS_US.cast_signed()), count);
        Some(Details::Windows(past.chain([present]).map(in_ms).collect()))
    }

    // A hold gives units back to the window that counted them, even if it is a past one.
    fn give_back(&mut self, stamp_us: u64, units: u64) -> u64 {
        // A window of the past may have opened again on a clock that stepped back, for other units at
        // the same times. So both may give back the hold's units.
        let from_past = self.give_back_to_past(stamp_us, units);
        from_past.saturating_add(self.fixed.give_back(stamp_us, units.saturating_sub(from_past)))
    }

    fn consume_excess(&mut self, excess: Excess, at_us: u64) {
        let closed = self.fixed.add(at_us, excess.units);
        self.add_to_past(closed);
    }
}

impl Meter {
    /// Called before a rule with `keep` consumes: a fixed window becomes one that keeps past ones.
    #[cold]
    pub(super) fn keep_past(&mut self) {
        if let Self::Fixed(fixed) = self {
            let past = FixedWithPast { fixed: **fixed, keep: 0, past: VecDeque::new() };
            *self = Self::FixedWithPast(Box::new(past));
        }
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::rule::{Calendar, Kind, MAX_UNITS, Period, RuleSpec, Unit};

    #[test]
    fn a_count_stops_at_its_maximum() {
        let day = Period { count: 1, unit: Unit::Day };
        let rule = RuleSpec::new(Kind::Fixed, MAX_UNITS.into(), day).validate().expect("a rule");
        for units in [Uint48::MAX - 2, Uint48::MAX, u64::MAX] {
            let params = FixedParams { calendar: Some(Calendar::Epoch), tz_min: 0, keep: 0 };
            let mut fixed = Fixed::of_units(&rule, params, 0, units);
            assert_eq!(fixed.count(), units.min(Uint48::MAX));
            fixed.consume(&rule, 1, MAX_UNITS);
            assert_eq!(fixed.count(), Uint48::MAX);
            let reading = fixed.read(&rule, 1, 1);
            assert_eq!((reading.remaining, reading.admits), (0, Moment::At(fixed.end_us())));
            assert_eq!(fixed.refund(0, 1, 7), 7);
            assert_eq!(fixed.count(), Uint48::MAX - 7);
            let past = Past { start_us: 0, count: Uint48::MAX - 7 };
            assert_eq!(fixed.count_for(&rule, fixed.end_us(), 3), Some(past));
            assert_eq!(fixed.count(), 3);
        }
    }
}
