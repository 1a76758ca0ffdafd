//! Active defragmentation: the server says of each block whether it lies well,
//! and gives it a better place if not.

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use redis_module::raw;

use super::heap::EachBlock;
use super::{give_back, take_back};
use crate::server::alloc;
use crate::server::callback::guarded;

/// Nothing is left to do.
const DONE: c_int = 0;

/// Moves a value's blocks. All at once: a value has few blocks, and a large
/// one, such as a long log's, the server's allocator leaves where it is.
pub(super) unsafe extern "C" fn defrag(
    ctx: *mut raw::RedisModuleDefragCtx,
    _key: *mut raw::RedisModuleString,
    value: *mut *mut c_void,
) -> c_int {
    guarded((), || {
        // SAFETY: the server gave us `ctx`, and the place where it keeps a value
        // of ours, which is the server's own again when we return.
        unsafe {
            let (Some(place), Some(move_block)) = (value.as_mut(), raw::RedisModule_DefragAlloc)
            else {
                return;
            };
            // Whatever happens, the value is the server's, and not dropped here.
            let Some(mut limiter) = take_back(*place).map(ManuallyDrop::new) else { return };
            if alloc::counted_by_server() {
                EachBlock::new(|start: *mut u8| {
                    NonNull::new(move_block(ctx, start.cast()).cast())
                        .map_or(start, NonNull::as_ptr)
                })
                .of_value(&mut limiter);
            }
            *place = give_back(ManuallyDrop::into_inner(limiter));
        }
    });
    DONE
}
