//! The limiter itself, pure: no server, no clock, no I/O.
//!
//! ```text
//! check      several rules, of one key or several, one answer, all or nothing
//! straight   the same the short way, where all rules look at the key's one state
//! deciding   which rule decides, and which bans
//! crowd      how many states a key may hold
//! ruling     what one rule says: five integers
//! wait       how long a check waits for states that the clock will come near
//! limiter    the key's value: states, and a block or an exemption
//! state      what one rule consumed, in the form of its algorithm:
//!              log (over a series), window, fixed (over a calendar),
//!              debt (bucket and leaky), interval (bucket, refill=interval)
//! needs      what a log keeps, for the checks that consume from it
//! trail      the last checks, with what their callers said
//! rule       a limit per period, validated once (by spec)
//! term       a period that has begun, of fixed and interval
//! reading    what a rule sees when it looks at a state
//! deadline   when the key should expire
//! codec      versioned bytes <-> limiter
//! explain    a rule in words
//! report     a limiter for those who look at it
//! outlook    when a rule lets one more unit pass
//! blocks     the heap blocks of a value
//! ```
//!
//! Deciding is a function of state, rules, cost and time. Times are Unix
//! microseconds and always an argument; arithmetic is on integers and exact.

#![forbid(unsafe_code)]

mod blocks;
mod calendar;
mod check;
mod codec;
mod crowd;
mod deadline;
mod debt;
mod deciding;
mod exact;
mod explain;
mod fixed;
mod interval;
#[cfg(test)]
mod laws;
mod limiter;
mod log;
#[cfg(test)]
mod naive;
mod needs;
mod outlook;
mod overrule;
mod reading;
mod report;
pub mod rule;
mod ruling;
mod series;
mod spec;
mod state;
mod straight;
mod term;
mod trail;
mod uint48;
mod wait;
mod window;

pub use blocks::Blocks;
pub use check::{Conclusion, Outcome, Part, check};
pub use codec::{DecodeError, decode, encode};
pub use crowd::Crowd;
pub use deadline::{Deadline, Expiry};
pub use deciding::Ban;
pub use explain::explain;
pub use limiter::{Change, Check, Limiter};
pub use outlook::Outlook;
pub use overrule::{Override, OverrideKind};
pub use report::{LogReport, StateReport, WindowReport};
pub use rule::{Kind, MAX_TIME_US, MAX_UNITS, Name, Rule, RuleError, RuleSpec};
pub use ruling::{Ruling, Verdict};
pub use trail::{Mark, Meta, Trail};
