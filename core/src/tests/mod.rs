//! The laws, the naive models that they compare with, how settled holds correct meters,
//! and what `RL.EXPLAIN` promises.

#[cfg(test)]
mod explained;
pub mod laws;
pub mod naive;
#[cfg(test)]
mod settled;
