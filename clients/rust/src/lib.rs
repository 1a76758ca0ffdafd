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
mod bounded;
mod breaker;
mod builder;
mod by_address;
mod check;
mod denials;
mod fields;
mod hold;
mod layer;
mod lease;
mod limiter;
mod local;
mod outage;
mod refusal;
mod reply;
mod server;
mod service;
mod upstream;

pub use address::{network, network_of};
pub use builder::Builder;
pub use by_address::ByAddress;
pub use check::{Check, Cost, Rules};
pub use fields::Headers;
pub use hold::{Hold, HoldError};
pub use layer::{Count, RateLimitLayer, Target};
pub use lease::{Lease, Taken};
pub use limiter::{RateLimiter, Settlement};
pub use outage::{Outage, OutageEvent, is_outage};
pub use refusal::{Problem, Refusal, Refuse};
pub use reply::{Reply, Report, RuleReport, Source, Verdict};
pub use service::RateLimit;
