//! What functions of the module API return.

use std::ffi::c_int;

use redis_module::raw;

pub(crate) const OK: c_int = raw::REDISMODULE_OK as c_int;
pub(crate) const ERROR: c_int = raw::REDISMODULE_ERR as c_int;
