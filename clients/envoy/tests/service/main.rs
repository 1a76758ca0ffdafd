//! The service as Envoy sees it, on real servers; and Envoy itself in front of it.

#[path = "../../../rust/tests/client/support/cluster.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod cluster;
#[path = "../../../rust/tests/client/support/server.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod server;

mod decisions;
mod edge;
mod operation;
mod outages;
mod support;
