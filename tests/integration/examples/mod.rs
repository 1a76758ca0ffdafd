//! The examples at work, on real servers.

mod gateway;
mod replay;
