//! The heap allocations of a value.
//!
//! Measuring and moving allocations (active defragmentation) takes unsafe code and the server's
//! allocator, so the module's `datatype` does both; a value only exposes its allocations.

use crate::header_slice::{Count, HeaderSlice};
use alloc::{boxed::Box, collections::VecDeque, vec::Vec};
use core::ptr;

/// Visits each heap allocation of a value, through its owner. The visitor may move an allocation, but
/// not change its contents.
pub trait HeapVisitor {
    /// Visits the allocation of a single value.
    fn boxed<T>(&mut self, owner: &mut Box<T>);
    /// Visits the one allocation of header, count and items.
    fn header_slice<H, T: Copy, N: Count>(&mut self, owner: &mut HeaderSlice<H, T, N>);
    /// Visits the allocation of a slice; an empty one has none.
    fn slice<T>(&mut self, owner: &mut Box<[T]>);
    /// Visits the allocation of a vector, which has none if its capacity is 0.
    fn vec<T>(&mut self, owner: &mut Vec<T>);

    /// Visits the allocation of an optional value, and then the allocations inside it.
    fn optional<T>(&mut self, owner: &mut Option<Box<T>>, inner: impl FnOnce(&mut T, &mut Self)) {
        if let Some(value) = owner {
            self.boxed(value);
            inner(value, self);
        }
    }

    /// Visits a ring as a vector. A vector's elements start where its allocation starts, but a
    /// ring's may not. Neither conversion copies the allocation.
    fn ring<T>(&mut self, owner: &mut VecDeque<T>) {
        let mut elements = Vec::from(core::mem::take(owner));
        self.vec(&mut elements);
        *owner = VecDeque::from(elements);
    }
}

/// A value's address, for a prefetch.
#[inline]
pub fn address_of<T>(value: &T) -> *const u8 {
    ptr::from_ref(value).cast()
}
