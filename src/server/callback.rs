//! The functions that the server calls. No panic escapes them.

use std::ffi::c_int;
use std::mem::size_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use redis_module::raw;

use super::args::Args;
use super::call::{Call, CommandError};
use super::keys_request::KeysRequest;
use super::status::OK;

/// Runs the body of a callback, and returns `otherwise` if it panics.
pub fn guarded<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    #[cfg(feature = "fault-injection")]
    let body = super::fault::around(body);
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        // Dropping a payload may panic too.
        std::mem::forget(payload);
        otherwise
    })
}

/// The callback of a command that `handler` handles. It must be a function, or anything else
/// without a value at run time.
#[must_use]
pub const fn on_command<H>(handler: H) -> raw::RedisModuleCmdFunc
where
    H: Fn(&Call<'_>) -> Result<(), CommandError> + Copy + 'static,
{
    const { assert!(size_of::<H>() == 0, "a command is handled by a function") };
    let _ = handler;
    Some(trampoline::<H>)
}

/// The callback of a command that also reports the positions of its keys.
#[must_use]
pub const fn on_command_or_keys<H, K>(handler: H, keys: K) -> raw::RedisModuleCmdFunc
where
    H: Fn(&Call<'_>) -> Result<(), CommandError> + Copy + 'static,
    K: Fn(&KeysRequest<'_>) + Copy + 'static,
{
    const { assert!(size_of::<H>() == 0, "a command is handled by a function") };
    const { assert!(size_of::<K>() == 0, "keys are found by a function") };
    let _ = (handler, keys);
    Some(trampoline_or_keys::<H, K>)
}

unsafe extern "C" fn trampoline<H>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int
where
    H: Fn(&Call<'_>) -> Result<(), CommandError> + Copy + 'static,
{
    // SAFETY: the server keeps context and arguments alive until we return, and
    // `on_command` was given an H.
    unsafe { execute::<H>(ctx, argv, argc) };
    OK
}

unsafe extern "C" fn trampoline_or_keys<H, K>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int
where
    H: Fn(&Call<'_>) -> Result<(), CommandError> + Copy + 'static,
    K: Fn(&KeysRequest<'_>) + Copy + 'static,
{
    // SAFETY: the server keeps context and arguments alive until we return, and
    // `on_command_or_keys` was given an H and a K.
    unsafe {
        match KeysRequest::of(ctx, Args::new(argv, argc)) {
            None => execute::<H>(ctx, argv, argc),
            Some(request) => report_keys(&request, recreate::<K>()),
        }
    }
    OK
}

/// Reports the keys of a command. If that panics, reports every argument as a key: with none
/// reported, the server would let a user pass who may access only some keys.
fn report_keys(request: &KeysRequest<'_>, keys: impl Fn(&KeysRequest<'_>)) {
    let reported = guarded(false, || {
        keys(request);
        true
    });
    if !reported {
        report_all(request);
    }
}

fn report_all(request: &KeysRequest<'_>) {
    guarded((), || request.add_all());
}

/// # Safety
/// The server executes a command with this context and these arguments, and an H
/// existed.
#[inline]
unsafe fn execute<H>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) where
    H: Fn(&Call<'_>) -> Result<(), CommandError> + Copy + 'static,
{
    // SAFETY: the caller's promise.
    let (call, handler) = unsafe { (Call::new(ctx, Args::new(argv, argc)), recreate::<H>()) };
    reply_or_fail(&call, handler);
}

/// Runs a function that replies to a call, and replies with its error if it fails.
#[inline]
pub(super) fn reply_or_fail(
    call: &Call<'_>,
    body: impl FnOnce(&Call<'_>) -> Result<(), CommandError>,
) {
    let outcome = guarded(Err(CommandError::Internal), || body(call));
    if let Err(error) = outcome {
        fail(call, &error);
    }
}

fn fail(call: &Call<'_>, error: &CommandError) {
    guarded((), || call.fail(error));
}

/// Recreates a function from its type, which is all that a C callback can carry.
///
/// # Safety
/// An F existed. As F has no size and is Copy, this value equals it.
const unsafe fn recreate<F: Copy + 'static>() -> F {
    const { assert!(size_of::<F>() == 0) };
    // SAFETY: the caller's promise.
    unsafe { NonNull::<F>::dangling().read() }
}
