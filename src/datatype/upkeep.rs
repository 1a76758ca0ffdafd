//! The server's callbacks for a value in memory.

use std::ffi::c_void;
use std::mem::ManuallyDrop;

use redis_module::raw;

use super::heap::EachAllocation;
use super::value::{NULL, borrow, from_raw, new_value};
use crate::metrics;
use crate::server::args::key_name;
use crate::server::callback::guarded;
use crate::server::changes::{self, Changes};
use crate::server::{alloc, io};
use ratelimit_core::limit::{self, Limiter};

pub(super) unsafe extern "C" fn free(value: *mut c_void) {
    guarded((), || {
        // SAFETY: the server gives up a value of this type.
        drop(unsafe { from_raw(value) });
        metrics::value_freed();
    });
}

/// Calls a function with the start of each allocation of a value.
///
/// # Safety
/// The server gave the value, and nothing else uses it until this returns.
unsafe fn each_allocation(value: *const c_void, mut at: impl FnMut(*mut u8)) {
    // SAFETY: the caller's promise; the value stays the server's, and no allocation moves.
    unsafe {
        let Some(mut limiter) = from_raw(value.cast_mut()).map(ManuallyDrop::new) else { return };
        EachAllocation::new(|start| {
            at(start);
            start
        })
        .of_value(&mut limiter);
    }
}

/// For `MEMORY USAGE`: the bytes that the allocator reserved for all allocations. If it does not
/// report them, estimates them as the limiter's size plus its payload's.
pub(super) unsafe extern "C" fn mem_usage(value: *const c_void) -> usize {
    guarded(0, || {
        let mut total = Some(0_usize);
        let add = |allocation: *mut u8| {
            // SAFETY: the allocation is live, and aligned to 8 bytes at most (`heap`).
            let size = unsafe { alloc::allocated(allocation) };
            total = total.zip(size).map(|(total, size)| total.saturating_add(size));
        };
        // SAFETY: the server gave a value of this type, and waits.
        unsafe { each_allocation(value, add) };
        total.unwrap_or_else(|| {
            // SAFETY: the server gave a value of this type, and waits.
            let limiter = unsafe { borrow(value) };
            let payload = limiter.map_or(0, |limiter| limit::encode(limiter).len());
            size_of::<Limiter>().saturating_add(payload)
        })
    })
}

/// The effort of freeing a value: its number of allocations. Above 64 the server lets a thread free
/// it.
pub(super) unsafe extern "C" fn free_effort(
    _key: *mut raw::RedisModuleString,
    value: *const c_void,
) -> usize {
    guarded(1, || {
        let mut allocations = 0_usize;
        // SAFETY: the server gave a value of this type, and waits.
        unsafe { each_allocation(value, |_| allocations = allocations.saturating_add(1)) };
        allocations
    })
}

/// Called when a value leaves its key: the key was deleted, overwritten, renamed, moved or evicted,
/// or has expired.
pub(super) unsafe extern "C" fn unlink(key: *mut raw::RedisModuleString, _value: *const c_void) {
    guarded((), || {
        // SAFETY: the server gave the key's name, which lives until this returns.
        changes::report(|| Changes::Key(unsafe { key_name(key) }));
    });
}

pub(super) unsafe extern "C" fn copy(
    _from: *mut raw::RedisModuleString,
    _to: *mut raw::RedisModuleString,
    value: *const c_void,
) -> *mut c_void {
    // SAFETY: the server gave a value of this type.
    guarded(NULL, || unsafe { borrow(value) }.map_or(NULL, |limiter| new_value(limiter.clone())))
}

/// For `DEBUG DIGEST`: equal values have equal payloads, and so equal digests.
pub(super) unsafe extern "C" fn digest(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    guarded((), || {
        // SAFETY: the server gave `digest` and a value of this type.
        unsafe {
            if let Some(limiter) = borrow(value) {
                io::digest(digest, &limit::encode(limiter));
            }
        }
    });
}
