//! The limiter itself, pure: no server, no clock, no I/O.
//!
//! ```text
//! exact       integer arithmetic that does not overflow
//! heap        the heap allocations of a value
//! series      the times of a sliding log, in one allocation
//! algorithm   what one rule consumed, a file an algorithm, each with its formula
//! holds       receipts of checks, by which charges are corrected
//! value       a key's value: states, standing, history, when it expires, how it is saved
//! decide      a check: what each rule decides, which one is the answer, what is consumed
//! tests       the laws, and the naive models that they compare with
//! ```
//!
//! Each part uses only those listed above it. A decision depends on state, rules, cost and time
//! only. Times are Unix microseconds and always an argument; arithmetic is exact, on integers.

mod algorithm;
mod decide;
mod exact;
mod heap;
mod holds;
pub(crate) mod series;
// Fuzzing uses only part of it; the rest is dead code there.
#[cfg_attr(not(test), allow(dead_code, unused_imports))]
#[cfg(any(test, fuzzing))]
pub(crate) mod tests;
mod value;

pub use algorithm::log::LogReport;
pub use algorithm::window::WindowReport;
pub use decide::ban::Ban;
pub use decide::decision::Decision;
pub use decide::foresight::Foresight;
pub use decide::full::Outlook;
pub use decide::keys::{KeyCheck, check_keys};
pub use decide::outcome::Outcome;
pub use decide::refusal::{Bounds, CheckError, Refusal};
pub use heap::HeapVisitor;
pub use holds::request::{HoldRequest, MAX_ID, Settlement};
pub use value::check::{Change, Check, CheckOptions, Meta, Verdict};
#[cfg(any(test, fuzzing))]
pub(crate) use value::codec::parts;
pub use value::codec::{DecodeError, decode, encode};
pub use value::deadline::{Deadline, Expiry};
pub use value::history::{Entry, History};
pub use value::limiter::Limiter;
pub use value::pause::Pause;
pub use value::report::{HoldReport, StateReport};
pub use value::standing::{BanCount, MAX_FORGOTTEN_US, MAX_SPAN_US, Standing, StandingEntry};
