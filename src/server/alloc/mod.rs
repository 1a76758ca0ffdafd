//! The module's allocator. In a server it is the server's own, so `used_memory`, `maxmemory` and
//! `MEMORY USAGE` count the module's memory.
//!
//! Outside a server (`cargo test`, benchmarks) it is the system's. An allocation must be freed by
//! the allocator that gave it, so the process's first allocation decides for good which of the two
//! to use. In a server the first allocation comes after `RedisModule_Init`, which fetches the
//! pointers before any code of the module runs. If something allocated earlier, the module would
//! use the system's allocator for good: safe, but not counted.
//!
//! redis-module's `RedisAlloc` is as fast: with it, `RL.CHECK` takes the same number of instructions
//! within 1 % (`make bench-instructions`). But it aborts outside a server, where all unit tests run.
//! It ends the server when memory is short, although `RL.LOAD` and `RESTORE` of a large value must
//! only fail. And it aligns no allocation beyond the server's 8 bytes, while hash tables need 16.

mod aligned;

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use redis_module::raw;

const UNDECIDED: u8 = 0;
const SERVER: u8 = 1;
const SYSTEM: u8 = 2;

/// Which allocator this process uses.
static SOURCE: AtomicU8 = AtomicU8::new(UNDECIDED);

/// How many bytes the module has allocated in the server.
static IN_USE: AtomicU64 = AtomicU64::new(0);

/// How many bytes the module has allocated in the server. Its allocator takes more: up to a fifth, or
/// 16 bytes for each allocation. Asking it at each allocation would cost more.
pub fn in_use() -> u64 {
    IN_USE.load(Ordering::Relaxed)
}

/// The server's allocator inside a server, the system's elsewhere.
pub struct ServerAlloc;

/// True if the module's memory is the server's, which counts it. False if something allocated before
/// the server's pointers were fetched.
#[inline]
pub fn uses_server() -> bool {
    match SOURCE.load(Ordering::Relaxed) {
        SERVER => true,
        SYSTEM => false,
        _ => decide_source(),
    }
}

#[cold]
fn decide_source() -> bool {
    // SAFETY: the pointers are written once, by `RedisModule_Init`, on the
    // thread that loads the module and before any code of ours runs.
    let (alloc, free) = unsafe { (raw::RedisModule_Alloc, raw::RedisModule_Free) };
    let there = alloc.is_some() && free.is_some();
    let wanted = if there { SERVER } else { SYSTEM };
    match SOURCE.compare_exchange(UNDECIDED, wanted, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => there,
        Err(decided) => decided == SERVER,
    }
}

/// An allocation of the server, aligned to 8 bytes. `TryAlloc` (7.0) returns null if memory is
/// short; `Alloc` then ends the server, as for the server's own allocations.
#[inline]
fn server_alloc(size: usize) -> *mut u8 {
    // SAFETY: see `decide_source`; both take any size.
    unsafe {
        let alloc = raw::RedisModule_TryAlloc.or(raw::RedisModule_Alloc);
        alloc.map_or(ptr::null_mut(), |alloc| alloc(size).cast())
    }
}

// SAFETY: each allocation is freed by the allocator that gave it (`SOURCE` never changes
// once set) and is as large and as aligned as requested; a failure returns null.
unsafe impl GlobalAlloc for ServerAlloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe {
            match uses_server() {
                true => {
                    IN_USE.fetch_add(layout.size() as u64, Ordering::Relaxed);
                    let allocation = aligned::alloc(server_alloc, layout);
                    if allocation.is_null() {
                        IN_USE.fetch_sub(layout.size() as u64, Ordering::Relaxed);
                    }
                    allocation
                }
                false => System.alloc(layout),
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, allocation: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise; the allocator that gave the allocation frees it.
        unsafe {
            match raw::RedisModule_Free {
                Some(free) if uses_server() => {
                    IN_USE.fetch_sub(layout.size() as u64, Ordering::Relaxed);
                    free(aligned::start(allocation, layout).cast());
                }
                _ => System.dealloc(allocation, layout),
            }
        }
    }
}

/// The bytes that the server's allocator reserved for an allocation; `None` if it does not report
/// them.
///
/// # Safety
/// `allocation` is live, was given out by [`ServerAlloc`], and its layout's
/// alignment was at most 8.
pub unsafe fn allocated(allocation: *const u8) -> Option<usize> {
    if allocation.is_null() || !uses_server() {
        return None;
    }
    // SAFETY: the allocation is the server's and not padded, so it starts here.
    unsafe { raw::RedisModule_MallocSize.map(|size| size(allocation.cast_mut().cast())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_a_server_the_system_allocates() {
        assert!(!uses_server());
        let grown: Vec<u64> = (0..10_000).collect();
        assert_eq!(grown.len(), 10_000);
    }
}
