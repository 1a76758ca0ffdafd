//! A header and a slice of items in one allocation, behind a thin pointer.
//!
//! ```text
//! HeaderSlice ---> | header | count | item | item | item | ...
//! ```
//!
//! A check spends most of its time waiting for memory, once per allocation. A `Box` of a struct
//! with a `Vec` costs two allocations and two more words. The second allocation can be fetched only
//! once the first has arrived. A `Box` of an unsized struct is one allocation, but its pointer takes
//! two words, which do not fit into a 16-byte limiter.

use alloc::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use core::marker::PhantomData;
use core::mem::offset_of;
use core::ptr::NonNull;
use core::{fmt, ptr, slice};

/// A header and a fixed number of plain items. `N` is the type of the count.
pub struct HeaderSlice<H, T: Copy, N: Count = u32> {
    memory: NonNull<Memory<H, T, N>>,
    owned: PhantomData<Memory<H, T, N>>,
}

/// The type of a header slice's count.
///
/// # Safety
/// The type is not zero-sized, and every conversion of a value to `u32` gives the same number. The
/// slice allocates, reads and frees this number of items.
pub unsafe trait Count: Copy + Into<u32> {}

// SAFETY: plain integers.
unsafe impl Count for u8 {}
// SAFETY: plain integers.
unsafe impl Count for u16 {}
// SAFETY: plain integers.
unsafe impl Count for u32 {}

/// The beginning of an allocation. The items follow.
#[repr(C)]
struct Memory<H, T, N> {
    header: H,
    count: N,
    items: [T; 0],
}

// SAFETY: it owns its allocation, like a box.
unsafe impl<H: Send, T: Copy + Send, N: Count + Send> Send for HeaderSlice<H, T, N> {}
// SAFETY: it owns its allocation, like a box; shared references only read.
unsafe impl<H: Sync, T: Copy + Sync, N: Count + Sync> Sync for HeaderSlice<H, T, N> {}

impl<H, T: Copy, N: Count> HeaderSlice<H, T, N> {
    /// Bytes of an allocation without items.
    pub const OVERHEAD: usize = offset_of!(Memory<H, T, N>, items);

    /// Allocates `count` copies of an item.
    pub fn new(header: H, item: T, count: N) -> Self {
        Self::try_new(header, item, count)
            .unwrap_or_else(|| handle_alloc_error(Self::layout(count)))
    }

    /// Allocates `count` copies of an item; `None` if there is not enough
    /// memory.
    pub fn try_new(header: H, item: T, count: N) -> Option<Self> {
        let layout = Self::layout(count);
        // SAFETY: the layout's size is not 0, because it includes the count.
        let memory = NonNull::new(unsafe { alloc(layout) }.cast::<Memory<H, T, N>>())?;
        // SAFETY: the allocation has this layout and no other owner; the items lie in it, one
        // after the other.
        unsafe {
            let start = memory.as_ptr();
            ptr::write(&raw mut (*start).header, header);
            ptr::write(&raw mut (*start).count, count);
            let items = (&raw mut (*start).items).cast::<T>();
            for index in 0..count.into() as usize {
                ptr::write(items.add(index), item);
            }
        }
        Some(Self { memory, owned: PhantomData })
    }

    /// The value stored before the items.
    #[inline]
    pub fn header(&self) -> &H {
        // SAFETY: the allocation is alive, and borrowed as long as `self`.
        unsafe { &(*self.memory.as_ptr()).header }
    }

    /// The header, to be changed in place.
    #[inline]
    pub fn header_mut(&mut self) -> &mut H {
        // SAFETY: the allocation is alive, and `self` is its only borrow.
        unsafe { &mut (*self.memory.as_ptr()).header }
    }

    /// The number of items.
    #[inline]
    pub fn count(&self) -> N {
        // SAFETY: the allocation is alive.
        unsafe { (*self.memory.as_ptr()).count }
    }

    /// All items, in order.
    #[inline]
    pub fn items(&self) -> &[T] {
        // SAFETY: the allocation has that many items, all of them written, and is borrowed as
        // long as `self`.
        unsafe { slice::from_raw_parts(self.items_start(), self.count().into() as usize) }
    }

    /// All items, to be changed in place.
    #[inline]
    pub fn items_mut(&mut self) -> &mut [T] {
        // SAFETY: the allocation has that many items, all of them written, and `self` is its
        // only borrow.
        unsafe { slice::from_raw_parts_mut(self.items_start(), self.count().into() as usize) }
    }

    fn items_start(&self) -> *mut T {
        // SAFETY: the allocation is alive; no reference to it is made.
        unsafe { (&raw mut (*self.memory.as_ptr()).items).cast() }
    }

    /// The start of the allocation.
    #[inline]
    pub fn start(&self) -> *const u8 {
        self.memory.as_ptr().cast_const().cast()
    }

    /// Gives up the allocation without freeing it.
    pub fn into_raw(self) -> *mut u8 {
        let start = self.memory.as_ptr().cast();
        core::mem::forget(self);
        start
    }

    /// # Safety
    /// The allocation came from [`Self::into_raw`] of the same types, or is a copy that
    /// replaces such an allocation, and has no other owner.
    pub unsafe fn from_raw(start: *mut u8) -> Self {
        // SAFETY: an allocation is not null.
        let memory = unsafe { NonNull::new_unchecked(start.cast()) };
        Self { memory, owned: PhantomData }
    }

