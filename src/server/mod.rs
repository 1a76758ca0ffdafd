//! The safe face of the module API.
//!
//! Redis speaks C: raw contexts, argument vectors, keys that must be closed,
//! replies that must be complete, callbacks that must not unwind. This is the
//! only room, with `datatype/`, where that is spoken; what it hands out cannot
//! be misused by the rest:
//!
//! ```text
//!  the server -> callback::on_command -> Call  a command being executed
//!                                        |- args     borrowed &[u8], never copied
//!                                        |- key      opened, type-checked, closed by Drop
//!                                        |- reply    five integers, maps, errors
//!                                        |- replicate, signal, flags, log
//!             -> callback::on_command_or_keys -> KeysRequest  where its keys are
//!             -> callback::guarded             every other callback
//! ```
//!
//! Two rules hold it together. Every callback catches what unwinds, for a
//! panic that crosses into C ends the server. And every function of the API is
//! looked at before it is called: which ones there are depends on the server.

pub mod alloc;
pub mod args;
pub mod call;
pub mod callback;
pub mod clock;
pub mod commands;
pub mod events;
pub mod info;
pub mod io;
pub mod key;
pub mod keys_request;
pub mod log;
mod per_server;
mod propagation;
pub mod replicate;
pub mod reply;
pub mod scan;
mod server_info;
pub mod settings;
mod usage;

pub use args::{Arg, Args, Joined, Texts};
pub use call::{Call, CommandError, KeyspaceEvent};
pub use events::{EventContext, ReplicateTo, ServerEvent};
pub use key::{NativeType, ReadKey, Value, WriteKey};
pub use keys_request::KeysRequest;
pub use per_server::PerServer;
pub use reply::Writer;

use std::error::Error;
use std::ffi::{c_int, c_void};
use std::process;
use std::ptr;

use redis_module::{Context, Status, raw};

/// What functions of the API answer when all went well.
const OK: c_int = raw::REDISMODULE_OK as c_int;

/// Loads the module: an error is logged and refuses it.
pub fn load(body: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Status {
    log::log_panics();
    if !alloc::counted_by_server() {
        log::warning("the server does not count the memory of this module");
    }
    let loaded = callback::guarded(Err("a panic".into()), body);
    match loaded {
        Ok(()) => Status::Ok,
        Err(why) => {
            log::warning(&format!("cannot be loaded: {why}"));
            Status::Err
        }
    }
}

/// Ends the server, which loads a file that it must not go on without. It does
/// so itself with a file of commands or types that it does not know.
pub fn end(why: &str) -> ! {
    log::warning(why);
    process::exit(1)
}

/// The version as the server wants it: 0.1.0 is 100, 1.2.3 is 10203.
#[must_use]
pub const fn version(text: &str) -> c_int {
    let mut rest = text.as_bytes();
    let (mut total, mut part): (c_int, c_int) = (0, 0);
    while let [byte, tail @ ..] = rest {
        match *byte {
            b'.' => {
                total = total.saturating_add(part).saturating_mul(100);
                part = 0;
            }
            digit @ b'0'..=b'9' => {
                part = part.saturating_mul(10).saturating_add((digit & 15) as c_int);
            }
            _ => break,
        }
        rest = tail;
    }
    total.saturating_add(part)
}

/// Of Valkey's, from 9.0 on: keys may come by a migration of their slot.
const VALKEY_HANDLE_ATOMIC_SLOT_MIGRATION: u32 = 1 << 5;

/// Says how the module wants to be treated: a truncated payload is an error it
/// handles; only what it signals counts as a change; a replica may load new
/// data beside the old, as what lies beside the keys is staged (see `events`);
/// and a slot may come as a stream of commands, as no limiter needs more than
/// its key.
pub fn declare_options(ctx: &Context) {
    let mut options = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
        | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED
        | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD;
    if is_valkey() {
        options |= VALKEY_HANDLE_ATOMIC_SLOT_MIGRATION;
    }
    // SAFETY: the context is the one the module is being loaded with.
    unsafe {
        if let Some(set_options) = raw::RedisModule_SetModuleOptions {
            set_options(ctx.ctx, options as c_int);
        }
    }
}

/// Whether this is Valkey, which has its own numbers for what came after the
/// two went apart.
fn is_valkey() -> bool {
    let mut function: *mut c_void = ptr::null_mut();
    // SAFETY: `GetApi` writes a function pointer to the address given, or
    // leaves it alone; it is only looked at.
    unsafe {
        if let Some(get_api) = raw::RedisModule_GetApi {
            let name = c"ValkeyModule_SetModuleOptions";
            get_api(name.as_ptr(), (&raw mut function).cast());
        }
    }
    !function.is_null()
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn versions_as_numbers() {
        assert_eq!(version("0.1.0"), 100);
        assert_eq!(version("1.2.3"), 10203);
        assert_eq!(version("2.10.0-rc1"), 21000);
    }
}
