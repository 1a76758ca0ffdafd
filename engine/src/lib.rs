//! The engine of redis-ratelimit: rate limits, decided by pure functions.
//!
//! State, rules, cost and time go in, and a decision comes out. If the decision allows the cost, the
//! state has consumed it. The crate has no server, no clock and no I/O.
//!
//! It is made for this repository's other crates, and promises nothing: any release can change its
//! items. Programs use the crate `ratelimit-core`, which is built on this one.
//!
//! The engine counts microseconds, and checks several keys at once. It is `no_std` and needs `alloc`.
//! The feature `saved` adds the saved form of a key's value ([`key::encode`], [`key::decode`]).
//!
//! # The rooms, in reading order
//!
//! ```text
//! exact          integers: arithmetic that does not overflow, a number in six bytes
//! rule           a rule: its bounds, its text, what it means in words
//! header_slice   a header and items in one allocation, with the crate's only unsafe code
//! heap           the heap allocations of a value
//! saved          reads and writes the bytes of the saved form, and tests their bounds
//! algorithm      the algorithms, a folder each: formula, state, words, saved form
//! key            a key's value: states, holds, access, history, when it expires, how it is saved
//! check          a check: what each rule decides, which decision is the answer, what is consumed
//! testing        laws and models, for the tests of this repository's other crates
//! ```
//!
//! A room uses only rooms above it, as `scripts/walls` checks. The one exception: a rule contains the
//! parameters of its algorithm, and the algorithms read rules.

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
#![cfg_attr(not(any(test, feature = "testing")), no_std)]
#![deny(unsafe_code)]
#![warn(missing_docs)]

#[macro_use]
extern crate alloc;

pub mod algorithm;
pub mod check;
mod exact;
#[allow(unsafe_code, reason = "the one container that allocates by itself")]
pub mod header_slice;
pub mod heap;
pub mod key;
pub mod rule;
#[cfg(feature = "saved")]
mod saved;
#[cfg(feature = "testing")]
pub mod testing {
    //! The laws and naive models that the tests and fuzz targets of this repository's other crates use.
    //! This module can change in any release.

    pub use crate::key::parts;
    pub use crate::tests::{laws, naive, rules_of_line};
}
#[cfg(feature = "testing")]
#[allow(missing_docs, reason = "each file describes its law or model where it opens")]
// With the feature `testing`, only a part of these tests is used; the rest is then dead code.
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
