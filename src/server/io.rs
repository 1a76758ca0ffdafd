//! Payloads: saved to RDB files, written to the AOF, digested. Also failures of saving and loading.

use std::ffi::CStr;

use redis_module::raw;

use super::api::api;
use super::args::Args;
use super::callback::completes;
use super::log::{c_string, warning};
use super::module::end_if_child;

/// Runs the body of a callback that saves or rewrites. If it panics, makes the write fail, so that
/// the server keeps the old file.
///
/// # Safety
/// `io` is what the server gave to the callback that is running.
pub unsafe fn guarded_save(io: *mut raw::RedisModuleIO, body: impl FnOnce()) {
    if !completes(body) {
        // SAFETY: the caller's promise.
        unsafe { fail(io) };
    }
}

/// Makes the writing of a file fail.
///
/// The API has no function for that. But loading from a file that is being written fails, and
/// because the module handles load errors itself (`declare_options`), the server only records the
/// error. It then discards the file, in a child as well as in `SAVE`. A server from 7.2 on forgets
/// the error if the callback wrote nothing. The callback for auxiliary data may have written
/// nothing, so this function writes a number first.
///
/// # Safety
/// `io` is what the server gave to the callback that is running.
unsafe fn fail(io: *mut raw::RedisModuleIO) {
    // SAFETY: the caller's promise; a null context is allowed.
    unsafe {
        api(raw::RedisModule_SaveUnsigned)(io, 0);
        api(raw::RedisModule_LoadUnsigned)(io);
        if api(raw::RedisModule_IsIOError)(io) == 0 {
            warning("the server took no notice that saving failed: save again before it ends");
            end_if_child();
        }
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
    unsafe { api(raw::RedisModule_SaveStringBuffer)(rdb, start, payload.len()) };
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
    let (command, start, len) = (command.as_ptr(), payload.as_ptr(), payload.len());
    // SAFETY: the caller's promise; the format describes the arguments: a string, a buffer with its
    // length.
    unsafe { api(raw::RedisModule_EmitAOF)(aof, command, c"sb".as_ptr(), key, start, len) };
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
    let (command, subcommand, texts) = (command.as_ptr(), subcommand.as_ptr(), texts.raw());
    let (name, name_len) = (name.as_ptr(), name.len());
    // SAFETY: the caller's promise; the format describes the arguments: a C string,
    // a buffer with its length, a vector of strings with its length.
    unsafe {
        let (emit, format) = (api(raw::RedisModule_EmitAOF), c"cbv".as_ptr());
        emit(aof, command, format, subcommand, name, name_len, texts.as_ptr(), texts.len());
    }
}

/// Adds a payload to the digest of a value, and ends the digest.
///
/// # Safety
/// `digest` is what the server gave to the callback that is running.
pub unsafe fn digest(digest: *mut raw::RedisModuleDigest, payload: &[u8]) {
    // SAFETY: the caller's promise; the bytes are read before the call returns.
    unsafe {
        let add = api(raw::RedisModule_DigestAddStringBuffer);
        add(digest, payload.as_ptr().cast(), payload.len());
        api(raw::RedisModule_DigestEndSequence)(digest);
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
        let (level, format) = (c"warning".as_ptr(), c"%s".as_ptr());
        api(raw::RedisModule_LogIOError)(rdb, level, format, message.as_ptr());
    }
}
