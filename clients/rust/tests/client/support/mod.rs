//! Real servers with the module, an axum application in front of them, and its clients.

pub mod app;
pub mod cluster;
pub mod server;
