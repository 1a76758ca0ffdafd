//! The server's callbacks for a value in memory.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use redis_module::raw;

use super::heap;
use super::heap::{NULL, borrow, from_raw, new_value};
use crate::metrics;
use crate::server::args::key_name;
use crate::server::callback::guarded;
use crate::server::changes::{self, Changes};
use crate::server::{alloc, io};
use ratelimit_engine::key::{self, Limiter};

/// What `defrag` returns when nothing is left to do.
const NOTHING_LEFT: c_int = 0;

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
    let visit = |start| {
        at(start);
        start
    };
    // SAFETY: the caller's promise; no allocation moves.
    unsafe { heap::visit(&mut value.cast_mut(), visit) };
}

/// For `MEMORY USAGE`: the bytes that the allocator reserved for all allocations. If the allocator does
/// not report them, estimates them as the size of the limiter plus the size of its payload.
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
            let payload = limiter.map_or(0, |limiter| key::encode(limiter).len());
            size_of::<Limiter>().saturating_add(payload)
        })
    })
}

/// The effort of freeing a value: the number of its allocations. Above 64 the server lets a thread free
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
                io::digest(digest, &key::encode(limiter));
            }
        }
    });
}

/// Active defragmentation: the server decides whether to move each allocation, and where to. One call
/// visits all allocations: they are few, and the server does not move large ones, such as a long log.
pub(super) unsafe extern "C" fn defrag(
    ctx: *mut raw::RedisModuleDefragCtx,
    _key: *mut raw::RedisModuleString,
    value: *mut *mut c_void,
) -> c_int {
    guarded((), || {
        // SAFETY: the server gave `ctx` and the pointer where it keeps a value of this
        // type, which is the server's again when this returns.
        unsafe {
            if let (Some(value), Some(reallocate)) = (value.as_mut(), raw::RedisModule_DefragAlloc)
                && alloc::uses_server()
            {
                heap::visit(value, |start| {
                    let moved = NonNull::new(reallocate(ctx, start.cast()).cast());
                    moved.map_or(start, NonNull::as_ptr)
                });
            }
        }
    });
    NOTHING_LEFT
}
