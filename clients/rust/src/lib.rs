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
mod asker;
mod builder;
mod by_address;
mod by_script;
mod check;
mod clean_up;
#[cfg(feature = "cluster")]
mod cluster;
mod connection;
mod deciding;
mod denials;
mod events;
mod fields;
mod hold;
mod layer;
mod lease;
mod limiter;
mod local;
mod node;
mod outage;
mod plan;
mod receipt;
mod refusal;
mod reply;
mod rules;
mod script;
mod separately;
mod servers;
mod service;
mod settlement;
mod upstream;
mod value;
mod waiting;
mod within;

pub use redis;

pub use address::{network, network_of};
pub use builder::Builder;
pub use by_address::ByAddress;
pub use check::{Check, Cost};
pub use events::{DecisionEvent, MisconfiguredEvent, OutageEvent};
pub use fields::Headers;
pub use hold::{Hold, HoldError};
pub use layer::{Count, RateLimitLayer, Target};
pub use lease::{Lease, LeaseOptions, Taken};
pub use limiter::RateLimiter;
pub use outage::{Outage, is_outage, is_saturated};
pub use refusal::{Problem, Refusal, Refuse};
pub use reply::{Reply, Report, RuleReport, Source, Verdict};
pub use rules::Rules;
pub use script::Engine;
pub use service::RateLimit;
pub use settlement::Settlement;
pub use value::is_misuse;
