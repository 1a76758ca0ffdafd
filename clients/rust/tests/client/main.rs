//! The client, with real servers.

mod hold;
mod layer;
mod lease;
mod limiter;
mod misconfigured;
mod names;
mod outage;
mod package;
mod plans;
mod saturated;
mod script;
mod sentinel;
mod support;
mod tls;
mod upstream;
