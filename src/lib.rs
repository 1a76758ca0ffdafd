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
//!   limit      |   (state, rules, cost, now) -> five integers, new state      pure
//!   effect     |                                a change <-> RL.APPLY         pure
//!   datatype   Box<Limiter> <-> RDB, AOF, memory                              unsafe
//! ```
//!
//! # The rooms, in reading order
//!
//! ```text
//! rule           a rule: its bounds, its text, what it means in words
//! limit          six algorithms, to which the time is an argument
//! parse          arguments to requests, a file a command
//! effect         what a command did, as it is propagated to replicas and the AOF
//! waiting        who waits for a key, in which order, and when to look again
//! command        the table of commands, and a function for each
//! datatype       how a limiter is a key's value
//! server         the safe face of the module API
//!
//! config         the settings, one a line
//! policy         rules under a name
//! metrics        counters for INFO
//! top            the keys most often denied
//! newer          data of a newer version of the module, which must not be lost silently
//! header_slice   a header and items in one block of memory
//! fuzz           what `make fuzz` tries, which the module does not contain
//! ```
//!
//! [`limit`] could serve a proxy as well: it knows no server, no clock and no I/O, and
//! neither do [`rule`], [`parse`] and `effect`. Only [`server`], [`datatype`] and the
//! container [`header_slice`] have unsafe code, and every function that the server calls
//! catches panics. `scripts/walls` lists which room may import from which, and checks
//! that no files import in a circle.

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
#![deny(clippy::undocumented_unsafe_blocks, unsafe_op_in_unsafe_fn)]

pub mod command;
pub mod config;
pub mod datatype;
pub mod effect;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod header_slice;
pub mod limit;
pub mod metrics;
pub mod newer;
pub mod parse;
pub mod policy;
pub mod rule;
pub mod server;
pub mod top;
pub mod waiting;

use datatype::LIMITER;
use redis_module::{Context, RedisString, Status, redis_module};
use server::info::Sections;
use server::{EventContext, ServerEvent};

/// Loads the module. The server knows its data type already.
fn init(ctx: &Context, args: &[RedisString]) -> Status {
    server::load(|| {
        server::declare_options(ctx);
        let policies = config::load(ctx, args)?;
        policy::configure(&policies)?;
        server::register_commands(ctx, command::table(config::throttle_alias()))?;
        server::events::register(ctx, on_server_event);
        let sections =
            Sections { always: metrics::write_info, unless_crashing: policy::write_info };
        server::info::register(ctx, sections);
        Ok(())
    })
}

/// Keeps the data outside of keys in step with the server's keys.
fn on_server_event(ctx: &EventContext, event: ServerEvent) {
    newer::on_server_event(event);
    policy::on_server_event(ctx, event);
}

redis_module! {
    name: "ratelimit",
    version: server::version(env!("CARGO_PKG_VERSION")),
    allocator: (server::alloc::ServerAlloc, server::alloc::ServerAlloc),
    data_types: [LIMITER],
    init: init,
    commands: [],
}
