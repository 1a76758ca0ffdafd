//! The heap blocks of a value.
//!
//! Measuring and moving blocks (active defragmentation) takes unsafe code and
//! the server's allocator, so `datatype` does it; a value only shows its blocks.

use crate::header_slice::{Count, HeaderSlice};
use std::collections::VecDeque;
use std::ptr;

/// Visits each heap block of a value, through the block's owner. It may move a block, but
/// not change its contents.
pub trait HeapVisitor {
    fn boxed<T>(&mut self, owner: &mut Box<T>);
    fn header_slice<H, T: Copy, N: Count>(&mut self, owner: &mut HeaderSlice<H, T, N>);
    fn slice<T>(&mut self, owner: &mut Box<[T]>);
    fn vec<T>(&mut self, owner: &mut Vec<T>);

    /// Visits a ring as a vector: the elements of a vector begin where its block does, those
    /// of a ring need not. Neither conversion copies the block.
    fn ring<T>(&mut self, owner: &mut VecDeque<T>) {
        let mut elements = Vec::from(std::mem::take(owner));
        self.vec(&mut elements);
        *owner = VecDeque::from(elements);
    }
}

/// Where a block lies, for a prefetch.
#[inline]
pub fn block_of<T>(block: &T) -> *const u8 {
    ptr::from_ref(block).cast()
}
