//! Real servers with the module, an axum application in front of them, and its clients.

pub mod app;
pub mod cluster;
pub mod log;
pub mod sentinel;
pub mod server;

use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};

/// A runtime that runs only while a test enters it.
pub fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Waits until something holds, for a time that no test reaches.
pub async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let start = Instant::now();
    while !holds().await {
        assert!(start.elapsed() < Duration::from_secs(15), "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
