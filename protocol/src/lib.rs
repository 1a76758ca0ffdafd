//! The `RL.*` commands as text and bytes, and other parts of the module that use no server.
//!
//! [`ratelimit_engine`] decides; this crate reads requests and writes effects. Neither crate uses a
//! server, a clock or I/O. The module redis-ratelimit connects both to a server.
//!
//! ```
//! use ratelimit_engine::check::Bounds;
//! use ratelimit_engine::key::{Check, Expiry, Limiter};
//! use ratelimit_protocol::effect::{Action, Effect, Head};
//! use ratelimit_protocol::parse::{Limits, NoPolicies, check};
//!
//! // RL.CHECK key COST 3 20/1m
//! let (args, mut rules) = ([&b"COST"[..], b"3", b"20/1m"], Vec::new());
//! let request = check(args.into_iter(), &Limits::ANY_CHECK, &mut NoPolicies, &mut rules)?;
//!
//! let (mut limiter, at_us) = (Limiter::default(), 1_700_000_000_000_000);
//! let check = Check::new(&rules, request.cost, at_us);
//! let outcome = limiter.check_within(Bounds::ANY, &check, &mut Vec::new())?;
//!
//! let action = Action::of_check(&check, outcome.change).expect("it was admitted");
//! let head = Head::of(&Effect { at_us, expiry: Expiry::Keep, action });
//! assert_eq!(head.text(), b"v1:1700000000000000:0:admit:3");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The rooms, in reading order
//!
//! ```text
//! parse    reads the arguments of RL.* commands as requests
//! effect   what a command did, as it is propagated to replicas and the AOF
//! waiting  which clients wait for a key, in which order, and when to look again
//! top      the keys that were denied most often
//! fuzz     the targets of `make fuzz`, only for tests
//! ```
//!
//! A room uses only rooms above it, as `scripts/walls` checks.

#![cfg_attr(
    not(any(test, fuzzing)),
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

pub mod effect;
#[cfg(any(test, fuzzing))]
#[allow(missing_docs, reason = "the head of each file describes it")]
pub mod fuzz;
pub mod parse;
pub mod top;
pub mod waiting;
