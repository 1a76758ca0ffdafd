//! Tests on real servers: Redis 6.2, 7.0, 8.2 and Valkey 8.1, 9.1, with the module as `make build`
//! leaves it.
//!
//! ```text
//! command/       what each command replies and changes; errors
//! policy/        rules under a name: who sets them, where they are kept, how they spread
//! durability/    RDB and append-only files: restarts, crashes, old versions, damage
//! replication/   replicas, promotion, clusters, failover
//! server/        what the server does with the module: settings, ACLs, events, memory, expiry, scripts
//! docs.rs        the transcripts of the README and the guides, replayed
//! support/       starts and stops servers, talks to them, makes commands up
//! ```
//!
//! `make integration` runs everything; CONTRIBUTING.md says how to run one room or one test.

mod command;
mod docs;
mod durability;
mod policy;
mod replication;
mod server;
mod support;
