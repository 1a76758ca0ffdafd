//! What the tests share: servers, clients, files, and commands to send.

pub mod allocator;
pub mod bans;
pub mod client;
pub mod clock;
pub mod dump;
pub mod faults;
pub mod files;
pub mod holders;
pub mod holds;
pub mod machine;
pub mod modules;
pub mod network;
pub mod policies;
pub mod preloaded;
pub mod rdb_version;
pub mod seed;
pub mod server;
pub mod settings;
pub mod traffic;
pub mod users;
pub mod waiters;
pub mod watchdog;
pub mod workload;
