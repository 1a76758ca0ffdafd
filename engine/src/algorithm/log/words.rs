//! The words of `log`: it has no options.

use crate::algorithm::{OptionValues, RuleText};
use crate::rule::explain::{at_worst, per, requests};
use crate::rule::{Rule, RuleError, Unit, memory, write_period};
use alloc::string::{String, ToString};
use core::fmt;

/// A log has no parameters but its limit and its period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogParams;

impl RuleText for LogParams {
    fn read(_words: &OptionValues) -> Result<Self, RuleError> {
        Ok(Self)
    }

    fn write(&self, rule: &Rule, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_period(f, rule, Unit::Week)
    }

    fn identity(&self) -> Option<(&'static str, &'static str)> {
        None
    }

    fn explain(&self, rule: &Rule) -> String {
        let limit = u64::from(rule.limit());
        let (least, most) = (memory::log_entry(0), memory::log_entry(rule.period_us()));
        let entry = if least == most { least.to_string() } else { format!("{least} to {most}") };
        format!(
            "at most {} in any {}, wherever it begins (sliding log, exact). \
         Worst burst: {}. \
         Memory: {} bytes, and {entry} per remembered request, up to {}; 4 more \
         per request if costs differ; one log serves all log rules of a key.",
            requests(limit),
            per(rule.period_us()),
            at_worst(rule, |worst| worst.to_string()),
            memory::LOG_KEY,
            limit.saturating_mul(most),
        )
    }
}
