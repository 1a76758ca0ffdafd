//! Return codes of the module API, and the flags of contexts.

use std::ffi::c_int;

use redis_module::raw;

pub(crate) const OK: c_int = raw::REDISMODULE_OK as c_int;
pub(crate) const ERROR: c_int = raw::REDISMODULE_ERR as c_int;

/// True if a context has one of these flags.
///
/// # Safety
/// The context is alive or null.
pub(super) unsafe fn has_flag(ctx: *mut raw::RedisModuleCtx, flag: u32) -> bool {
    // SAFETY: the caller's promise.
    let flags = unsafe { raw::RedisModule_GetContextFlags.map(|flags| flags(ctx)) };
    flags.is_some_and(|flags| flags.cast_unsigned() & flag != 0)
}
