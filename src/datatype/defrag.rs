//! Active defragmentation: the server decides whether to move each allocation, and where to.

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use redis_module::raw;

use super::heap::EachAllocation;
use super::value::{from_raw, into_raw};
use crate::server::alloc;
use crate::server::callback::guarded;

/// The callback's return value when nothing is left to do.
const DONE: c_int = 0;

/// Moves a value's allocations, all in one call: there are few, and the server's allocator does not
/// move large ones such as that of a long log.
pub(super) unsafe extern "C" fn defrag(
    ctx: *mut raw::RedisModuleDefragCtx,
    _key: *mut raw::RedisModuleString,
    value: *mut *mut c_void,
) -> c_int {
    guarded((), || {
        // SAFETY: the server gave `ctx` and the pointer where it keeps a value of this
        // type, which is the server's again when this returns.
        unsafe {
            let (Some(value), Some(reallocate)) = (value.as_mut(), raw::RedisModule_DefragAlloc)
            else {
                return;
            };
            // The server owns the value: it must not be dropped here, not even by a panic.
            let Some(mut limiter) = from_raw(*value).map(ManuallyDrop::new) else { return };
            if alloc::uses_server() {
                EachAllocation::new(|start: *mut u8| {
                    NonNull::new(reallocate(ctx, start.cast()).cast())
                        .map_or(start, NonNull::as_ptr)
                })
                .of_value(&mut limiter);
            }
            *value = into_raw(ManuallyDrop::into_inner(limiter));
        }
    });
    DONE
}
