//! The laws, the naive models that they compare with, how settled holds correct meters,
//! and what `RL.EXPLAIN` promises.

mod explained;
mod laws;
mod naive;
mod settled;
