//! Slots: requests that run at once. The key's holds count the units, see `key::slots`. This state
//! only says that there are such holds, and stores the limit of the last rule.

#[cfg(feature = "saved")]
pub mod saved;
mod words;

use super::{Algorithm, Excess, Moment, Params, Reading};
use crate::rule::{Kind, Rule};
pub use words::SlotsParams;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// The limit of the rule that consumed last.
    pub limit: u32,
}

impl Algorithm for Slots {
    fn params(&self) -> Params {
        Params::Slots(SlotsParams)
    }

    fn limit(&self) -> Option<u32> {
        Some(self.limit)
    }

    fn period_us(&self) -> u64 {
        0
    }

    #[inline]
    fn fits(&self, rule: &Rule) -> bool {
        rule.kind() == Kind::Slots
    }

    fn last_us(&self) -> u64 {
        0
    }

    fn is_empty(&self) -> bool {
        true
    }

    fn consumed(&self, _at_us: u64) -> u64 {
        0
    }

    fn read(&self, rule: &Rule, at_us: u64, _cost: u32) -> Reading {
        Reading::untouched(rule, at_us)
    }

    fn consume(&mut self, rule: &Rule, _at_us: u64, _cost: u32) {
        self.limit = rule.limit();
    }

    fn ends(&self) -> Moment {
        Moment::At(0)
    }

    fn refund(&mut self, _window_us: u64, _at_us: u64, _units: u32) -> u64 {
        0
    }

    // A hold that ends frees its slots by itself.
    fn consume_excess(&mut self, _excess: Excess, _at_us: u64) {}
}
