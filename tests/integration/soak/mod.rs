//! Long runs under load, on all servers at once: seconds in `make test-long`, minutes in `make
//! soak`. What clients saw must fit what the rules promise.

mod judge;
mod waiting;

use std::env;
use std::time::Duration;

/// How long a run takes: `RATELIMIT_SOAK_S` seconds.
fn length() -> Duration {
    let seconds = env::var("RATELIMIT_SOAK_S").ok();
    Duration::from_secs(seconds.map_or(5, |seconds| seconds.parse().expect("a number of seconds")))
}

/// The seed of a run: `RATELIMIT_SOAK_SEED`, or a new one, which a failed run prints.
fn seed() -> u64 {
    crate::support::seed("RATELIMIT_SOAK_SEED")
}
