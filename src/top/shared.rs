//! The sketch of this server, which all its commands share.

use super::Top;
use crate::server::{Call, PerServer};

static TOP: PerServer<Top> = PerServer::empty();

/// Runs a body with the sketch, which keeps at most so many keys.
#[inline(always)]
pub fn with<R>(call: &Call<'_>, counters: usize, body: impl FnOnce(&mut Top) -> R) -> R {
    TOP.with(call, |top| {
        top.resize(counters);
        body(top)
    })
}

/// The setting changed: what is too much goes now, not with the next denial.
pub fn resize(call: &Call<'_>, counters: i64) {
    with(call, usize::try_from(counters).unwrap_or(0), |_| ());
}
