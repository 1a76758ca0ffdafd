//! Values in RDB files, `DUMP` payloads and full synchronizations.

use std::ffi::{c_int, c_void};

use redis_module::raw;

use super::value::{ENCODING, NULL, borrow, new_value};
use crate::newer_data;
use crate::server::callback::guarded;
use crate::server::io::{self, Payload};
use ratelimit_core::limit;

/// Loads a value. Any bytes give a value or an error that the server reports.
pub(super) unsafe extern "C" fn load(rdb: *mut raw::RedisModuleIO, encoding: c_int) -> *mut c_void {
    guarded(NULL, || {
        // SAFETY: `rdb` is what the server gave to this callback.
        let loaded = unsafe { Payload::load(rdb) };
        let value = match loaded {
            _ if encoding != ENCODING => {
                Err(format!("encoding {encoding} of a rate limiter, expected {ENCODING}"))
            }
            None => Err(String::from("a rate limiter's payload ends too early")),
            Some(payload) => {
                limit::decode(payload.bytes()).map_err(|error| newer_data::explain(&error))
            }
        };
        value.map(new_value).unwrap_or_else(|why| {
            // SAFETY: `rdb` is what the server gave to this callback.
            unsafe { io::log_error(rdb, &why) };
            NULL
        })
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
