//! The limiter itself, pure: no server, no clock, no I/O.
//!
//! ```text
//! algorithm   what one rule consumed, a file an algorithm, each with its formula
//! series      the times of a sliding log, in one block
//! value       a key's value: states, access, history, when it expires, how it is saved
//! decide      a check: what each rule says, which decides, what is consumed
//! heap        the heap blocks of a value
//! tests       the laws, and the naive models that they compare with
//! ```
//!
//! Each room uses only those above it, and `heap`. Deciding is a function of
//! state, rules, cost and time. Times are Unix microseconds and always an
//! argument; arithmetic is on integers and exact.

#![forbid(unsafe_code)]

mod algorithm;
mod decide;
mod heap;
pub(crate) mod series;
#[cfg(test)]
mod tests;
mod value;

pub use decide::check::{Conclusion, KeyCheck, Outcome, check};
pub use decide::crowd::Crowd;
pub use decide::deciding::Ban;
pub use decide::decision::{Decision, Verdict};
pub use decide::outlook::Outlook;
pub use heap::HeapVisitor;
pub use value::access::{Access, AccessEntry};
pub use value::codec::{DecodeError, decode, encode};
pub use value::deadline::{Deadline, Expiry};
pub use value::history::{Entry, History, Meta};
pub use value::limiter::{Change, Check, Limiter};
pub use value::report::{LogReport, StateReport, WindowReport};
