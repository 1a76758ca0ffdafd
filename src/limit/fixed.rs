//! Fixed window counter: one count, forgotten when the window is over.
//!
//! ```text
//! |--- n ---|--- n' ---|     admits c  iff  n + c <= L
//! ```
//!
//! Where windows lie is the rule's `align`: multiples of the period since the
//! epoch, of weeks since Monday 1970-01-05, calendar months, all shifted by
//! `tz`; or a window that opens at the first request.

use super::calendar::{self, Bounds};
use super::reading::{Moment, Reading};
use super::rule::{Algorithm, Align, Calendar, Rule};
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    pub last_us: u64,
    pub period_us: u64,
    /// When the window opened; before the epoch for its first ones.
    pub start_us: i64,
    pub count: u64,
    pub limit: u32,
    pub tz_min: i16,
    /// What windows count from; `None`: from their first request.
    pub calendar: Option<Calendar>,
}

impl Fixed {
    pub fn new(rule: &Rule, now_us: u64) -> Self {
        let (calendar, tz_min) = shape(rule);
        let mut fixed = Self {
            last_us: now_us,
            period_us: rule.period_us(),
            start_us: 0,
            count: 0,
            limit: rule.limit(),
            tz_min,
            calendar,
        };
        fixed.start_us = fixed.opened(now_us);
        fixed
    }

    /// Units consumed at a time, for a state that changes its shape.
    pub fn of_units(rule: &Rule, last_us: u64, units: u64) -> Self {
        Self { count: units, ..Self::new(rule, last_us) }
    }

    pub fn has_shape_of(&self, rule: &Rule) -> bool {
        self.period_us == rule.period_us() && (self.calendar, self.tz_min) == shape(rule)
    }

    fn bounds(&self, calendar: Calendar) -> Bounds {
        Bounds { calendar, period_us: self.period_us, tz_min: self.tz_min }
    }

    /// When a window that holds `at_us` opens, if none is open.
    fn opened(&self, at_us: u64) -> i64 {
        match self.calendar {
            None => i64::try_from(at_us).unwrap_or(i64::MAX),
            Some(calendar) => calendar::start(self.bounds(calendar), at_us),
        }
    }

    /// When the window is over.
    pub fn end_us(&self) -> u64 {
        let end = match self.calendar {
            None => self.start_us.saturating_add_unsigned(self.period_us),
            Some(calendar) => calendar::end(self.bounds(calendar), self.start_us),
        };
        u64::try_from(end).unwrap_or(0)
    }

    pub fn count_at(&self, at_us: u64) -> u64 {
        if at_us >= self.end_us() { 0 } else { self.count }
    }

    pub fn read(&self, rule: &Rule, at_us: u64, cost: u32) -> Reading {
        let count = self.count_at(at_us);
        let limit = u64::from(rule.limit());
        let fits = count.saturating_add(u64::from(cost)) <= limit;
        Reading {
            at_us,
            remaining: limit.saturating_sub(count),
            admits: Moment::At(if fits { at_us } else { self.end_us() }),
            turn_us: 0,
        }
    }

    /// Counts units; the window that had to close for it, if one did.
    pub fn consume(&mut self, rule: &Rule, at_us: u64, cost: u32) -> Option<Past> {
        let mut closed = None;
        if at_us >= self.end_us() {
            if self.count > 0 {
                closed = Some(Past { start_us: self.start_us, count: self.count });
            }
            self.count = 0;
        }
        if self.count == 0 {
            self.start_us = self.opened(at_us);
        }
        self.count = self.count.saturating_add(u64::from(cost));
        self.last_us = at_us;
        self.limit = rule.limit();
        closed
    }

    pub fn refund(&mut self, at_us: u64, units: u32) -> u64 {
        let back = self.count_at(at_us).min(u64::from(units));
        self.count = self.count.saturating_sub(back);
        back
    }

    pub fn clears(&self) -> Moment {
        Moment::At(if self.count == 0 { 0 } else { self.end_us() })
    }
}

/// A window that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Past {
    pub start_us: i64,
    pub count: u64,
}

/// A fixed window that keeps the counts of past ones (`keep=N`), for graphs.
/// They decide nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub fixed: Fixed,
    /// How many windows back counts matter.
    pub keep: u16,
    /// Oldest first; windows without a request are not kept.
    pub past: VecDeque<Past>,
}

impl Kept {
    /// Counts units, and moves a window that closed to the past.
    pub fn consume(&mut self, rule: &Rule, at_us: u64, cost: u32) {
        self.past.extend(self.fixed.consume(rule, at_us, cost));
        self.keep = keep(rule);
        let oldest = self.fixed.start_us.saturating_sub_unsigned(self.kept_us());
        while self.past.front().is_some_and(|window| window.start_us < oldest)
            || self.past.len() > usize::from(self.keep)
        {
            self.past.pop_front();
        }
    }

    fn kept_us(&self) -> u64 {
        self.fixed.period_us.saturating_mul(u64::from(self.keep))
    }

    /// Until when any of the counts matters.
    pub fn matters_until_us(&self) -> u64 {
        self.fixed.end_us().saturating_add(self.kept_us())
    }
}

/// How many past windows a rule wants kept.
pub fn keep(rule: &Rule) -> u16 {
    match rule.algorithm() {
        Algorithm::Fixed { keep, .. } => keep,
        _ => 0,
    }
}

fn shape(rule: &Rule) -> (Option<Calendar>, i16) {
    match rule.algorithm() {
        Algorithm::Fixed { align: Align::First, tz_min, .. } => (None, tz_min),
        Algorithm::Fixed { align: Align::Epoch, calendar, tz_min, .. } => (Some(calendar), tz_min),
        _ => (Some(Calendar::Epoch), 0),
    }
}
