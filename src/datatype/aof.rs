//! Rewrites the AOF: each value becomes `RL.LOAD key payload`, and the server adds the expiry
//! itself. The policies come before the first value.

use std::ffi::c_void;

use redis_module::raw;

use super::value::borrow;
use crate::policy;
use crate::server::io;
use ratelimit_core::limit;

pub(super) unsafe extern "C" fn rewrite(
    aof: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    // SAFETY: the server gave `aof`, the key's name and a value of this type.
    unsafe {
        io::guarded_save(aof, || {
            for policy in policy::take_due_in_aof() {
                let name = policy.name().as_bytes();
                io::emit_texts(aof, c"RL.POLICY", c"SET", name, policy.texts().args());
            }
            if let Some(limiter) = borrow(value) {
                io::emit_payload(aof, c"RL.LOAD", key, &limit::encode(limiter));
            }
        });
    }
}
