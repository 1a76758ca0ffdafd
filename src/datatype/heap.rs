//! Visits the heap allocations of a value, to count, measure or move them.

use crate::metrics;
use ratelimit_engine::header_slice::{Count, HeaderSlice};
use ratelimit_engine::heap::HeapVisitor;
use ratelimit_engine::key::Limiter;
use std::ffi::c_void;
use std::mem::{self, ManuallyDrop};
use std::ptr;

/// The largest alignment for which `server::alloc` passes on the server's allocations unchanged.
const MAX_ALIGN: usize = 8;

const _: () = assert!(align_of::<Limiter>() <= MAX_ALIGN);

/// Calls a function with the start of each allocation of a value that the server owns, and updates
/// the server's pointer.
///
/// # Safety
/// The value is null or came from [`into_raw`], and nothing else uses it until this returns. The
/// function keeps the promises of [`each_allocation`].
pub(super) unsafe fn visit(value: &mut *mut c_void, function: impl FnMut(*mut u8) -> *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        // The value stays the server's: it must not be dropped here, not even by a panic.
        let Some(mut limiter) = from_raw(*value).map(ManuallyDrop::new) else { return };
        each_allocation(&mut limiter, function);
        *value = into_raw(ManuallyDrop::into_inner(limiter));
    }
}

/// Calls a function with the start of each allocation. The function returns the allocation's new
/// start.
struct EachAllocation<F> {
    visit: F,
}

/// Visits the value's own allocation, then those it owns.
///
/// # Safety
/// The function returns the start of the same allocation, or of one of the same size and
/// content that replaces it. It does not unwind.
unsafe fn each_allocation(value: &mut Box<Limiter>, visit: impl FnMut(*mut u8) -> *mut u8) {
    let mut each = EachAllocation { visit };
    each.boxed(value);
    value.visit_heap(&mut each);
}

impl<F: FnMut(*mut u8) -> *mut u8> HeapVisitor for EachAllocation<F> {
    fn boxed<T>(&mut self, owner: &mut Box<T>) {
        const { assert!(size_of::<T>() > 0 && align_of::<T>() <= MAX_ALIGN) };
        // SAFETY: nothing uses the owner between reading it out and writing it back;
        // `visit` returns an allocation that replaces the old one.
        unsafe {
            let start = Box::into_raw(ptr::read(owner));
            ptr::write(owner, Box::from_raw((self.visit)(start.cast()).cast()));
        }
    }

    fn header_slice<H, T: Copy, N: Count>(&mut self, owner: &mut HeaderSlice<H, T, N>) {
        const { assert!(align_of::<H>() <= MAX_ALIGN && align_of::<T>() <= MAX_ALIGN) };
        // SAFETY: nothing uses the owner between reading it out and writing it back;
        // `visit` returns an allocation that replaces the old one.
        unsafe {
            let start = ptr::read(owner).into_raw();
            ptr::write(owner, HeaderSlice::from_raw((self.visit)(start)));
        }
    }

    fn slice<T>(&mut self, owner: &mut Box<[T]>) {
        let mut elements = mem::take(owner).into_vec();
        self.vec(&mut elements);
        // Its capacity equals its length, so this moves nothing.
        *owner = elements.into_boxed_slice();
    }

    fn vec<T>(&mut self, owner: &mut Vec<T>) {
        const { assert!(size_of::<T>() > 0 && align_of::<T>() <= MAX_ALIGN) };
        if owner.capacity() == 0 {
            return;
        }
        let mut parts = ManuallyDrop::new(mem::take(owner));
        let (len, capacity) = (parts.len(), parts.capacity());
        let start = (self.visit)(parts.as_mut_ptr().cast());
        // SAFETY: the parts are those of the vector, and `visit` returns an allocation that
        // replaces the old one.
        *owner = unsafe { Vec::from_raw_parts(start.cast(), len, capacity) };
    }
}

/// The encoding version of values in an RDB file. 1 means one payload.
pub(super) const ENCODING: i32 = 1;

/// No value; the server takes it for a failure.
pub(super) const NULL: *mut c_void = ptr::null_mut();

/// Creates a value that the server owns.
pub(super) fn new_value(limiter: Limiter) -> *mut c_void {
    metrics::value_made();
    into_raw(Box::new(limiter))
}

