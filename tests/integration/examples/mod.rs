//! The examples at work, on real servers.

mod browser;
mod gateway;
mod pool;
mod program;
mod replay;
