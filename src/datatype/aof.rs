//! Rewriting the AOF: a value is one `RL.LOAD key payload`. The server adds
//! the expiry itself.

use std::ffi::c_void;

use redis_module::raw;

use super::lend;
use crate::limit;
use crate::server::callback::guarded;
use crate::server::io;

pub(super) unsafe extern "C" fn rewrite(
    aof: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    guarded((), || {
        // SAFETY: the server gave us `aof`, the key's name and a value of ours.
        unsafe {
            if let Some(limiter) = lend(value) {
                io::rewrite(aof, key, &limit::encode(limiter));
            }
        }
    });
}
