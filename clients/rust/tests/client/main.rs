//! The client, with real servers.

mod layer;
mod limiter;
mod outage;
mod support;
