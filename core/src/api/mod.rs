//! Limits in one process: the types that the crate's root re-exports.
//!
//! ```text
//! rules     rules that fit together, from a text
//! limiter   what one client has consumed, and what it may do
//! as_text   rules in a configuration
//! hold      a charge that is corrected later
//! answer    whether a request may pass
//! report    what each rule says of a request
//! time      between durations and the engine's numbers
//! ```
//!
//! Times and waits are `Duration`s here, and what may be missing is an `Option`. The rooms below
//! count microseconds and milliseconds, as the module's replies and its saved form do.

mod answer;
#[cfg(feature = "serde")]
mod as_text;
mod hold;
mod limiter;
mod report;
mod rules;
#[cfg(test)]
mod tests;
mod time;

pub use answer::Answer;
pub use hold::{Hold, HoldError, Settlement};
pub use limiter::Limiter;
pub use report::RuleReport;
pub use rules::{HeldRules, RuleFault, Rules, RulesError};
pub use time::MAX_PERIOD;
