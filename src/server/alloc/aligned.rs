//! Allocations of any alignment, from an allocator that only aligns to 8 bytes.
//!
//! ```text
//!  align <= 8    [ allocation ............................ ]   as the allocator gives it
//!  align  > 8    [ pad | address of the start | allocation ]   aligned here
//!                                             ^ a multiple of align
//! ```
//!
//! Most allocators align larger allocations to 16 bytes. But a server built without
//! `malloc_usable_size` stores each allocation's size in the 8 bytes before it, so every allocation
//! begins 8 bytes after an aligned address. The hash tables of `policy` and `top` need 16 bytes,
//! and so do maps of 128-bit numbers; a key's value needs at most 8.

#![allow(clippy::cast_ptr_alignment, reason = "each access is unaligned, or to aligned memory")]

use std::alloc::Layout;
use std::ptr;

const fn is_aligned_anyway(layout: Layout) -> bool {
    layout.align() <= 8
}

/// An allocation for a layout, or null.
///
/// # Safety
/// `source` returns null or an allocation of at least the given size, aligned to 8 bytes.
#[inline]
pub unsafe fn alloc(source: impl Fn(usize) -> *mut u8, layout: Layout) -> *mut u8 {
    if is_aligned_anyway(layout) {
        return source(layout.size());
    }
    // SAFETY: the caller's promise.
    unsafe { padded(source, layout) }
}

/// Allocates with extra room for aligning and for the address of the start.
///
/// # Safety
/// That of [`alloc`].
#[cold]
unsafe fn padded(source: impl Fn(usize) -> *mut u8, layout: Layout) -> *mut u8 {
    let room = layout.align().saturating_add(size_of::<*mut u8>());
    let start = layout.size().checked_add(room).map_or(ptr::null_mut(), source);
    if start.is_null() {
        return start;
    }
    let after = start.wrapping_add(size_of::<*mut u8>());
    let allocation = after.wrapping_add(after.align_offset(layout.align()));
    // SAFETY: `align_offset` is below `align`, so the allocation ends inside the
    // requested room; and the word before it begins at `start` or later.
    unsafe { allocation.cast::<*mut u8>().wrapping_sub(1).write_unaligned(start) };
    allocation
}

/// The start of the source's allocation, to free it.
///
/// # Safety
/// The allocation came from [`alloc`] with this layout, and was not freed.
#[inline]
pub unsafe fn start(allocation: *mut u8, layout: Layout) -> *mut u8 {
    if is_aligned_anyway(layout) {
        return allocation;
    }
    // SAFETY: the caller's promise; `padded` stored the start before the allocation.
    unsafe { allocation.cast::<*mut u8>().wrapping_sub(1).read_unaligned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::GlobalAlloc;
    use std::alloc::System;
    use std::cell::Cell;

    /// Allocates like a server without `malloc_usable_size`: each allocation has its size in the 8
    /// bytes before it, and begins 8 bytes after a multiple of 16.
    #[derive(Default)]
    struct SizeBefore {
        live: Cell<usize>,
    }

    const SIZE: usize = 8;

    fn layout_of(size: usize) -> Layout {
        Layout::from_size_align(SIZE + size, 16).unwrap()
    }

    impl SizeBefore {
        fn alloc(&self, size: usize) -> *mut u8 {
            // SAFETY: the layout's size is not 0; its first word is written.
            unsafe {
                let start = System.alloc(layout_of(size));
                start.cast::<usize>().write(size);
                self.live.set(self.live.get() + 1);
                start.add(SIZE)
            }
        }

        unsafe fn free(&self, allocation: *mut u8) {
            // SAFETY: an allocation of `alloc`, with its size before it.
            unsafe {
                let start = allocation.sub(SIZE);
                System.dealloc(start, layout_of(start.cast::<usize>().read()));
            }
            self.live.set(self.live.get() - 1);
        }
    }

    #[test]
    fn allocations_are_aligned_where_the_allocator_promises_eight_bytes() {
        let source = SizeBefore::default();
        for align in [1, 2, 4, 8, 16, 32, 64, 4_096] {
            for size in [1, 8, 16, 24, 32, 48, 64, 100, 1_000, 4_096] {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: the source aligns to 8 bytes.
                let allocation = unsafe { alloc(|size| source.alloc(size), layout) };
                assert_eq!(allocation.addr() % align, 0, "{size} bytes aligned to {align}");
                // SAFETY: the allocation has `size` bytes.
                unsafe {
                    allocation.write_bytes(7, size);
                    source.free(start(allocation, layout));
                }
            }
        }
        assert_eq!(source.live.get(), 0);
    }

    #[test]
    fn a_failure_of_the_allocator_returns_null() {
        let layout = Layout::from_size_align(isize::MAX as usize - 31, 32).unwrap();
        // SAFETY: the source gives no allocation.
        assert!(unsafe { alloc(|_| ptr::null_mut(), layout) }.is_null());
    }
}
