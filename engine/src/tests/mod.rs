//! The laws, the naive models that they compare with, how settled holds correct meters,
//! and what `RL.EXPLAIN` promises.

#[cfg(test)]
mod explained;
pub mod laws;
pub mod naive;
#[cfg(test)]
mod settled;

use crate::rule::Rule;

/// The rules of a line.
pub fn rules_of_line(line: &str) -> Vec<Rule> {
    line.split(' ').map(|text| Rule::from_text(text.as_bytes()).unwrap()).collect()
}
