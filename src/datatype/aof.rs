//! Rewriting the AOF: a value is one `RL.LOAD key payload`. The server adds
//! the expiry itself. The first value of a file comes after the policies.

use std::ffi::c_void;

use redis_module::raw;

use super::{lend, payload};
use crate::policy;
use crate::server::io;

pub(super) unsafe extern "C" fn rewrite(
    aof: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    // SAFETY: the server gave us `aof`, the key's name and a value of ours.
    unsafe {
        io::guarded_save(aof, || {
            for policy in policy::due_in_aof() {
                let name = policy.name().as_bytes();
                io::emit_texts(aof, c"RL.POLICY", c"SET", name, policy.texts().args());
            }
            if let Some(limiter) = lend(value) {
                io::emit_payload(aof, c"RL.LOAD", key, &payload(limiter));
            }
        });
    }
}
