//! The edge: what the server calls, and where everything that unwinds ends.

use std::ffi::c_int;
use std::mem::size_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use redis_module::raw;

use super::OK;
use super::args::Args;
use super::call::{Call, CommandError};
use super::keys_request::KeysRequest;

/// Runs the body of a callback; if it panics, `otherwise` is the result.
pub fn guarded<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        // Dropping a payload may panic in its turn.
        std::mem::forget(payload);
        otherwise
    })
}

/// What the server calls for a command handled by `handler`, which must be a
/// function (or anything else without a value at run time).
#[must_use]
pub const fn on_command<H>(handler: H) -> raw::RedisModuleCmdFunc
where
    H: Fn(&Call<'_>) -> Result<(), CommandError> + Copy + 'static,
{
    const { assert!(size_of::<H>() == 0, "a command is handled by a function") };
    let _ = handler;
    Some(trampoline::<H>)
}

/// The same for a command of which the server asks where its keys are.
#[must_use]
pub const fn on_command_or_keys<H, K>(handler: H, keys: K) -> raw::RedisModuleCmdFunc
where
    H: Fn(&Call<'_>) -> Result<(), CommandError> + Copy + 'static,
    K: Fn(&KeysRequest<'_>) + Copy + 'static,
{
    const { assert!(size_of::<H>() == 0, "a command is handled by a function") };
    const { assert!(size_of::<K>() == 0, "keys are told by a function") };
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
            Some(request) => guarded((), || again::<K>()(&request)),
        }
    }
    OK
}

/// # Safety
/// The server executes a command with these, and there was an H.
#[inline]
unsafe fn execute<H>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) where
    H: Fn(&Call<'_>) -> Result<(), CommandError> + Copy + 'static,
{
    // SAFETY: the caller's promise.
    let (call, handler) = unsafe { (Call::new(ctx, Args::new(argv, argc)), again::<H>()) };
    let outcome = guarded(Err(CommandError::Internal), || handler(&call));
    if let Err(failure) = outcome {
        guarded((), || call.fail(&failure));
    }
}

/// A function that was given before.
///
/// # Safety
/// There was an F. As it has no size and is Copy, this is that one again.
const unsafe fn again<F: Copy + 'static>() -> F {
    const { assert!(size_of::<F>() == 0) };
    // SAFETY: the caller's promise.
    unsafe { NonNull::<F>::dangling().read() }
}
