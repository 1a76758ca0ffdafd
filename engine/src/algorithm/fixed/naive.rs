//! `n + c <= L`, on one count per window.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a model for tests"
)]

use crate::algorithm::fixed::FixedParams;
use crate::algorithm::meter::Params;
use crate::rule::{Calendar, DAY_US, MINUTE_US, Rule};
use crate::tests::naive::Micros;
use std::sync::LazyLock;

#[derive(Clone, Debug)]
pub struct NaiveFixed {
    period: i128,
    calendar: Option<Calendar>,
    tz: Micros,
    keep: i128,
    /// The start and the count of each window, the present one last.
    windows: Vec<(Micros, i128)>,
}

impl NaiveFixed {
    pub fn of_units(rule: &Rule, at: Micros, units: i128) -> Self {
        let Params::Fixed(FixedParams { calendar, tz_min, .. }) = rule.params() else {
            unreachable!()
        };
        let mut fixed = Self {
            period: rule.period_us().into(),
            calendar,
            tz: i128::from(tz_min) * i128::from(MINUTE_US),
            keep: 0,
            windows: Vec::new(),
        };
        fixed.windows.push((fixed.opens(at), units));
        fixed
    }

    fn opens(&self, at: Micros) -> Micros {
        let Some(calendar) = self.calendar else { return at };
        let local = at + self.tz;
        let monday = 4 * i128::from(DAY_US);
        let local_start = match calendar {
            Calendar::Epoch => local.div_euclid(self.period) * self.period,
            Calendar::Weeks => (local - monday).div_euclid(self.period) * self.period + monday,
            Calendar::Months => month(local).0,
        };
        local_start - self.tz
    }

    fn present(&self) -> (Micros, i128) {
        *self.windows.last().unwrap()
    }

    /// True if the present window is over.
    fn has_ended(&self, at: Micros) -> bool {
        let (start, _) = self.present();
        let end = match self.calendar {
            Some(Calendar::Months) => month(start + self.tz).1 - self.tz,
            _ => start + self.period,
        };
        at >= end
    }

    pub fn count(&self, at: Micros) -> i128 {
        if self.has_ended(at) { 0 } else { self.present().1 }
    }

    /// True if no window matters at `at`, neither the present one nor a past one.
    pub fn is_over(&self, at: Micros) -> bool {
        self.has_ended(at - self.keep * self.period)
    }

    /// True if nothing is counted in the present window.
    pub fn counts_nothing(&self) -> bool {
        self.present().1 == 0
    }

    pub fn is_empty(&self) -> bool {
        self.windows.iter().all(|&(_, n)| n == 0)
    }

    pub fn take(&mut self, rule: &Rule, at: Micros, cost: i128) {
        let Params::Fixed(FixedParams { keep, .. }) = rule.params() else { unreachable!() };
        self.keep = keep.into();
        if self.has_ended(at) || self.present().1 == 0 {
            self.windows.push((self.opens(at), 0));
        }
        self.windows.last_mut().unwrap().1 += cost;
        let (start, count) = self.windows.pop().unwrap();
        self.windows.retain(|&(past, n)| n > 0 && past >= start - self.keep * self.period);
        let surplus = self.windows.len().saturating_sub(keep.into());
        self.windows.drain(..surplus);
        self.windows.push((start, count));
    }

    pub fn refund(&mut self, at: Micros, units: i128) -> i128 {
        let back = units.min(self.count(at));
        self.windows.last_mut().unwrap().1 -= back;
        back
    }
}

/// The start and end of the month of a local time, found by counting days.
fn month(local: Micros) -> (Micros, Micros) {
    static STARTS: LazyLock<Vec<Micros>> = LazyLock::new(|| {
        // From 1969-12-01, 31 days before the epoch, to the year 10000.
        let mut starts = vec![-31, 0];
        let mut day = 0;
        for year in 1970..10_001 {
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let february = if leap { 29 } else { 28 };
            for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
                day += days;
                starts.push(day);
            }
        }
        starts.iter().map(|day| day * i128::from(DAY_US)).collect()
    });
    let next = STARTS.partition_point(|&start| start <= local);
    (STARTS[next - 1], STARTS[next])
}
