//! The examples at work, on real servers.

mod gateway;
mod pool;
mod program;
mod replay;
