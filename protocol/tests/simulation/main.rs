//! A simulation of what the module promises about several servers, without a server: a primary with
//! an append-only file, a replica behind a link, and clients in line, made of this crate and the core.
//!
//! ```text
//! clients --> primary --effects--> disk      lost behind the last sync, cut off at any byte
//!    ^           |
//!    |           +------effects--> link      delayed, lost, resumed, or begun again with a snapshot
//!    +-- line    |                   |
//!                +<---- promoted ----+       at any step; the wall clock jumps
//! ```
//!
//! A run is a function of its seed. Laws, tested at every step:
//!
//! 1. The replica equals the primary as it was after the effects that the replica has, byte for byte.
//! 2. A server that restarts from a file equals the primary as it was after some effect, none before
//!    the last one that was synced: under `appendfsync always` nothing acknowledged is lost.
//! 3. A client in line is answered once, by its deadline, unless it gives up. In a flow clients are
//!    admitted in the order in which they came. The first of a flow passes at once when it may,
//!    unless the clock has jumped or another flow keeps it back. Only a flow of at least this
//!    priority may, if its first is denied, and only by rules that both have; if its priority is
//!    higher, it must. A repeat of a live hold waits for nobody.
//! 4. Only the primary deletes a key that has expired, and says so; its value then decides nothing.
//!
//! `RATELIMIT_SIM_RUNS=9000` plays that number of new seeds, a minute, `RATELIMIT_SIM_SEED=5` one seed again.

mod disk;
mod keyspace;
mod line;
mod link;
mod world;

use std::env::var;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use world::World;

/// Steps of a run.
const STEPS: usize = 400;
/// Seeds of `cargo test`.
const SEEDS: u64 = 400;

fn number(name: &str) -> Option<u64> {
    var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

fn play(seed: u64) {
    let run = AssertUnwindSafe(|| World::new(seed).play(STEPS));
    if let Err(panic) = catch_unwind(run) {
        eprintln!("seed {seed}: RATELIMIT_SIM_SEED={seed} make simulate");
        resume_unwind(panic);
    }
}

#[test]
fn servers_that_fail_keep_what_they_promise() {
    if let Some(seed) = number("RATELIMIT_SIM_SEED") {
        return play(seed);
    }
    let Some(runs) = number("RATELIMIT_SIM_RUNS") else { return (0..SEEDS).for_each(play) };
    let first = fastrand::u64(..) >> 1;
    (first..first + runs).for_each(play);
    println!("{} steps, from seed {first} on", runs * STEPS as u64);
}
