//! What the RDB file holds beside the keys: the policies, before any key.
//!
//! One payload. Servers that know how (Redis 7.2, Valkey 8) write none where
//! there is no policy, so that such a file can be loaded without the module;
//! the others write an empty one.

use std::ffi::c_int;

use redis_module::raw;

use super::ENCODING;
use crate::policy;
use crate::server::callback::guarded;
use crate::server::io::{self, Payload};

const OK: c_int = raw::REDISMODULE_OK as c_int;
const ERROR: c_int = raw::REDISMODULE_ERR as c_int;

pub(super) unsafe extern "C" fn load(
    rdb: *mut raw::RedisModuleIO,
    encoding: c_int,
    _when: c_int,
) -> c_int {
    guarded(ERROR, || {
        // SAFETY: `rdb` is what the server gave to this callback.
        let loaded = unsafe { Payload::load(rdb) };
        let loaded = match loaded {
            _ if encoding != ENCODING => {
                Err(format!("encoding {encoding} of policies, expected {ENCODING}"))
            }
            None => Err(String::from("the policies end too early")),
            Some(payload) => policy::load(payload.bytes())
                .map_err(|error| format!("a saved policy cannot be read: {error}")),
        };
        match loaded {
            Ok(()) => OK,
            Err(why) => {
                // SAFETY: as above.
                unsafe { io::log_error(rdb, &why) };
                ERROR
            }
        }
    })
}

/// For servers that take nothing for an answer.
pub(super) unsafe extern "C" fn save_if_any(rdb: *mut raw::RedisModuleIO, _when: c_int) {
    guarded((), || {
        let saved = policy::saved();
        if !saved.is_empty() {
            // SAFETY: the server gave us `rdb`.
            unsafe { io::save(rdb, &saved) };
        }
    });
}

/// For the others.
pub(super) unsafe extern "C" fn save(rdb: *mut raw::RedisModuleIO, _when: c_int) {
    guarded((), || {
        // SAFETY: the server gave us `rdb`.
        unsafe { io::save(rdb, &policy::saved()) };
    });
}
