//! A value as the server keeps it in memory: a pointer from [`into_raw`].

use std::ffi::c_void;
use std::ptr;

use crate::metrics;
use ratelimit_core::key::Limiter;

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