/// Gives a value to the server.
pub(super) fn into_raw(limiter: Box<Limiter>) -> *mut c_void {
    Box::into_raw(limiter).cast()
}

/// Takes a value back from the server.
///
/// # Safety
/// `value` is null or came from [`into_raw`], and is not used again.
pub(super) unsafe fn from_raw(value: *mut c_void) -> Option<Box<Limiter>> {
    // SAFETY: the caller's promise.
    (!value.is_null()).then(|| unsafe { Box::from_raw(value.cast()) })
}

/// Borrows a value that the server owns.
///
/// # Safety
/// `value` is null or came from [`into_raw`], and nothing changes it for all of 'a.
pub(super) const unsafe fn borrow<'a>(value: *const c_void) -> Option<&'a Limiter> {
    // SAFETY: the caller's promise.
    unsafe { value.cast::<Limiter>().as_ref() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratelimit_engine::check::{Bounds, Decision};
    use ratelimit_engine::key::{Change, Check, CheckOptions, HoldRequest};
    use ratelimit_engine::rule::Rule;
    use std::alloc::{Layout, alloc};
    use std::collections::HashMap;

    /// A value with many allocations of every kind, its own included.
    #[allow(clippy::unnecessary_box_returns, reason = "the server holds values in boxes")]
    fn value() -> Box<Limiter> {
        let mut limiter = Box::<Limiter>::default();
        let texts = "log:500/h,ban=1h log:400/h,count=all,name=all window:900/h,res=7 \
                     fixed:9000/m,keep=9 bucket:900/h,name=named leaky:900/h \
                     bucket:700/h,refill=interval";
        let rules: Vec<Rule> =
            texts.split(' ').map(|text| Rule::from_text(text.as_bytes()).unwrap()).collect();
        let mut decisions: Vec<Decision> = Vec::new();
        for n in 0..900_u64 {
            let now_us = 1_700_000_000_000_000 + n * 9_000_000 + n / 100 * 6_000_000_000;
            let check = Check::new(&rules, 1 + (n % 3) as u32, now_us);
            limiter.record(&check, if n % 5 == 0 { Change::Charged } else { Change::Admitted });
            if n % 9 == 0 {
                let id = [b'h'; 64];
                let id = &id[..=(n as usize % 64)];
                let hold = HoldRequest { id, end_us: 1_731_000_000_000_000, refund: n % 2 == 0 };
                let options = CheckOptions { hold: Some(hold), ..CheckOptions::default() };
                limiter.record(&check.with(&options), Change::Admitted);
            }
        }
        let check = Check::new(&rules, 1_000, 1_730_000_000_000_000);
        let outcome = limiter.check_within(Bounds::ANY, &check, &mut decisions).unwrap();
        assert!(outcome.ban.is_some());
        assert!(limiter.live_holds(check.now_us) > 50);
        limiter
    }

    #[test]
    fn every_allocation_is_visited_once() {
        let mut limiter = value();
        let twin = limiter.clone();
        let mut visits = HashMap::new();
        // SAFETY: the allocations stay where they are.
        unsafe {
            each_allocation(&mut limiter, |start| {
                *visits.entry(start).or_insert(0) += 1;
                start
            });
        }
        assert!(visits.len() > 15, "{} allocations", visits.len());
        assert!(visits.values().all(|&times| times == 1), "an allocation was visited twice");
        assert!(*limiter == *twin);
    }

    #[test]
    fn a_value_is_unchanged_after_its_allocations_moved() {
        let mut limiter = value();
        let twin = limiter.clone();
        let moved = |old: *mut u8| {
            // SAFETY: outside a server, allocations come from the system, and malloc knows their
            // size.
            unsafe {
                let size = libc::malloc_usable_size(old.cast());
                let new = alloc(Layout::from_size_align(size, 1).unwrap());
                ptr::copy_nonoverlapping(old, new, size);
                old.write_bytes(0xA5, size);
                libc::free(old.cast());
                new
            }
        };
        // SAFETY: an allocation of the same content, and the old one is gone.
        unsafe { each_allocation(&mut limiter, moved) };
        assert!(*limiter == *twin);
        drop(limiter);
    }
}
