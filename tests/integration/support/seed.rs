//! The seed of a random run.

use std::env;

/// The seed that a variable of the environment gives, or else a new one, which a failed run prints.
pub fn seed(variable: &str) -> u64 {
    let seed = env::var(variable).ok();
    seed.map_or_else(|| fastrand::u64(..), |seed| seed.parse().expect("a number"))
}
