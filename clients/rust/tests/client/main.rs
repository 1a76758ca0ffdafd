//! The client, with real servers.

mod hold;
mod layer;
mod lease;
mod limiter;
mod misconfigured;
mod names;
mod package;
mod runtime;
mod saturated;
mod script;
mod sentinel;
mod support;
mod tls;
