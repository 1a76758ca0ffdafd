//! The words of `slots`: it has no period, because a slot ends with its hold, and no options.

use crate::algorithm::{OwnWords, Words};
use crate::rule::explain::requests;
use crate::rule::{Rule, RuleError, memory};
use alloc::string::String;
use core::fmt;

/// Slots have no parameters but their limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotsParams;

impl Words for SlotsParams {
    fn read(_words: &OwnWords) -> Result<Self, RuleError> {
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
