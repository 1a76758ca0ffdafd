//! A header and a row of items in one block of memory, behind one pointer.
//!
//! ```text
//! HeaderSlice ---> | header | count | item | item | item | ...
//! ```
//!
//! What a key holds waits for memory more than for anything else, and a block
//! is waited for once. A `Box` of a structure with a `Vec` in it is two blocks,
//! the second to be found only when the first has come, and two words more. The
//! pointer of a `Box` of an unsized structure is as thick as a slice's, which
//! fits no limiter of 16 bytes.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::marker::PhantomData;
use std::mem::offset_of;
use std::ptr::{self, NonNull};
use std::slice;

/// As many items as it was made with, each a plain value. `N` is the type of
/// their number.
pub struct HeaderSlice<H, T: Copy, N: Count = u32> {
    block: NonNull<Block<H, T, N>>,
    owned: PhantomData<Block<H, T, N>>,
}

/// A number of items.
///
/// # Safety
/// It takes memory, and its copies are the same number as `u32` whenever it is
/// asked for: as many items are written, read and freed as there was room made
/// for.
pub unsafe trait Count: Copy + Into<u32> {}

// SAFETY: plain integers.
unsafe impl Count for u8 {}
// SAFETY: likewise.
unsafe impl Count for u16 {}
// SAFETY: likewise.
unsafe impl Count for u32 {}

/// How a block begins; it goes on with the items.
#[repr(C)]
struct Block<H, T, N> {
    header: H,
    count: N,
    items: [T; 0],
}

// SAFETY: it owns its block, as a box does.
unsafe impl<H: Send, T: Copy + Send, N: Count + Send> Send for HeaderSlice<H, T, N> {}
// SAFETY: likewise; what is shared is only read.
unsafe impl<H: Sync, T: Copy + Sync, N: Count + Sync> Sync for HeaderSlice<H, T, N> {}

impl<H, T: Copy, N: Count> HeaderSlice<H, T, N> {
    /// Bytes of a block without items.
    pub const OVERHEAD: usize = offset_of!(Block<H, T, N>, items);

    /// A block of so many items, all alike.
    pub fn new(header: H, item: T, count: N) -> Self {
        Self::try_new(header, item, count)
            .unwrap_or_else(|| handle_alloc_error(Self::layout(count)))
    }

    /// A block of so many items, all alike; `None` if there is not that much
    /// memory.
    pub fn try_new(header: H, item: T, count: N) -> Option<Self> {
        let layout = Self::layout(count);
        // SAFETY: the layout's size is not 0, as it has the count at least.
        let block = NonNull::new(unsafe { alloc(layout) }.cast::<Block<H, T, N>>())?;
        // SAFETY: the block is of this layout, and nobody else's; the items lie
        // within it, behind each other.
        unsafe {
            let start = block.as_ptr();
            ptr::write(&raw mut (*start).header, header);
            ptr::write(&raw mut (*start).count, count);
            let items = (&raw mut (*start).items).cast::<T>();
            for index in 0..count.into() as usize {
                ptr::write(items.add(index), item);
            }
        }
        Some(Self { block, owned: PhantomData })
    }

    #[inline]
    pub fn header(&self) -> &H {
        // SAFETY: the block is alive, and borrowed as this is.
        unsafe { &(*self.block.as_ptr()).header }
    }

    #[inline]
    pub fn header_mut(&mut self) -> &mut H {
        // SAFETY: likewise, and by nobody else.
        unsafe { &mut (*self.block.as_ptr()).header }
    }

    #[inline]
    pub fn count(&self) -> N {
        // SAFETY: the block is alive.
        unsafe { (*self.block.as_ptr()).count }
    }

    #[inline]
    fn len(&self) -> usize {
        self.count().into() as usize
    }

    #[inline]
    pub fn items(&self) -> &[T] {
        // SAFETY: the block has so many items, all of them written, and is
        // borrowed as this is.
        unsafe { slice::from_raw_parts(self.items_start(), self.len()) }
    }

    #[inline]
    pub fn items_mut(&mut self) -> &mut [T] {
        // SAFETY: likewise, and by nobody else.
        unsafe { slice::from_raw_parts_mut(self.items_start(), self.len()) }
    }

    fn items_start(&self) -> *mut T {
        // SAFETY: the block is alive, and no reference to the rest of it made.
        unsafe { (&raw mut (*self.block.as_ptr()).items).cast() }
    }

    /// Where the block starts.
    #[inline]
    pub fn start(&self) -> *const u8 {
        self.block.as_ptr().cast_const().cast()
    }

    /// The block, no longer owned.
    pub fn into_raw(self) -> *mut u8 {
        let start = self.block.as_ptr().cast();
        std::mem::forget(self);
        start
    }

