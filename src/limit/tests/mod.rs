//! The laws, the naive models that they compare with, and what `RL.EXPLAIN`
//! promises.

mod explained;
mod laws;
mod naive;
