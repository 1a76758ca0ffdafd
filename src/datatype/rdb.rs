//! To and from RDB files, `DUMP` payloads and a primary's first stream.

use std::ffi::{c_int, c_void};

use redis_module::raw;

use super::{ENCODING, NOTHING, give, lend, payload};
use crate::limit;
use crate::server::callback::guarded;
use crate::server::io::{self, Payload};

/// Any bytes give a value, or an error that the server reports.
pub(super) unsafe extern "C" fn load(rdb: *mut raw::RedisModuleIO, encoding: c_int) -> *mut c_void {
    guarded(NOTHING, || {
        // SAFETY: `rdb` is what the server gave to this callback.
        let loaded = unsafe { Payload::load(rdb) };
        let value = match loaded {
            _ if encoding != ENCODING => {
                Err(format!("encoding {encoding} of a rate limiter, expected {ENCODING}"))
            }
            None => Err(String::from("a rate limiter's payload ends too early")),
            Some(payload) => limit::decode(payload.bytes()).map_err(|error| error.to_string()),
        };
        value.map(give).unwrap_or_else(|why| {
            // SAFETY: as above.
            unsafe { io::log_error(rdb, &why) };
            NOTHING
        })
    })
}

pub(super) unsafe extern "C" fn save(rdb: *mut raw::RedisModuleIO, value: *mut c_void) {
    // SAFETY: the server gave us `rdb` and a value of ours.
    unsafe {
        io::guarded_save(rdb, || {
            if let Some(limiter) = lend(value) {
                io::save(rdb, &payload(limiter));
            }
        });
    }
}
