//! Values in RDB files, `DUMP` payloads and full synchronizations.

use std::ffi::{c_int, c_void};

use redis_module::raw;

use super::value::{NULL, borrow, load_payload, new_value};
use crate::newer_data;
use crate::server::callback::guarded;
use crate::server::io;
use ratelimit_core::limit;

/// Loads a value. Any byte string gives a value or an error, which the server reports.
pub(super) unsafe extern "C" fn load(rdb: *mut raw::RedisModuleIO, encoding: c_int) -> *mut c_void {
    guarded(NULL, || {
        let what = ["a rate limiter", "a rate limiter's payload ends"];
        let decode =
            |payload: &[u8]| limit::decode(payload).map_err(|error| newer_data::explain(&error));
        // SAFETY: `rdb` is what the server gave to this callback.
        unsafe { load_payload(rdb, encoding, what, decode) }.map_or(NULL, new_value)
    })
}

pub(super) unsafe extern "C" fn save(rdb: *mut raw::RedisModuleIO, value: *mut c_void) {
    // SAFETY: the server gave `rdb` and a value of this type.
    unsafe {
        io::guarded_save(rdb, || {
            if let Some(limiter) = borrow(value) {
                io::save(rdb, &limit::encode(limiter));
            }
        });
    }
}
