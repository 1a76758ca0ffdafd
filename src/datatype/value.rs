//! A value as the server keeps it: in memory, a pointer from [`into_raw`]; in an RDB file, a
//! payload.

use std::ffi::c_void;
use std::ptr;

use redis_module::raw;

use crate::metrics;
use crate::server::io;
use ratelimit_core::limit::Limiter;

/// The encoding version of values in an RDB file. 1 means one payload.
pub(super) const ENCODING: i32 = 1;

/// No value; the server takes it for a failure.
pub(super) const NULL: *mut c_void = ptr::null_mut();

/// Creates a value that the server owns.
pub(super) fn new_value(limiter: Limiter) -> *mut c_void {
    metrics::value_made();
    into_raw(Box::new(limiter))
}

/// Gives a value to the server.
pub(super) fn into_raw(limiter: Box<Limiter>) -> *mut c_void {
    Box::into_raw(limiter).cast()
}

/// Takes a value back from the server.
///
/// # Safety
/// `value` is null or came from [`into_raw`], and is not used again.
pub(super) unsafe fn from_raw(value: *mut c_void) -> Option<Box<Limiter>> {
    // SAFETY: the caller's promise.
    (!value.is_null()).then(|| unsafe { Box::from_raw(value.cast()) })
}

/// Borrows a value that the server owns.
///
/// # Safety
/// `value` is null or came from [`into_raw`], and nothing changes it for all of 'a.
pub(super) const unsafe fn borrow<'a>(value: *const c_void) -> Option<&'a Limiter> {
    // SAFETY: the caller's promise.
    unsafe { value.cast::<Limiter>().as_ref() }
}

/// Reads a payload with this encoding, or logs why it cannot be read. `what` has two phrases for
/// errors: what the payload holds, and what ends if it ends too early.
///
/// # Safety
/// `rdb` is what the server gave to the callback that is running.
pub(super) unsafe fn load_payload<T>(
    rdb: *mut raw::RedisModuleIO,
    encoding: i32,
    what: [&str; 2],
    read: impl FnOnce(&[u8]) -> Result<T, String>,
) -> Option<T> {
    let [of, ends] = what;
    let loaded = match raw::load_string_buffer(rdb) {
        _ if encoding != ENCODING => {
            Err(format!("encoding {encoding} of {of}, expected {ENCODING}"))
        }
        Err(_) => Err(format!("{ends} too early")),
        Ok(payload) => read(payload.as_ref()),
    };
    // SAFETY: the caller's promise.
    loaded.inspect_err(|why| unsafe { io::log_error(rdb, why) }).ok()
}
