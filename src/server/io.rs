//! Payloads: saved to RDB files, loaded from them, written to the AOF, digested.

use std::ffi::{CStr, c_char};
use std::slice;

use redis_module::raw;

use super::args::Args;
use super::callback::guarded;
use super::log::{c_string, warning};
use super::module::end_if_child;

/// A payload read from an RDB file, a `DUMP` or a full synchronization, freed by
/// Drop.
#[derive(Debug)]
pub struct Payload {
    start: *mut c_char,
    len: usize,
}

impl Payload {
    /// Reads a payload; `None` if the file ends too early.
    ///
    /// # Safety
    /// `rdb` is what the server gave to the callback that is running.
    #[must_use]
    pub unsafe fn load(rdb: *mut raw::RedisModuleIO) -> Option<Self> {
        let mut len = 0;
        // SAFETY: the caller's promise.
        unsafe {
            let start = raw::RedisModule_LoadStringBuffer?(rdb, &raw mut len);
            let failed = raw::RedisModule_IsIOError.is_some_and(|is_error| is_error(rdb) != 0);
            if start.is_null() {
                return None;
            }
            let payload = Self { start, len };
            (!failed).then_some(payload)
        }
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the server gave `len` bytes there, ours until Drop.
        unsafe { slice::from_raw_parts(self.start.cast(), self.len) }
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        // SAFETY: the buffer is the server's and ours to free, once.
        unsafe {
            if let Some(free) = raw::RedisModule_Free {
                free(self.start.cast());
            }
        }
    }
}

/// Runs the body of a callback that saves or rewrites. If it panics, makes the write fail, so that
/// the server keeps the old file.
///
/// # Safety
/// `io` is what the server gave to the callback that is running.
pub unsafe fn guarded_save(io: *mut raw::RedisModuleIO, body: impl FnOnce()) {
    let is_whole = guarded(false, || {
        body();
        true
    });
    if !is_whole {
        // SAFETY: the caller's promise.
        unsafe { fail(io) };
    }
}

/// Makes the writing of a file fail.
///
/// The API has no function for that. But loading from a file that is being written fails, and
/// because the module handles load errors itself (`declare_options`), the server only records the
/// error. It then discards the file, in a child as well as in `SAVE`. A server from 7.2 on forgets
/// the error if the callback wrote nothing, which auxiliary data may do, so this writes a number
/// first.
///
/// # Safety
/// `io` is what the server gave to the callback that is running.
unsafe fn fail(io: *mut raw::RedisModuleIO) {
    // SAFETY: the caller's promise; a null context is allowed.
    unsafe {
        if let (Some(save), Some(load)) =
            (raw::RedisModule_SaveUnsigned, raw::RedisModule_LoadUnsigned)
        {
            save(io, 0);
            load(io);
        }
        if raw::RedisModule_IsIOError.is_some_and(|is_error| is_error(io) != 0) {
            return;
        }
        warning("the server took no notice that saving failed: save again before it ends");
        end_if_child();
    }
}

/// Saves a payload.
///
/// # Safety
/// `rdb` is what the server gave to the callback that is running.
pub unsafe fn save(rdb: *mut raw::RedisModuleIO, payload: &[u8]) {
    // 6.2 reads the first byte even of an empty payload.
    let start = if payload.is_empty() { c"".as_ptr() } else { payload.as_ptr().cast() };
    // SAFETY: the caller's promise; the bytes are copied.
    unsafe {
        if let Some(save) = raw::RedisModule_SaveStringBuffer {
            save(rdb, start, payload.len());
        }
    }
}

/// Writes `command key payload` to the AOF being rewritten.
///
/// # Safety
/// `aof` and `key` are what the server gave to the callback that is running.
pub unsafe fn emit_payload(
    aof: *mut raw::RedisModuleIO,
    command: &CStr,
    key: *mut raw::RedisModuleString,
    payload: &[u8],
) {
    // SAFETY: the caller's promise; the format describes the arguments.
    unsafe {
        if let Some(emit) = raw::RedisModule_EmitAOF {
            let start = payload.as_ptr().cast::<c_char>();
            emit(aof, command.as_ptr(), c"sb".as_ptr(), key, start, payload.len());
        }
    }
}

/// Writes `command subcommand name texts...` to the AOF being rewritten.
///
/// # Safety
/// `aof` is what the server gave to the callback that is running.
pub unsafe fn emit_texts(
    aof: *mut raw::RedisModuleIO,
    command: &CStr,
    subcommand: &CStr,
    name: &[u8],
    texts: Args<'_>,
) {
    let (start, texts) = (name.as_ptr().cast::<c_char>(), texts.raw());
    let (command, subcommand) = (command.as_ptr(), subcommand.as_ptr());
    // SAFETY: the caller's promise; the format describes the arguments: a C string,
    // a buffer with its length, a vector of strings with its length.
    unsafe {
        if let Some(emit) = raw::RedisModule_EmitAOF {
            let format = c"cbv".as_ptr();
            emit(aof, command, format, subcommand, start, name.len(), texts.as_ptr(), texts.len());
        }
    }
}

/// Adds a payload to the digest of a value, and ends the digest.
///
/// # Safety
/// `digest` is what the server gave to the callback that is running.
pub unsafe fn digest(digest: *mut raw::RedisModuleDigest, payload: &[u8]) {
    // SAFETY: the caller's promise; the bytes are read before the call returns.
    unsafe {
        if let Some(add) = raw::RedisModule_DigestAddStringBuffer {
            add(digest, payload.as_ptr().cast(), payload.len());
        }
        if let Some(end) = raw::RedisModule_DigestEndSequence {
            end(digest);
        }
    }
}

/// Logs why a value could not be loaded.
///
/// # Safety
/// `rdb` is what the server gave to the callback that is running.
pub unsafe fn log_error(rdb: *mut raw::RedisModuleIO, message: &str) {
    let message = c_string(message);
    // SAFETY: the caller's promise; the format takes the one string given.
    unsafe {
        if let Some(log) = raw::RedisModule_LogIOError {
            log(rdb, c"warning".as_ptr(), c"%s".as_ptr(), message.as_ptr());
        }
    }
}
