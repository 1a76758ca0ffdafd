//! Rate limiting inside Redis and Valkey.
//!
//! A client asks one question: may this request pass? `RL.CHECK key 20/m` answers with
//! five integers. Everything known about one identifier is the value of one key, so a
//! check is one lookup. The rules come with the call, so there is nothing to set up, and
//! a limit can change from call to call.
//!
//! # One `RL.CHECK`
//!
//! ```text
//!            bytes                                                     bytes
//!              |                                                         ^
//!   server     |  callback, borrowed arguments, keys, replies, clock     |    unsafe
//!              v                                                         |
//!   parse      arguments -> request, rule texts -> rules                 |    pure
//!              |                                                         |
//!   command    parse, open, decide, store, propagate, signal, reply -----+
//!              |                |                    |
//!   check      |   (state, rules, cost, now) -> five integers, new state      pure
//!   effect     |                                a change <-> RL.APPLY         pure
//!   datatype   Box<Limiter> <-> RDB, AOF, memory                              unsafe
//! ```
//!
//! # The rooms, in reading order
//!
//! Two crates use no server: [`ratelimit_engine`] decides, and [`ratelimit_protocol`] reads commands
//! and writes effects. The rooms that use a server are here:
//!
//! ```text
//! command     the table of commands, and a function for each
//! datatype    how a limiter is a key's value
//! server      the safe face of the module API
//!
//! config      the settings, one a line
//! policy      rules under a name
//! metrics     counters for INFO
//! unreadable  effects and values that this module cannot read, which must not be lost silently
//! ```
//!
//! Only `server` and `datatype` have unsafe code, and every function that the server calls
//! catches panics. `scripts/walls` lists which room may import from which, and checks that no
//! files import in a circle.

#![cfg_attr(
    not(any(test, fuzzing)),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]
#![deny(unsafe_code)]

mod command;
mod config;
#[allow(unsafe_code, reason = "the server calls its functions")]
mod datatype;
mod metrics;
mod policy;
#[allow(unsafe_code, reason = "the module API is C")]
mod server;
mod unreadable;

use datatype::LIMITER;
use redis_module::{Context, RedisString, Status, redis_module};
use server::info::Sections;
use server::{EventContext, ServerEvent};

/// Loads the module. Its data type is registered already.
fn init(ctx: &Context, args: &[RedisString]) -> Status {
    server::load(|| {
        let needed = (policy::most_rules as _, policy::most_log_entries as _);
        let policies = config::load(ctx, args, command::on_settings_changed, needed)?;
        server::declare_options(ctx, config::forkless_save());
        policy::configure(&policies)?;
        command::on_settings_loaded();
        server::register_commands(ctx, command::table(config::throttle_alias()))?;
        server::events::register(ctx, on_server_event);
        let sections = Sections {
            always: |info| {
                let room = config::room_for_waiters();
                let enforce = config::enforcement();
                let enforce = (enforce.name(), enforce == config::Enforcement::Yes);
                metrics::write_info(info, enforce, room.waiters as u64, room.bytes as u64);
            },
            unless_crashing: policy::write_info,
        };
        server::info::register(ctx, sections);
        server::log::notice(&format!("version {}, commit {}", metrics::VERSION, metrics::COMMIT));
        Ok(())
    })
}

/// Keeps the data outside of keys in step with the server's keys, and serves clients that wait.
fn on_server_event(ctx: &EventContext, event: ServerEvent) {
    unreadable::on_server_event(event);
    policy::on_server_event(ctx, event);
    match event {
        ServerEvent::Alarm => command::serve_waiters(ctx),
        ServerEvent::ClusterTick => command::refuse_unserved_waiters(ctx),
        _ => {}
    }
}

redis_module! {
    name: "ratelimit",
    version: server::version(env!("CARGO_PKG_VERSION")),
    allocator: (server::alloc::ServerAlloc, server::alloc::ServerAlloc),
    data_types: [LIMITER],
    init: init,
    commands: [],
}
