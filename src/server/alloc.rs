//! The allocator: the server's, so that `used_memory`, `maxmemory` and
//! `MEMORY USAGE` see what the module holds.
//!
//! Outside a server (`cargo test`, benches, fuzzers) there is no such thing,
//! and the system's allocator serves. The two must never meet: a block has to
//! be freed by whoever gave it out. So the very first allocation decides, once
//! and for good, which of the two this process uses. In a server that first
//! allocation comes after `RedisModule_Init`, which runs before any code of
//! ours and fetches the pointers; should anything ever allocate before that,
//! the system's allocator serves to the end, which is right, only uncounted.
//!
//! ```text
//!  align <= 16    [ block ............................ ]   as the server gives it
//!  align  > 16    [ pad | address of the start | block ]   aligned by us
//!                                              ^ a multiple of align
//! ```
//!
//! The server's blocks are aligned to 16 when their size is a multiple of 16
//! (jemalloc, built with a quantum of 8, gives no more), so sizes are rounded
//! up for such layouts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;
use std::mem::size_of;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

use redis_module::raw;

const UNDECIDED: u8 = 0;
const SERVER: u8 = 1;
const SYSTEM: u8 = 2;

/// Whose memory this process uses.
static SOURCE: AtomicU8 = AtomicU8::new(UNDECIDED);

/// Alignment that the server's allocator gives by itself.
const NATURAL_ALIGN: usize = 8;
/// Alignment that it gives to sizes that are a multiple of it.
const SIZED_ALIGN: usize = 16;

/// The server's allocator inside a server, the system's elsewhere.
#[derive(Debug)]
pub struct ServerAlloc;

#[inline]
fn uses_server() -> bool {
    match SOURCE.load(Ordering::Relaxed) {
        SERVER => true,
        SYSTEM => false,
        _ => decide(),
    }
}

#[cold]
fn decide() -> bool {
    // SAFETY: the pointers are written once, by `RedisModule_Init`, on the
    // thread that loads the module and before any code of ours runs.
    let there = unsafe {
        let (alloc, realloc) = (raw::RedisModule_Alloc, raw::RedisModule_Realloc);
        let free = raw::RedisModule_Free;
        alloc.is_some() && realloc.is_some() && free.is_some()
    };
    let wanted = if there { SERVER } else { SYSTEM };
    match SOURCE.compare_exchange(UNDECIDED, wanted, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => there,
        Err(decided) => decided == SERVER,
    }
}

/// A block of at least `size` bytes, or null. `TryAlloc` (7.0) reports a
/// failure, `Alloc` ends the server as every allocation of its own would.
#[inline]
fn server_alloc(size: usize) -> *mut u8 {
    // SAFETY: see `decide`; both take any size.
    unsafe {
        match raw::RedisModule_TryAlloc.or(raw::RedisModule_Alloc) {
            Some(alloc) => alloc(size).cast(),
            None => ptr::null_mut(),
        }
    }
}

/// # Safety
/// `block` came from [`server_alloc`] and was not freed.
#[inline]
unsafe fn server_free(block: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(free) = raw::RedisModule_Free {
            free(block.cast());
        }
    }
}

/// The size to ask the server for, for a layout it can align by itself.
#[inline]
fn natural_size(size: usize, align: usize) -> Option<usize> {
    if align <= NATURAL_ALIGN {
        Some(size)
    } else if align <= SIZED_ALIGN {
        size.checked_next_multiple_of(SIZED_ALIGN)
    } else {
        None
    }
}

/// For alignments beyond the server's: room for the block, for aligning it and
/// for the address of the start.
fn padded_alloc(layout: Layout) -> *mut u8 {
    let room = layout.align().saturating_add(size_of::<*mut u8>());
    let Some(size) = layout.size().checked_add(room) else {
        return ptr::null_mut();
    };
    let start = server_alloc(size);
    if start.is_null() {
        return start;
    }
    let after = start.wrapping_add(size_of::<*mut u8>());
    let block = after.wrapping_add(after.align_offset(layout.align()));
    // SAFETY: `align_offset` is below `align`, so the block ends inside the
    // room asked for; and the word before it begins at `start` or later.
    unsafe { block.cast::<*mut u8>().wrapping_sub(1).write_unaligned(start) };
    block
}

// SAFETY: each block is freed by the allocator that gave it (`SOURCE` never
// changes once set), is as large and as aligned as asked for, and a failure is
// answered with null, leaving the old block of a `realloc` as it was.
unsafe impl GlobalAlloc for ServerAlloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !uses_server() {
            // SAFETY: the caller's promise.
            return unsafe { System.alloc(layout) };
        }
        match natural_size(layout.size(), layout.align()) {
            Some(size) => server_alloc(size),
            None => padded_alloc(layout),
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !uses_server() {
            // SAFETY: the caller's promise; the block is the system's.
            return unsafe { System.dealloc(block, layout) };
        }
        let start = if layout.align() <= SIZED_ALIGN {
            block
        } else {
            // SAFETY: `padded_alloc` wrote the start just before the block.
            unsafe { block.cast::<*mut u8>().wrapping_sub(1).read_unaligned() }
        };
        // SAFETY: the block is the server's and starts there.
        unsafe { server_free(start) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if !uses_server() {
            // SAFETY: the caller's promise; the block is the system's.
            return unsafe { System.realloc(block, layout, new_size) };
        }
        if let Some(size) = natural_size(new_size, layout.align()) {
            // SAFETY: the block came from `server_alloc`, unpadded.
            return unsafe {
                match raw::RedisModule_TryRealloc.or(raw::RedisModule_Realloc) {
                    Some(realloc) => realloc(block.cast(), size).cast(),
                    None => ptr::null_mut(),
                }
            };
        }
        // SAFETY: the caller promises that `new_size` makes a valid layout; the
        // copy stays inside both blocks.
        unsafe {
            let new_layout = Layout::from_size_align_unchecked(new_size, layout.align());
            let new = self.alloc(new_layout);
            if !new.is_null() {
                ptr::copy_nonoverlapping(block, new, layout.size().min(new_size));
                self.dealloc(block, layout);
            }
            new
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !uses_server() {
            // SAFETY: the caller's promise.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: as for `alloc`; the block is as long as the layout says.
        unsafe {
            let block = self.alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }
}

/// What the server's allocator really set aside for a block; `None` where it
/// cannot tell.
///
/// # Safety
/// `block` is live, was given out by [`ServerAlloc`], and its layout's
/// alignment was at most 16.
#[must_use]
pub unsafe fn allocated(block: *const u8) -> Option<usize> {
    if block.is_null() || !uses_server() {
        return None;
    }
    // SAFETY: the block is the server's and unpadded, so it starts here.
    unsafe { raw::RedisModule_MallocSize.map(|size| size(block.cast_mut().cast::<c_void>())) }
}

/// Whether the server counts our memory; only false if something allocated
/// before the server's pointers were there.
#[must_use]
pub fn counted_by_server() -> bool {
    uses_server()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_a_server_the_system_serves() {
        assert!(!uses_server());
        let grown: Vec<u64> = (0..10_000).collect();
        assert_eq!(grown.len(), 10_000);
    }

    #[test]
    fn sizes_are_rounded_only_where_alignment_needs_it() {
        assert_eq!(natural_size(24, 8), Some(24));
        assert_eq!(natural_size(24, 16), Some(32));
        assert_eq!(natural_size(24, 32), None);
        assert_eq!(natural_size(usize::MAX, 16), None);
    }
}
