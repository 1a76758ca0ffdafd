//! The client, with real servers.

mod hold;
mod layer;
mod lease;
mod limiter;
mod outage;
mod package;
mod support;
mod upstream;
