#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used
    )
)]

mod address;
mod check;
mod decision;
mod fields;
mod layer;
mod service;

pub use address::network_of;
pub use check::{Check, Target};
pub use decision::{Decision, RuleDecision, Verdict};
pub use layer::{OnError, RateLimitLayer};
pub use service::RateLimit;