    /// # Safety
    /// The block is one that [`Self::into_raw`] gave, of the same types, or the
    /// copy of one that took its place, and is owned by nobody else.
    pub unsafe fn from_raw(start: *mut u8) -> Self {
        // SAFETY: a block is nowhere near null.
        let block = unsafe { NonNull::new_unchecked(start.cast()) };
        Self { block, owned: PhantomData }
    }

    fn layout(count: N) -> Layout {
        let items = size_of::<T>().saturating_mul(count.into() as usize);
        let size = Self::OVERHEAD.saturating_add(items);
        let Ok(layout) = Layout::from_size_align(size, align_of::<Block<H, T, N>>()) else {
            handle_alloc_error(Layout::new::<Block<H, T, N>>())
        };
        layout
    }
}

impl<H, T: Copy, N: Count> Drop for HeaderSlice<H, T, N> {
    fn drop(&mut self) {
        let layout = Self::layout(self.count());
        // SAFETY: the block is ours and of this layout, and looked at no more;
        // its items need no end.
        unsafe {
            ptr::drop_in_place(&raw mut (*self.block.as_ptr()).header);
            dealloc(self.block.as_ptr().cast(), layout);
        }
    }
}

impl<H: Clone, T: Copy + Default, N: Count> Clone for HeaderSlice<H, T, N> {
    fn clone(&self) -> Self {
        let mut twin = Self::new(self.header().clone(), T::default(), self.count());
        twin.items_mut().copy_from_slice(self.items());
        twin
    }
}

impl<H: PartialEq, T: Copy + PartialEq, N: Count> PartialEq for HeaderSlice<H, T, N> {
    fn eq(&self, other: &Self) -> bool {
        self.header() == other.header() && self.items() == other.items()
    }
}

impl<H: Eq, T: Copy + Eq, N: Count> Eq for HeaderSlice<H, T, N> {}

impl<H: fmt::Debug, T: Copy + fmt::Debug, N: Count> fmt::Debug for HeaderSlice<H, T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (header, items) = (self.header(), self.items());
        f.debug_struct("HeaderSlice").field("header", header).field("items", &items).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn header_and_items_are_what_was_written() {
        for count in [0_u32, 1, 2, 63, 100_000] {
            let mut row = HeaderSlice::new(String::from("header"), 7_u32, count);
            assert_eq!(row.count(), count);
            assert_eq!(row.items().len(), count as usize);
            assert!(row.items().iter().all(|&item| item == 7));
            row.header_mut().push_str(" and more");
            for (item, number) in row.items_mut().iter_mut().zip(0..) {
                *item = number;
            }
            assert_eq!(row.header(), "header and more");
            assert!(row.items().iter().copied().eq(0..count));
        }
    }

    #[test]
    fn items_wider_than_the_count_are_aligned() {
        let mut row = HeaderSlice::new(1_u8, 0_u128, 3_u16);
        assert_eq!(row.items().as_ptr().addr() % align_of::<u128>(), 0);
        row.items_mut().fill(u128::MAX);
        assert_eq!((*row.header(), row.count()), (1, 3));
    }

    #[test]
    fn one_word_and_one_block() {
        assert_eq!(size_of::<HeaderSlice<[u64; 9], u32>>(), size_of::<usize>());
        assert_eq!(size_of::<Option<HeaderSlice<u8, u8>>>(), size_of::<usize>());
        assert_eq!(HeaderSlice::<[u64; 4], u32>::OVERHEAD, 36);
        assert_eq!(HeaderSlice::<[u64; 3], u64>::OVERHEAD, 32);
        assert_eq!(HeaderSlice::<[u8; 18], [u8; 6], u16>::OVERHEAD, 20);
    }

    #[test]
    fn a_clone_shares_nothing() {
        let row = HeaderSlice::new(vec![1, 2, 3], 5_u32, 4_u8);
        let mut twin = row.clone();
        twin.items_mut().fill(6);
        twin.header_mut().clear();
        assert_eq!((row.header().len(), row.items()), (3, &[5; 4][..]));
        drop(row);
        assert_eq!(twin.items(), &[6; 4]);
    }

    #[test]
    fn the_header_is_dropped_once() {
        let counted = Rc::new(());
        let row = HeaderSlice::new(Rc::clone(&counted), 0_u32, 9_u32);
        let twin = row.clone();
        assert_eq!(Rc::strong_count(&counted), 3);
        // SAFETY: the block just given up.
        drop(unsafe { HeaderSlice::<Rc<()>, u32>::from_raw(row.into_raw()) });
        assert_eq!(Rc::strong_count(&counted), 2);
        drop(twin);
        assert_eq!(Rc::strong_count(&counted), 1);
    }
}
