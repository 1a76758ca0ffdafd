//! The service as a process, and Envoy in front of it.

pub mod envoy;
pub mod service;