    fn layout(count: N) -> Layout {
        let items = size_of::<T>().saturating_mul(count.into() as usize);
        let size = Self::OVERHEAD.saturating_add(items);
        let Ok(layout) = Layout::from_size_align(size, align_of::<Memory<H, T, N>>()) else {
            handle_alloc_error(Layout::new::<Memory<H, T, N>>())
        };
        layout
    }
}

impl<H, T: Copy, N: Count> Drop for HeaderSlice<H, T, N> {
    fn drop(&mut self) {
        let layout = Self::layout(self.count());
        // SAFETY: the allocation has this layout and is not used again; its items need no
        // drop.
        unsafe {
            ptr::drop_in_place(&raw mut (*self.memory.as_ptr()).header);
            dealloc(self.memory.as_ptr().cast(), layout);
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

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use alloc::rc::Rc;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn header_and_items_read_as_written() {
        for count in [0_u32, 1, 2, 63, 100_000] {
            let mut slice = HeaderSlice::new(String::from("header"), 7_u32, count);
            assert_eq!(slice.count(), count);
            assert_eq!(slice.items().len(), count as usize);
            assert!(slice.items().iter().all(|&item| item == 7));
            slice.header_mut().push_str(" and more");
            for (item, number) in slice.items_mut().iter_mut().zip(0..) {
                *item = number;
            }
            assert_eq!(slice.header(), "header and more");
            assert!(slice.items().iter().copied().eq(0..count));
        }
    }

    #[test]
    fn items_wider_than_the_count_are_aligned() {
        let mut slice = HeaderSlice::new(1_u8, 0_u128, 3_u16);
        assert_eq!(slice.items().as_ptr().addr() % align_of::<u128>(), 0);
        slice.items_mut().fill(u128::MAX);
        assert_eq!((*slice.header(), slice.count()), (1, 3));
    }

    #[test]
    fn a_header_slice_is_one_word() {
        assert_eq!(size_of::<HeaderSlice<[u64; 9], u32>>(), size_of::<usize>());
        assert_eq!(size_of::<Option<HeaderSlice<u8, u8>>>(), size_of::<usize>());
        assert_eq!(HeaderSlice::<[u64; 4], u32>::OVERHEAD, 36);
        assert_eq!(HeaderSlice::<[u64; 3], u64>::OVERHEAD, 32);
        assert_eq!(HeaderSlice::<[u8; 18], [u8; 6], u16>::OVERHEAD, 20);
    }

    #[test]
    fn a_clone_shares_nothing() {
        let slice = HeaderSlice::new(vec![1, 2, 3], 5_u32, 4_u8);
        let mut twin = slice.clone();
        twin.items_mut().fill(6);
        twin.header_mut().clear();
        assert_eq!((slice.header().len(), slice.items()), (3, &[5; 4][..]));
        drop(slice);
        assert_eq!(twin.items(), &[6; 4]);
    }

    #[test]
    fn the_header_is_dropped_exactly_once() {
        let counted = Rc::new(());
        let slice = HeaderSlice::new(Rc::clone(&counted), 0_u32, 9_u32);
        let twin = slice.clone();
        assert_eq!(Rc::strong_count(&counted), 3);
        // SAFETY: the allocation just given up.
        drop(unsafe { HeaderSlice::<Rc<()>, u32>::from_raw(slice.into_raw()) });
        assert_eq!(Rc::strong_count(&counted), 2);
        drop(twin);
        assert_eq!(Rc::strong_count(&counted), 1);
    }

    /// An operation on both a header slice and its model.
    #[derive(Clone, Debug)]
    enum Step {
        Set(usize, u64),
        PushToHeader(char),
        /// The slice is replaced by its clone.
        Clone,
        /// The allocation is given up and taken back.
        Raw,
        /// The slice is replaced by a new one of another length.
        Resize(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (any::<usize>(), any::<u64>()).prop_map(|(index, item)| Step::Set(index, item)),
            any::<char>().prop_map(Step::PushToHeader),
            Just(Step::Clone),
            Just(Step::Raw),
            any::<u8>().prop_map(Step::Resize),
        ];
        vec(step, 0..40)
    }

    proptest! {
        /// Run under AddressSanitizer (`make asan`) in place of Miri.
        #[test]
        fn a_header_slice_equals_a_string_and_a_vec(count in any::<u8>(), steps in steps()) {
            let mut slice = HeaderSlice::new(String::new(), 0_u64, count);
            let (mut header, mut items) = (String::new(), vec![0_u64; count.into()]);
            for step in steps {
                match step {
                    Step::Set(_, _) if items.is_empty() => {}
                    Step::Set(index, item) => {
                        let index = index % items.len();
                        items[index] = item;
                        slice.items_mut()[index] = item;
                    }
                    Step::PushToHeader(letter) => {
                        header.push(letter);
                        slice.header_mut().push(letter);
                    }
                    Step::Clone => slice = slice.clone(),
                    Step::Raw => {
                        let start = slice.into_raw();
                        // SAFETY: the allocation just given up.
                        slice = unsafe { HeaderSlice::from_raw(start) };
                    }
                    Step::Resize(count) => {
                        items = vec![7; count.into()];
                        slice = HeaderSlice::new(header.clone(), 7, count);
                    }
                }
                prop_assert_eq!((slice.header(), slice.items()), (&header, &items[..]));
                prop_assert_eq!(usize::from(slice.count()), items.len());
            }
        }
    }
}
