//! The functions that the server calls. No panic escapes them.

use super::api::{OK, api};
use super::args::Args;
use super::call::{Call, CommandError};
use redis_module::raw;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

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

/// Runs the body of a callback that returns nothing. Returns false if it panics.
pub(super) fn completes(body: impl FnOnce()) -> bool {
    guarded(false, || {
        body();
        true
    })
}

/// A function that handles a command. It captures nothing, because a C callback carries only its type.
pub trait Handler: Fn(&Call<'_>) -> Result<(), CommandError> + Copy + 'static {}
impl<H: Fn(&Call<'_>) -> Result<(), CommandError> + Copy + 'static> Handler for H {}

/// A function that reports the positions of a command's keys. It has no value at run time.
pub trait KeyFinder: Fn(&KeysRequest<'_>) + Copy + 'static {}
impl<K: Fn(&KeysRequest<'_>) + Copy + 'static> KeyFinder for K {}

/// The callback of a command.
pub const fn on_command<H: Handler>(_handler: H) -> raw::RedisModuleCmdFunc {
    Some(trampoline::<H>)
}

/// The callback of a command that also reports the positions of its keys.
pub const fn on_command_or_keys<H: Handler, K: KeyFinder>(
    _handler: H,
    _keys: K,
) -> raw::RedisModuleCmdFunc {
    Some(trampoline_or_keys::<H, K>)
}

unsafe extern "C" fn trampoline<H: Handler>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server keeps context and arguments alive until we return, and
    // `on_command` was given an H.
    unsafe { reply_or_fail(ctx, Args::new(argv, argc), recreate::<H>()) }
}

unsafe extern "C" fn trampoline_or_keys<H: Handler, K: KeyFinder>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server keeps context and arguments alive until we return, and
    // `on_command_or_keys` was given an H and a K.
    unsafe {
        let args = Args::new(argv, argc);
        match KeysRequest::of(ctx, args) {
            None => reply_or_fail(ctx, args, recreate::<H>()),
            Some(request) => report_keys(&request, recreate::<K>()),
        }
    }
}

/// Reports the keys of a command. If that panics, reports every argument as a key: if no key were
/// reported, the server would admit users who may not access the keys.
fn report_keys(request: &KeysRequest<'_>, keys: impl KeyFinder) -> c_int {
    if !completes(|| keys(request)) {
        report_all(request);
    }
    OK
}

fn report_all(request: &KeysRequest<'_>) {
    guarded((), || request.add_all());
}

/// Runs a function that replies to a call, and replies with its error if it fails.
///
/// # Safety
/// Both arguments come from the server, which runs this callback now.
#[inline]
pub(super) unsafe fn reply_or_fail(
    ctx: *mut raw::RedisModuleCtx,
    args: Args<'_>,
    body: impl FnOnce(&Call<'_>) -> Result<(), CommandError>,
) -> c_int {
    // SAFETY: the caller's promise.
    let call = unsafe { Call::new(ctx, args) };
    match guarded(None, || Some(body(&call))) {
        Some(Ok(())) => {}
        Some(Err(error)) => fail(&call, &error),
        None => fail(&call, &CommandError::Internal),
    }
    OK
}

fn fail(call: &Call<'_>, error: &CommandError) {
    guarded((), || call.fail(error));
}

/// Recreates a function from its type.
///
/// # Safety
/// An F existed. As F has no size and is Copy, this value equals it.
const unsafe fn recreate<F: Copy + 'static>() -> F {
    const { assert!(size_of::<F>() == 0, "a callback carries no value") };
    // SAFETY: the caller's promise.
    unsafe { NonNull::<F>::dangling().read() }
}

/// The server asks for the command's keys without executing it.
pub struct KeysRequest<'a> {
    ctx: *mut raw::RedisModuleCtx,
    args: Args<'a>,
}

impl<'a> KeysRequest<'a> {
    /// The request, if the server called the command's handler for its keys.
    ///
    /// # Safety
    /// Context and arguments are those the server called with, for all of 'a.
    pub(super) unsafe fn of(ctx: *mut raw::RedisModuleCtx, args: Args<'a>) -> Option<Self> {
        // SAFETY: the caller's promise.
        let is_request = unsafe { api(raw::RedisModule_IsKeysPositionRequest)(ctx) } != 0;
        is_request.then_some(Self { ctx, args })
    }

    /// All arguments, the command's name first.
    pub const fn args(&self) -> Args<'a> {
        self.args
    }

    /// Reports every argument except the command's name as a key.
    pub(super) fn add_all(&self) {
        for position in 1..self.args.len() {
            self.add(position);
        }
    }

    /// Reports the argument at this position as a key.
    pub fn add(&self, position: usize) {
        if let Ok(position) = c_int::try_from(position) {
            // SAFETY: the context is alive, and asks for keys.
            unsafe { api(raw::RedisModule_KeyAtPos)(self.ctx, position) };
        }
    }
}
