//! What the server asks of a value while it keeps it.

use std::ffi::c_void;
use std::mem::ManuallyDrop;

use redis_module::raw;

use super::heap::EachBlock;
use super::{NOTHING, give, lend, take_back};
use crate::limit::{self, Limiter};
use crate::metrics;
use crate::server::callback::guarded;
use crate::server::{alloc, io};

pub(super) unsafe extern "C" fn free(value: *mut c_void) {
    guarded((), || {
        // SAFETY: the server gives the value up.
        drop(unsafe { take_back(value) });
        metrics::value_freed();
    });
}

/// Calls a function with the start of each block of a value.
///
/// # Safety
/// The server gave us the value, and nobody else uses it until we return.
unsafe fn each_block(value: *const c_void, mut at: impl FnMut(*mut u8)) {
    // SAFETY: the caller's promise; the value came from `give` and stays the
    // server's. The blocks stay where they are.
    unsafe {
        let Some(mut limiter) = take_back(value.cast_mut()).map(ManuallyDrop::new) else { return };
        EachBlock::new(|start| {
            at(start);
            start
        })
        .of_value(&mut limiter);
    }
}

/// For `MEMORY USAGE`: what the allocator set aside, block by block; where it
/// cannot tell, the payload's size stands for what hangs off the limiter.
pub(super) unsafe extern "C" fn mem_usage(value: *const c_void) -> usize {
    guarded(0, || {
        let mut total = Some(0_usize);
        let add = |block: *mut u8| {
            // SAFETY: the limiter shows live blocks of its own, none of which
            // is aligned to more than the allocator can measure.
            let size = unsafe { alloc::allocated(block) };
            total = total.zip(size).map(|(total, size)| total.saturating_add(size));
        };
        // SAFETY: the server gave us a value of ours, and waits.
        unsafe { each_block(value, add) };
        total.unwrap_or_else(|| {
            // SAFETY: as above.
            let limiter = unsafe { lend(value) };
            let payload = limiter.map_or(0, |limiter| limit::encode(limiter).len());
            size_of::<Limiter>().saturating_add(payload)
        })
    })
}

/// How much work freeing is, in blocks: more than 64 the server leaves to a
/// thread.
pub(super) unsafe extern "C" fn free_effort(
    _key: *mut raw::RedisModuleString,
    value: *const c_void,
) -> usize {
    guarded(1, || {
        let mut blocks = 0_usize;
        // SAFETY: the server gave us a value of ours, and waits.
        unsafe { each_block(value, |_| blocks = blocks.saturating_add(1)) };
        blocks
    })
}

pub(super) unsafe extern "C" fn copy(
    _from: *mut raw::RedisModuleString,
    _to: *mut raw::RedisModuleString,
    value: *const c_void,
) -> *mut c_void {
    // SAFETY: the server gave us a value of ours.
    guarded(NOTHING, || unsafe { lend(value) }.map_or(NOTHING, |limiter| give(limiter.clone())))
}

/// For `DEBUG DIGEST`: equal values have equal payloads, so equal digests.
pub(super) unsafe extern "C" fn digest(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    guarded((), || {
        // SAFETY: the server gave us `digest` and a value of ours.
        unsafe {
            if let Some(limiter) = lend(value) {
                io::digest(digest, &limit::encode(limiter));
            }
        }
    });
}
