//! Calling the module API: its functions, its return codes, and the flags of contexts.

use std::ffi::c_int;

use redis_module::raw;

pub(crate) const OK: c_int = raw::REDISMODULE_OK as c_int;
pub(crate) const ERROR: c_int = raw::REDISMODULE_ERR as c_int;

/// A function that every supported server has. Builds with debug assertions check that it is there.
///
/// # Safety
/// Redis 6.2 has the function: `module::load` refuses older servers, and no newer one lacks it.
#[inline(always)]
pub(super) const unsafe fn api<F: Copy>(function: Option<F>) -> F {
    // SAFETY: the caller's promise.
    unsafe { function.unwrap_unchecked() }
}

/// True if a context has one of these flags.
///
/// # Safety
/// The context is alive or null.
pub(super) unsafe fn has_flag(ctx: *mut raw::RedisModuleCtx, flag: u32) -> bool {
    // SAFETY: the caller's promise.
    unsafe { api(raw::RedisModule_GetContextFlags)(ctx) }.cast_unsigned() & flag != 0
}
