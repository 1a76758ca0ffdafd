//! The allocator: the server's, so that `used_memory`, `maxmemory` and
//! `MEMORY USAGE` see what the module holds.
//!
//! Outside a server (`cargo test`, benches, fuzzers) there is no such thing,
//! and the system's allocator serves. The two must never meet: the allocator that
//! gave out a block has to free it. So the very first allocation decides, once
//! and for good, which of the two this process uses. In a server that first
//! allocation comes after `RedisModule_Init`, which runs before any code of
//! ours and fetches the pointers; should anything ever allocate before that,
//! the system's allocator serves to the end, which is right, only uncounted.

mod aligned;

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

use redis_module::raw;

use self::aligned::Source;

const UNDECIDED: u8 = 0;
const SERVER: u8 = 1;
const SYSTEM: u8 = 2;

/// Whose memory this process uses.
static SOURCE: AtomicU8 = AtomicU8::new(UNDECIDED);

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

/// The server's allocator. `TryAlloc` (7.0) reports a failure, `Alloc` ends the
/// server, as a failed allocation by the server itself does.
struct Server;

// SAFETY: both take any size, and align to 8 bytes.
unsafe impl Source for Server {
    #[inline]
    fn alloc(&self, size: usize) -> *mut u8 {
        // SAFETY: see `decide`.
        unsafe {
            match raw::RedisModule_TryAlloc.or(raw::RedisModule_Alloc) {
                Some(alloc) => alloc(size).cast(),
                None => ptr::null_mut(),
            }
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe {
            match raw::RedisModule_TryRealloc.or(raw::RedisModule_Realloc) {
                Some(realloc) => realloc(block.cast(), size).cast(),
                None => ptr::null_mut(),
            }
        }
    }

    #[inline]
    unsafe fn free(&self, block: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(free) = raw::RedisModule_Free {
                free(block.cast());
            }
        }
    }
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
        aligned::alloc(&Server, layout)
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise; the block is from where it goes.
        unsafe {
            if uses_server() {
                aligned::free(&Server, block, layout);
            } else {
                System.dealloc(block, layout);
            }
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's promise; the block is from where the new one is.
        unsafe {
            if uses_server() {
                aligned::realloc(&Server, block, layout, new_size)
            } else {
                System.realloc(block, layout, new_size)
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !uses_server() {
            // SAFETY: the caller's promise; the block is the system's.
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
/// alignment was at most 8.
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
}
