//! Slots: requests that run at once. The key's holds count the units, see `key::slots`. This state
//! only says that there are such holds, and stores the limit of the last rule.

use super::{Algorithm, Excess, Moment, Params, Reading};
use crate::algorithm::{OptionValues, RuleText};
use crate::rule::explain::requests;
use crate::rule::{Kind, Rule, RuleError, memory};
use alloc::string::String;
use core::fmt;

#[cfg(feature = "saved")]
pub mod saved;

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

/// Slots have no parameters but their limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotsParams;

impl RuleText for SlotsParams {
    fn read(_words: &OptionValues) -> Result<Self, RuleError> {
        Ok(Self)
    }

    fn write(&self, _rule: &Rule, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }

    fn identity(&self) -> Option<(&'static str, &'static str)> {
        Some(("algorithm", "limit"))
    }

    fn explain(&self, rule: &Rule) -> String {
        format!(
            "at most {} at once: each takes a slot with HOLD, and gives it back when its hold is \
         settled or lapses (concurrency limit). Worst burst: {} at once, as often as holds are \
         settled. Memory: {} to {} bytes a hold with an id of up to 22 bytes.",
            requests(rule.limit().into()),
            rule.limit(),
            memory::HOLD,
            memory::HOLD.saturating_add(memory::HOLD / 8),
        )
    }
}
