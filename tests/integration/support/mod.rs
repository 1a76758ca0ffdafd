//! What the tests share: servers, clients, files, and commands to send.

pub mod allocator;
pub mod client;
pub mod clock;
pub mod dump;
pub mod faults;
pub mod files;
pub mod holds;
pub mod machine;
pub mod network;
pub mod policies;
pub mod preloaded;
pub mod rdb_version;
pub mod server;
pub mod settings;
pub mod tools;
pub mod traffic;
pub mod users;
pub mod waiters;
pub mod watchdog;
pub mod workload;

use std::env;

/// The seed of a random run: the one that a variable of the environment gives, or else a new one,
/// which a failed run prints.
pub fn seed(variable: &str) -> u64 {
    let seed = env::var(variable).ok();
    seed.map_or_else(|| fastrand::u64(..), |seed| seed.parse().expect("a number"))
}
