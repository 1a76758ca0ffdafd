//! What a value passes through to be saved, loaded, rewritten and digested.

use std::ffi::c_char;
use std::slice;

use redis_module::raw;

use super::log::c_string;

/// A payload read from an RDB file, a `DUMP` or a primary's stream, freed by
/// Drop.
#[derive(Debug)]
pub struct Payload {
    start: *mut c_char,
    len: usize,
}

impl Payload {
    /// Reads one; `None` if the file ends too early.
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

/// Saves a payload.
///
/// # Safety
/// `rdb` is what the server gave to the callback that is running.
pub unsafe fn save(rdb: *mut raw::RedisModuleIO, payload: &[u8]) {
    // 6.2 reads a first byte even where there is none.
    let start = if payload.is_empty() { c"".as_ptr() } else { payload.as_ptr().cast() };
    // SAFETY: the caller's promise; the bytes are copied.
    unsafe {
        if let Some(save) = raw::RedisModule_SaveStringBuffer {
            save(rdb, start, payload.len());
        }
    }
}

/// Writes `RL.LOAD key payload` to the AOF being rewritten.
///
/// # Safety
/// `aof` and `key` are what the server gave to the callback that is running.
pub unsafe fn rewrite(
    aof: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    payload: &[u8],
) {
    // SAFETY: the caller's promise; the format describes the arguments.
    unsafe {
        if let Some(emit) = raw::RedisModule_EmitAOF {
            let start = payload.as_ptr().cast::<c_char>();
            emit(aof, c"RL.LOAD".as_ptr(), c"sb".as_ptr(), key, start, payload.len());
        }
    }
}

/// Adds a payload to the digest of a value, and ends it.
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
