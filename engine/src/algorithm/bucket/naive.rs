//! `used + c <= burst`; all tokens come back a period after the first was taken.

#![allow(clippy::arithmetic_side_effects, reason = "a model for tests")]

use crate::rule::Rule;
use crate::tests::naive::{Micros, capacity};

#[derive(Clone, Debug)]
pub struct NaiveInterval {
    period: i128,
    first: Micros,
    taken: i128,
}

impl NaiveInterval {
    pub fn of_units(rule: &Rule, at: Micros, units: i128) -> Self {
        Self { period: rule.period_us().into(), first: at, taken: units }
    }

    pub fn used(&self, at: Micros) -> i128 {
        if at - self.first >= self.period { 0 } else { self.taken }
    }

    pub fn is_empty(&self) -> bool {
        self.taken == 0
    }

    pub fn take(&mut self, rule: &Rule, at: Micros, cost: i128) {
        let used = self.used(at);
        if used == 0 {
            self.first = at;
        }
        self.taken = if used > capacity(rule) { used } else { capacity(rule).min(used + cost) };
    }

    pub fn refund(&mut self, at: Micros, units: i128) -> i128 {
        let used = self.used(at);
        let back = used.min(units);
        self.taken = used - back;
        back
    }
}
