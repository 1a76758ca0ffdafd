//! What hostile clients, primaries and files send, to all five servers at once: for seconds in `make
//! test`, longer in `make fuzz-wire`.
//!
//! ```text
//! storm.rs          connections that send whatever the generator makes, in rounds
//! generator/        batches of commands: right, wrong and beside the point; a seed gives the same again
//! payloads.rs       hostile values, for RESTORE, primaries and files
//! session.rs        a connection that judges each reply
//! resp.rs           RESP2 and RESP3, read strictly
//! own_time.rs       which commands took the server too long
//! memory.rs         what a server holds after everything was deleted
//! replay.rs         the log of a round that failed, and how it is sent again
//! records.rs        hostile effects, values and policies
//! junk_primary.rs   a primary that sends them to a replica
//! junk_aof.rs       an append-only file that has them
//! ```
//!
//! What must hold: the server lives and its log has no alarm; each command has exactly one reply, of a
//! type that the command may have, in the protocol of the connection; no command takes 50 ms of the
//! server's own time; after everything was deleted the server holds what it held; and no client waits
//! five seconds for an answer.

mod generator;
mod junk_aof;
mod junk_primary;
mod memory;
mod own_time;
mod payloads;
mod records;
mod replay;
mod resp;
mod session;
mod storm;

use std::env;
use std::sync::LazyLock;
use std::time::Duration;

/// How long each tool runs: `RATELIMIT_WIRE_S` seconds.
fn length() -> Duration {
    let seconds = env::var("RATELIMIT_WIRE_S").ok();
    Duration::from_secs(seconds.map_or(4, |seconds| seconds.parse().expect("a number of seconds")))
}

/// The seed of a run: `RATELIMIT_WIRE_SEED`, or a new one, which the run prints.
fn seed() -> u64 {
    static SEED: LazyLock<u64> = LazyLock::new(|| {
        let seed = env::var("RATELIMIT_WIRE_SEED").ok();
        seed.map_or_else(|| fastrand::u64(..), |seed| seed.parse().expect("a number"))
    });
    *SEED
}
