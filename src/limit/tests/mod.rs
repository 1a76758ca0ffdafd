//! The laws, and the naive models that they compare with.

mod laws;
mod naive;
