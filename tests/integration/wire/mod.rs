//! What hostile clients, primaries and files send, to all five servers at once: seconds in
//! `make test`, longer in `make fuzz-wire`.
//!
//! ```text
//! storm.rs          connections that send what the generator makes, in rounds
//! generator/        batches of commands: valid, invalid and unrelated; a seed repeats them
//! payloads.rs       hostile values, for RESTORE, primaries and files
//! session.rs        a connection that judges each reply
//! resp.rs           RESP2 and RESP3, read strictly
//! own_time.rs       which commands took the server too long
//! memory.rs         what a server still holds after everything was deleted
//! replay.rs         the log of a failed round, and how to send it again
//! records.rs        hostile effects, values and policies
//! junk_primary.rs   a primary that sends hostile records to a replica
//! junk_aof.rs       an append-only file of hostile records
//! ```
//!
//! What must hold: the server survives, and its log has no alarm. Each command has exactly one
//! reply, of a type that the command may have, in the protocol of the connection. No command
//! takes 50 ms of the server's own time. After everything was deleted the server holds only
//! what it held before. No client waits five seconds for an answer.

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
    static SEED: LazyLock<u64> = LazyLock::new(|| crate::support::seed("RATELIMIT_WIRE_SEED"));
    *SEED
}
