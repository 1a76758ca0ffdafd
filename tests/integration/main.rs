//! Tests on real servers: Redis 6.2, 7.0, 8.2 and Valkey 8.1, 9.1, with the module built by
//! `make faulty`.
//!
//! ```text
//! command/       what each command replies and changes, one file per command; wrong input
//! panics/        panics in the functions that the server calls
//! policy/        policies: who sets them, where they are saved, how they reach replicas
//! durability/    RDB and append-only files: restarts, crashes, old versions, damaged data
//! replication/   replicas, promotion, clusters, failover
//! server/        settings, ACLs, COMMAND, events, memory, expiry, scripts and transactions
//! docs.rs        the transcripts of the README and the guides
//! clients/       client libraries of several languages that wait in RL.WAIT, and their time-outs
//! monitoring/    alerts and the dashboard, over a real Prometheus and a real exporter
//! soak/          long runs under load; seconds in `make test-long`, minutes in `make soak`
//! histories/     whether the replies to concurrent clients are those of one order of their calls
//! twin/          compares the script for servers without modules with the module; longer in `make twin`
//! wire/          what hostile clients, primaries and files send; seconds here, longer in `make fuzz-wire`
//! benches.rs     the tool that measures latencies
//! examples/      the programs of examples/, run by clients that count what passes
//! support/       starts and stops servers, talks to them, generates commands
//! ```
//!
//! `make integration` runs everything; CONTRIBUTING.md says how to run one folder or one test.

#![allow(clippy::float_cmp, reason = "the numbers of INFO are whole")]
#![allow(clippy::match_same_arms, reason = "a table has a row for each case")]
#![allow(clippy::naive_bytecount, reason = "the texts are short")]
#![allow(clippy::needless_pass_by_value, reason = "a helper takes what its caller has made")]
#![allow(clippy::unnecessary_debug_formatting, reason = "settings have paths in quotes")]

mod benches;
mod clients;
mod command;
mod docs;
mod durability;
mod examples;
mod histories;
mod monitoring;
mod panics;
mod policy;
mod replication;
mod server;
mod soak;
mod support;
mod twin;
mod wire;
