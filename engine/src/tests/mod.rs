//! The laws, the naive models that they compare with, how settled holds correct meters,
//! and what `RL.EXPLAIN` promises.

#[cfg(all(test, feature = "testing"))]
mod explained;
pub mod laws;
pub mod naive;
#[cfg(all(test, feature = "testing"))]
mod settled;

use crate::rule::Rule;

/// The rules of a line.
pub fn rules_of_line(line: &str) -> Vec<Rule> {
    line.split(' ').map(|text| Rule::from_text(text.as_bytes()).unwrap()).collect()
}
