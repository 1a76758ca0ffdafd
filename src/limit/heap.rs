//! The heap blocks of a value: who owns which.
//!
//! Measuring and moving blocks (active defragmentation) takes unsafe code and
//! the server's allocator, so it is done elsewhere; a value only shows its
//! blocks, each by its owner.

use crate::header_slice::{Count, HeaderSlice};
use std::collections::VecDeque;
use std::ptr;

/// Whoever is shown a value's blocks. It may move a block's place in memory,
/// never what is in it.
pub trait HeapVisitor {
    fn boxed<T>(&mut self, owner: &mut Box<T>);
    fn header_slice<H, T: Copy, N: Count>(&mut self, owner: &mut HeaderSlice<H, T, N>);
    fn slice<T>(&mut self, owner: &mut Box<[T]>);
    fn vec<T>(&mut self, owner: &mut Vec<T>);

    /// The elements of a ring do not begin where its block does; those of the
    /// vector it can be turned into and back do.
    fn ring<T>(&mut self, owner: &mut VecDeque<T>) {
        let mut elements = Vec::from(std::mem::take(owner));
        self.vec(&mut elements);
        *owner = VecDeque::from(elements);
    }
}

/// Where a block lies, for a prefetch.
#[inline]
pub fn block_of<T>(block: &T) -> *const [u8] {
    ptr::slice_from_raw_parts(ptr::from_ref(block).cast(), size_of::<T>())
}
