//! Rate limiting inside Redis and Valkey.
//!
//! A client asks one thing: may this request pass? `RL.CHECK key 20/m` answers
//! with five integers. Everything known about one identifier is one key's
//! value, so a check is one look-up; the rules come with the call, so there is
//! nothing to set up, and a limit can change from call to call.
//!
//! # In reading order
//!
//! ```text
//!            bytes                                                   bytes
//!              |                                                       ^
//!   server     |  trampoline, borrowed arguments, keys, replies, clock |    unsafe
//!              v                                                       |
//!   parse      arguments -> request, rule text -> Rule                 |    pure
//!              |                                                       |
//!   command    parse, open, decide, store, replicate, signal, reply ---+
//!              |                   |
//!   limit      (state, rules, cost, now) -> five integers, new state        pure
//!                                  |
//!   datatype                       Box<Limiter> <-> RDB, AOF, memory        unsafe
//!
//!   config     what can be set, one setting a line
//!   policy     rules under a name
//!   newer      what a newer version wrote, and how its loss is prevented
//!   metrics    what was done, counted; top: whom it was denied most often
//!   header_slice     a header and items in one block of memory                    unsafe
//! ```
//!
//! [`limit`] is the subject: five algorithms, exact, without a clock. It could
//! serve a proxy as well. [`parse`] turns arguments into requests and is the
//! only one that knows how a rule is written. [`command`] is the table of
//! commands and a function for each. [`datatype`] lets a limiter be a key's
//! value. [`server`] is the safe face of the module API; it, `datatype` and the
//! container [`header_slice`] are the only ones with unsafe code, and every function
//! the server calls catches what unwinds.

#![cfg_attr(
    not(test),
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
pub mod header_slice;
pub mod limit;
pub mod metrics;
pub mod newer;
pub mod parse;
pub mod policy;
pub mod rule;
pub mod server;
pub mod top;

use datatype::LIMITER;
use redis_module::{Context, RedisString, Status, redis_module};
use server::info::Sections;
use server::{EventContext, ServerEvent};

/// What happens at load, once the type is known to the server.
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

/// What lies beside the keys follows them.
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
