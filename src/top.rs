//! The server's one sketch, shared by all commands.

use crate::server::{Call, PerServer};
use ratelimit_protocol::top::Top;

static TOP: PerServer<Top> = PerServer::empty();

/// Runs a body with the sketch, resized to this number of counters.
#[inline(always)]
pub fn with<R>(call: &Call<'_>, counters: usize, body: impl FnOnce(&mut Top) -> R) -> R {
    TOP.with(call, |top| {
        top.resize(counters);
        body(top)
    })
}

/// Resizes the sketch when the setting changes, since the next denial, which would do it, may be
/// far off.
pub fn resize(call: &Call<'_>, counters: i64) {
    with(call, usize::try_from(counters).unwrap_or(0), |_| ());
}
