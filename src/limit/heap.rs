//! The heap blocks of a value, each by its owner.
//!
//! Measuring and moving blocks (active defragmentation) takes unsafe code and
//! the server's allocator, so `datatype` does it; a value only shows its blocks.

use crate::header_slice::{Count, HeaderSlice};
use std::collections::VecDeque;
use std::ptr;

/// Is shown each block of a value. It may move a block, but not change its contents.
pub trait HeapVisitor {
    fn boxed<T>(&mut self, owner: &mut Box<T>);
    fn header_slice<H, T: Copy, N: Count>(&mut self, owner: &mut HeaderSlice<H, T, N>);
    fn slice<T>(&mut self, owner: &mut Box<[T]>);
    fn vec<T>(&mut self, owner: &mut Vec<T>);

    /// A ring's elements need not begin where its block does. As a vector, which it can
    /// become and be made from, they do.
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
