//! The edge: what the server calls, and where everything that unwinds ends.

use std::ffi::c_int;
use std::mem::size_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use redis_module::raw;

use super::OK;
use super::args::Args;
use super::call::{Call, Failure};

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
    H: Fn(&Call<'_>) -> Result<(), Failure> + Copy + 'static,
{
    const { assert!(size_of::<H>() == 0, "a command is handled by a function") };
    let _ = handler;
    Some(trampoline::<H>)
}

unsafe extern "C" fn trampoline<H>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int
where
    H: Fn(&Call<'_>) -> Result<(), Failure> + Copy + 'static,
{
    // SAFETY: the server keeps context and arguments alive until we return.
    let call = unsafe { Call::new(ctx, Args::new(argv, argc)) };
    // SAFETY: H has no size and is Copy, and `on_command` was given one, so
    // this is that one again.
    let handler: H = unsafe { NonNull::<H>::dangling().read() };
    let outcome = guarded(Err(Failure::Internal), || handler(&call));
    if let Err(failure) = outcome {
        guarded((), || call.fail(&failure));
    }
    OK
}
