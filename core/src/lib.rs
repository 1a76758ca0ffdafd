//! Rate limits in one process, exact and without a clock.
//!
//! ```
//! use ratelimit_core::{Answer, Limiter, Rules};
//!
//! let rules: Rules = "2/s bucket:100/h".parse()?;
//! let mut limiter = Limiter::new();
//! let now = std::time::Duration::from_secs(1_800_000_000); // since the Unix epoch
//! match limiter.check(&rules, now) {
//!     Answer::Allowed { remaining, .. } => println!("passes, and {remaining:?} more"),
//!     Answer::Denied { wait: Some(wait), .. } => println!("passes in {wait:?}"),
//!     Answer::Denied { .. } => println!("never passes"),
//! }
//! # assert!(limiter.check(&rules, now).is_allowed() && !limiter.check(&rules, now).is_allowed());
//! # Ok::<(), ratelimit_core::RulesError>(())
//! ```
//!
//! The time is always an argument. A program that limits many clients keeps a [`Limiter`] for each, or
//! one [`Keyed`]: see `examples/in_process.rs`. `examples/held.rs` settles holds, and
//! `examples/simulation.rs` lets an hour of traffic pass in a loop.
//!
//! Features: `std` (the default) has [`Keyed`]; without it, the crate is `no_std` and needs `alloc`. With
//! `serde`, a configuration can contain [`Rules`] as text. `saved` turns a [`Limiter`] into bytes.
//!
//! # The files
//!
//! ```text
//! cost      what a request costs
//! rule      a rule, from a text or from its parts
//! rules     rules that fit together
//! as_text   rules in a configuration
//! hold      a charge that is corrected later
//! answer    whether a request may pass, and what each rule says about it
//! room      room for what each rule decides
//! limiter   what one client has consumed, and what it may do
//! saved     a limiter as bytes
//! keyed     the limiters of many clients
//! ```
//!
//! Times and waits are `Duration`s here, and missing ones are `None`. The engine below counts
//! microseconds and milliseconds, as the module's replies and its saved form do.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]
#![cfg_attr(not(any(test, feature = "std")), no_std)]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod answer;
#[cfg(feature = "serde")]
mod as_text;
mod cost;
mod hold;
#[cfg(feature = "std")]
mod keyed;
mod limiter;
mod room;
mod rule;
mod rules;
#[cfg(feature = "saved")]
mod saved;
#[cfg(all(test, feature = "testing"))]
mod tests;

pub use answer::{Answer, RuleReport};
use core::time::Duration;
pub use cost::{Cost, CostError};
pub use hold::{Hold, HoldError, Refusal};
#[cfg(feature = "std")]
pub use keyed::{Full, Keyed};
pub use limiter::Limiter;
pub use ratelimit_engine::key::Settlement;
use ratelimit_engine::rule::{MAX_PERIOD_US, MAX_TIME_US};
pub use rule::{Period, Rule, RuleBuilder, RuleError};
pub use rules::{HeldRules, Rules, RulesError};
#[cfg(feature = "saved")]
pub use saved::SavedError;

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

/// Tests the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
