//! `debt + c <= capacity`. The debt drains `L` units per window, and is a fraction whose
//! denominator is the window.

#![allow(clippy::arithmetic_side_effects, reason = "a model for tests")]

use crate::rule::Rule;
use crate::tests::naive::{Micros, capacity};

#[derive(Clone, Debug)]
pub struct NaiveDebt {
    period: i128,
    /// In `1/period` units, at the time of the last consumption.
    owed: i128,
    /// The limit of the rule that consumed last, or of the rule that reads the debt in another
    /// shape.
    pub limit: i128,
}

impl NaiveDebt {
    pub fn of_units(rule: &Rule, units: i128) -> Self {
        let period = i128::from(rule.period_us());
        Self { period, owed: units * period, limit: i128::from(rule.limit()).max(1) }
    }

    /// The debt with the period and the limit of this rule, rounded up.
    pub fn taken_by(&self, rule: &Rule) -> Self {
        let none = Self::of_units(rule, 0);
        Self { owed: (self.owed * none.period + self.period - 1) / self.period, ..none }
    }

    pub fn whole_units(&self) -> i128 {
        (self.owed + self.period - 1) / self.period
    }

    /// True if the debt has drained to 0 at the limit of the rule that consumed last.
    pub fn has_ended(&self, last: Micros, at: Micros) -> bool {
        (at - last) * self.limit >= self.owed
    }

    pub fn owed_at(&self, limit: i128, last: Micros, at: Micros) -> i128 {
        if self.has_ended(last, at) { 0 } else { (self.owed - (at - last) * limit).max(0) }
    }

    pub fn fits(&self, rule: &Rule, last: Micros, at: Micros, cost: i128) -> bool {
        let owed = self.owed_at(rule.limit().into(), last, at);
        owed + cost * self.period <= capacity(rule) * self.period
    }

    pub fn is_empty(&self) -> bool {
        self.owed == 0
    }

    /// The debt drained at this rule's limit. One that has drained to 0 has that limit.
    fn drained(&mut self, rule: &Rule, last: Micros, at: Micros) -> i128 {
        let owed = self.owed_at(rule.limit().into(), last, at);
        if owed == 0 {
            self.limit = i128::from(rule.limit()).max(1);
        }
        owed
    }

    /// A debt above the capacity grows no further.
    pub fn take(&mut self, rule: &Rule, last: Micros, at: Micros, cost: i128) {
        let owed = self.drained(rule, last, at);
        let full = capacity(rule) * self.period;
        self.owed = if owed > full { owed } else { full.min(owed + cost * self.period) };
        if rule.limit() > 0 {
            self.limit = rule.limit().into();
        }
    }

    /// Takes units even above the capacity. From then on the debt drains no faster than at this
    /// rule's limit.
    pub fn take_excess(&mut self, rule: &Rule, last: Micros, at: Micros, units: i128) {
        self.owed = self.drained(rule, last, at) + units * self.period;
        if rule.limit() > 0 {
            self.limit = self.limit.min(rule.limit().into());
        }
    }

    pub fn refund(&mut self, last: Micros, at: Micros, units: i128) -> i128 {
        let owed = self.owed_at(self.limit, last, at);
        let back = units * self.period;
        if back < owed {
            self.owed -= back;
            return units;
        }
        self.owed = 0;
        (owed + self.period - 1) / self.period
    }
}
