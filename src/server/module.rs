//! The module as a whole: loading it, its options, and ending the server.

use std::error::Error;
use std::ffi::{c_int, c_void};
use std::process;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use redis_module::{Context, Status, raw};

use super::api::{api, has_flag};
use super::{alloc, callback, log};

/// Loads the module. If the body fails, this logs the error, and the server refuses the module.
pub fn load(body: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Status {
    log::log_panics();
    if !alloc::uses_server() {
        log::warning("the server does not count the memory of this module");
    }
    let loaded = callback::guarded(Err("a panic".into()), || {
        // SAFETY: the function takes nothing and reads a constant.
        check_server(unsafe { raw::RedisModule_GetServerVersion.map(|version| version()) })?;
        body()
    });
    match loaded {
        Ok(()) => Status::Ok,
        Err(why) => {
            log::warning(&format!("cannot be loaded: {why}"));
            Status::Err
        }
    }
}

/// The oldest server that the module is tested with, in the module API's form: 6.2.0.
const OLDEST_SERVER: c_int = 0x0006_0200;

/// Tests the server's version in the module API's form; Valkey gives the Redis version that it is
/// compatible with. `None` before Redis 6.0.9.
///
/// # Errors
/// If the server is older than [`OLDEST_SERVER`].
fn check_server(version: Option<c_int>) -> Result<(), &'static str> {
    if version.is_some_and(|version| version >= OLDEST_SERVER) {
        Ok(())
    } else {
        Err("the server is older than Redis 6.2, the oldest that this module supports")
    }
}

/// Ends the server while it loads a file that the module cannot read. The server itself does this
/// for unknown commands or types in a file.
pub fn end_server(why: &str) -> ! {
    log::warning(why);
    process::exit(1)
}

/// Ends this process if it is a child that writes a file, because the file could lack data. The
/// server keeps the old file.
pub(super) fn end_if_child() {
    // SAFETY: a null context is allowed; a child has nothing to clean up.
    unsafe {
        if has_flag(ptr::null_mut(), raw::REDISMODULE_CTX_FLAGS_IS_CHILD) {
            libc::_exit(1);
        }
    }
}

/// A version as one number, two digits a part: 1.2.3-rc.4 is 1020304. A release has 99 in place of its
/// candidate's number: 1.2.3 is 1020399.
pub fn version(text: &str) -> c_int {
    let (release, candidate) = text.split_once("-rc.").unwrap_or((text, "99"));
    let parts = release.split('.').chain([candidate]).map(|part| part.parse().unwrap_or(0));
    parts.fold(0, |version: c_int, part: c_int| version.saturating_mul(100).saturating_add(part))
}

/// An option of Valkey from 9.0 on: the module supports slots that migrate as a stream of commands.
const VALKEY_HANDLE_ATOMIC_SLOT_MIGRATION: u32 = 1 << 5;

/// An option of Valkey from 9.2 on: the module supports saving without a fork. No released header has it
/// yet; it is expected to take the next free bit, and a server that does not report the bit ignores it.
const VALKEY_HANDLE_FORKLESS: u32 = 1 << 6;

/// Whether the server may save without a fork.
static MAY_SAVE_FORKLESS: AtomicBool = AtomicBool::new(false);

/// Whether the server may save, and synchronize replicas, without a fork.
pub(super) fn may_save_forkless() -> bool {
    MAY_SAVE_FORKLESS.load(Ordering::Relaxed)
}

/// Sets the module's options:
///
/// - The module handles I/O errors itself, so a truncated payload is an error and does not end the
///   server.
/// - Opening a key for writing does not mark it as changed: the module signals changes.
/// - A replica may load new data while it serves the old data: policies, the data outside of keys,
///   are staged (see `events`).
/// - A slot may migrate as a stream of commands (Valkey): a command on a limiter only needs its
///   key.
/// - With `forkless`, and on a server that knows this option, the server may save without a fork: values
///   are saved by another thread, and a key may not open for writing (`Call::open_write`).
pub fn declare_options(ctx: &Context, forkless: bool) {
    let mut options = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
        | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED
        | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD;
    if is_valkey() {
        options |= VALKEY_HANDLE_ATOMIC_SLOT_MIGRATION;
        // SAFETY: the function takes nothing and returns a constant.
        let known = unsafe { raw::RedisModule_GetModuleOptionsAll.map_or(0, |all| all()) };
        if forkless && known.cast_unsigned() & VALKEY_HANDLE_FORKLESS != 0 {
            options |= VALKEY_HANDLE_FORKLESS;
            MAY_SAVE_FORKLESS.store(true, Ordering::Relaxed);
        }
    }
    // SAFETY: the context is the one the module is being loaded with.
    unsafe { api(raw::RedisModule_SetModuleOptions)(ctx.ctx, options as c_int) };
}

/// True if the server is Valkey. The options that it added after its fork from Redis have other
/// numbers.
fn is_valkey() -> bool {
    let mut function: *mut c_void = ptr::null_mut();
    // SAFETY: `GetApi` writes a function pointer to the address or leaves it alone;
    // the pointer is never called.
    unsafe {
        let name = c"ValkeyModule_SetModuleOptions";
        api(raw::RedisModule_GetApi)(name.as_ptr(), (&raw mut function).cast());
    }
    !function.is_null()
}

#[cfg(test)]
mod tests {
    use super::{check_server, version};

    #[test]
    fn versions_become_numbers() {
        assert_eq!(version("0.1.0-rc.1"), 10_001);
        assert_eq!(version("0.1.0-rc.2"), 10_002);
        assert_eq!(version("0.1.0"), 10_099);
        assert_eq!(version("2.10.3"), 2_100_399);
    }

    #[test]
    fn servers_before_6_2_are_refused() {
        for (server, supported) in [
            (None, false),
            (Some(0x0006_0010), false),
            (Some(0x0006_01ff), false),
            (Some(0x0006_0200), true),
            (Some(0x0007_0204), true),
            (Some(0x00ff_ffff), true),
        ] {
            assert_eq!(check_server(server).is_ok(), supported, "{server:x?}");
        }
    }
}
