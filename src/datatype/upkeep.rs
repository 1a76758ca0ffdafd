//! What the server asks of a value while it keeps it.

use std::ffi::c_void;

use redis_module::raw;

use super::{NOTHING, give, lend, take_back};
use crate::limit::{self, Limiter};
use crate::server::callback::guarded;
use crate::server::{alloc, io};

/// What the allocator can measure.
const _: () = assert!(align_of::<Limiter>() <= 16);

pub(super) unsafe extern "C" fn free(value: *mut c_void) {
    // SAFETY: the server gives the value up.
    guarded((), || drop(unsafe { take_back(value) }));
}

/// For `MEMORY USAGE`: what the allocator set aside, block by block; where it
/// cannot tell, the payload's size stands for what hangs off the limiter.
pub(super) unsafe extern "C" fn mem_usage(value: *const c_void) -> usize {
    guarded(0, || {
        // SAFETY: the server gave us a value of ours.
        let Some(limiter) = (unsafe { lend(value) }) else { return 0 };
        let mut total = Some(0_usize);
        let mut add = |block: *const u8| {
            // SAFETY: the limiter names live blocks of its own, none of which
            // is aligned to more than it is itself.
            let size = unsafe { alloc::allocated(block) };
            total = total.zip(size).map(|(total, size)| total.saturating_add(size));
        };
        add(value.cast());
        limiter.allocations(&mut add);
        total.unwrap_or_else(|| size_of::<Limiter>().saturating_add(limit::encode(limiter).len()))
    })
}

/// How much work freeing is, in blocks: from 64 on the server leaves it to a
/// thread.
pub(super) unsafe extern "C" fn free_effort(
    _key: *mut raw::RedisModuleString,
    value: *const c_void,
) -> usize {
    guarded(1, || {
        let mut blocks = 1_usize;
        // SAFETY: the server gave us a value of ours.
        if let Some(limiter) = unsafe { lend(value) } {
            limiter.allocations(&mut |_| blocks = blocks.saturating_add(1));
        }
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
