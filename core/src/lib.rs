//! Rate limits, decided by pure functions.
//!
//! State, rules, cost and time go in; a decision comes out, and the state has consumed what was
//! allowed. The crate knows no server, no clock and no I/O, so a proxy, a gateway or a
//! simulation can decide exactly as the module redis-ratelimit does.
//!
//! ```
//! use ratelimit_core::check::Bounds;
//! use ratelimit_core::key::{Check, Limiter, Verdict};
//! use ratelimit_core::rule::Rule;
//!
//! let rules = [Rule::from_text(b"2/1s")?, Rule::from_text(b"bucket:100/h")?];
//! let mut limiter = Limiter::default();
//! let mut ask = |now_us| {
//!     let check = Check::new(&rules, 1, now_us);
//!     limiter.check_within(Bounds::ANY, &check, &mut Vec::new()).map(|outcome| outcome.summary)
//! };
//! assert_eq!(ask(0)?.remaining, 1);
//! assert_eq!(ask(1_000)?.verdict, Verdict::Allowed);
//! assert_eq!(ask(2_000)?.wait_ms, 998);
//! assert_eq!(ask(1_000_000)?.verdict, Verdict::Allowed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Times are Unix microseconds and always an argument. A program that limits many clients
//! keeps a [`Limiter`](key::Limiter) for each; `examples/in_process.rs` does so.
//!
//! # The rooms, in reading order
//!
//! ```text
//! rule           a rule: its bounds, its text, what it means in words
//! header_slice   a header and items in one allocation, with the crate's only unsafe code
//! exact          integer arithmetic that does not overflow
//! heap           the heap allocations of a value
//! saved          the bytes of the saved form, and what refuses them
//! algorithm      the algorithms, a folder each: formula, state, words, saved form
//! key            a key's value: states, holds, standing, history, when it expires, how it is saved
//! check          a check: what each rule decides, which one is the answer, what is consumed
//! testing        laws and models, for the tests of this repository's other crates
//! ```
//!
//! A room uses only rooms above it, as `scripts/walls` checks; but a rule is of one of the algorithms,
//! and they read rules.

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
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod algorithm;
pub mod check;
mod exact;
#[allow(unsafe_code, reason = "the one container that allocates by itself")]
pub mod header_slice;
pub mod heap;
pub mod key;
pub mod rule;
mod saved;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(any(test, feature = "testing"))]
#[allow(missing_docs, reason = "each file describes its law or model where it opens")]
// The feature shows only a part of it; the rest is dead code there.
#[cfg_attr(not(test), allow(dead_code, unused_imports))]
#[cfg_attr(
    not(test),
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]
mod tests;
