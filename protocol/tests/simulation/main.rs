//! A simulation of what the module promises about several servers, without a server: a primary with
//! an append-only file, a replica behind a link, and clients in line, made of this crate and the core.
//!
//! ```text
//! clients --> primary --effects--> disk      lost after the last sync, cut off at any byte
//!    ^           |
//!    |           +------effects--> link      delayed, lost, resumed, or begun again with a snapshot
//!    +-- line    |                   |
//!                +<---- promoted ----+       at any step; the wall clock jumps
//! ```
//!
//! A run is a function of its seed. Laws, tested at every step:
//!
//! 1. The replica equals the primary as it was after the effects that the replica has, byte for byte.
//! 2. A server that restarts from a file equals the primary as it was after some effect, no earlier
//!    than the last synced effect. So under `appendfsync always` no acknowledged effect is lost.
//! 3. A client in line is answered once, by its deadline, unless it gives up. In a flow, clients are
//!    admitted in order of arrival. The head of a flow passes as soon as its rules admit it, unless
//!    the clock has jumped or another head keeps it back. A head that some rules deny keeps back heads
//!    that have all of these rules; a paused head keeps back any head. Such a head must keep back
//!    heads of a lower priority, and may keep back heads of the same priority. A caller that repeats
//!    a live hold waits for nobody.
//! 4. Only the primary deletes a key that has expired, and it propagates the deletion. The value of an
//!    expired key decides nothing.
//!
//! `RATELIMIT_SIM_RUNS=9000` plays 9000 new seeds, which takes a minute. `RATELIMIT_SIM_SEED=5` plays
//! seed 5 again.

mod disk;
mod keyspace;
mod line;
mod link;
mod world;

use std::env::var;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use world::World;

/// How many steps a run has.
const STEPS: usize = 400;
/// How many seeds `cargo test` plays.
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
