//! `old*(w-e) + (cur+c)*w <= L*w`, on one count per sub-interval.

#![allow(clippy::arithmetic_side_effects, reason = "a model for tests")]

use crate::algorithm::meter::Params;
use crate::algorithm::window::WindowParams;
use crate::rule::Rule;
use crate::tests::naive::Micros;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub struct NaiveWindow {
    res: i128,
    /// The window's length in us. A sub-interval lasts this number of ticks of `1/res` us.
    period: i128,
    /// The counts, by the number of the sub-interval since the epoch.
    counts: BTreeMap<i128, i128>,
}

impl NaiveWindow {
    pub fn of_units(rule: &Rule, at: Micros, units: i128) -> Self {
        let Params::Window(WindowParams { res }) = rule.params() else { unreachable!() };
        let (res, period) = (i128::from(res), i128::from(rule.period_us()));
        let mut window = Self { res, period, counts: BTreeMap::new() };
        window.take(at, units);
        window
    }

    fn index(&self, at: Micros) -> i128 {
        (at * self.res).div_euclid(self.period)
    }

    /// `old*(w-e) + cur*w`
    pub fn load(&self, at: Micros) -> i128 {
        let w = self.period;
        let index = self.index(at);
        let e = at * self.res - index * w;
        let cur: i128 = self.counts.range(index - self.res + 1..=index).map(|(_, n)| n).sum();
        let old = self.counts.get(&(index - self.res)).copied().unwrap_or(0);
        old * (w - e) + cur * w
    }

    pub fn whole_units(&self, at: Micros) -> i128 {
        (self.load(at) + self.period - 1) / self.period
    }

    pub fn fits(&self, rule: &Rule, at: Micros, cost: i128) -> bool {
        self.load(at) + cost * self.period <= i128::from(rule.limit()) * self.period
    }

    pub fn is_empty(&self) -> bool {
        self.counts.values().all(|&n| n == 0)
    }

    pub fn take(&mut self, at: Micros, cost: i128) {
        let index = self.index(at);
        self.counts.retain(|&i, _| i >= index - self.res);
        *self.counts.entry(index).or_insert(0) += cost;
    }

    pub fn refund(&mut self, at: Micros, units: i128) -> i128 {
        let in_sight = self.index(at) - self.res;
        let mut left = units;
        for (_, count) in self.counts.range_mut(in_sight..).rev() {
            let back = left.min(*count);
            *count -= back;
            left -= back;
        }
        units - left
    }
}
