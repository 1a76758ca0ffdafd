//! Limits in one process: the types that the crate's root re-exports.
//!
//! ```text
//! rules     rules that fit together, from a text
//! limiter   what one client has consumed, and what it may do
//! as_text   rules in a configuration
//! hold      a charge that is corrected later
//! answer    whether a request may pass, and what each rule says about it
//! ```
//!
//! Times and waits are `Duration`s here, and missing ones are `None`. The engine below counts
//! microseconds and milliseconds, as the module's replies and its saved form do.

mod answer;
#[cfg(feature = "serde")]
mod as_text;
mod hold;
mod limiter;
mod rules;
#[cfg(test)]
mod tests;

use crate::rule::{MAX_PERIOD_US, MAX_TIME_US};
pub use answer::{Answer, RuleReport};
use core::time::Duration;
pub use hold::{Hold, HoldError, Settlement};
pub use limiter::Limiter;
pub use rules::{HeldRules, RuleFault, Rules, RulesError};

/// The longest period of a rule and the longest length of a hold: 366 days.
pub const MAX_PERIOD: Duration = Duration::from_micros(MAX_PERIOD_US);

/// A time as the engine counts it.
fn micros(since_epoch: Duration) -> u64 {
    u64::try_from(since_epoch.as_micros()).map_or(MAX_TIME_US, |us| us.min(MAX_TIME_US))
}

/// Converts a wait or reset of the engine, in milliseconds; -1 means never.
fn duration(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}
