//! The service on real servers, called by a test client that imitates Envoy, and by Envoy itself.

#[path = "../../../rust/tests/client/support/cluster.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod cluster;
#[path = "../../../rust/tests/client/support/server.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod server;

mod decisions;
mod edge;
mod metrics;
mod operation;
mod options;
mod outages;
mod reports;
mod support;
