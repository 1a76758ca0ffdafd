//! The code that measures and moves memory reaches each allocation of a value. A dropped value frees as
//! many allocations as [`Limiter::visit_heap`] has visited.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;

use ratelimit_engine::header_slice::{Count, HeaderSlice};
use ratelimit_engine::heap::HeapVisitor;
use ratelimit_engine::key::decode;

thread_local! {
    static FREED: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
    static MOST_BYTES: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which counts what each thread frees, and the bytes that it has.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.set(BYTES.get().wrapping_add(layout.size()));
        MOST_BYTES.set(MOST_BYTES.get().max(BYTES.get()));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        FREED.set(FREED.get() + 1);
        BYTES.set(BYTES.get().wrapping_sub(layout.size()));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(start, layout) }
    }
}

/// The number of allocations visited.
#[derive(Default)]
struct Visited(usize);

impl HeapVisitor for Visited {
    fn boxed<T>(&mut self, _: &mut Box<T>) {
        self.0 += 1;
    }

    fn header_slice<H, T: Copy, N: Count>(&mut self, _: &mut HeaderSlice<H, T, N>) {
        self.0 += 1;
    }

    fn slice<T>(&mut self, owner: &mut Box<[T]>) {
        self.0 += usize::from(!owner.is_empty());
    }

    fn vec<T>(&mut self, owner: &mut Vec<T>) {
        self.0 += usize::from(owner.capacity() > 0);
    }
}

/// The payload of a paragraph: `tests/integration/durability/golden.rs` describes the lines.
fn payload(paragraph: &str) -> Vec<u8> {
    let lines = paragraph.lines().filter_map(|line| line.strip_prefix("payload "));
    let digits: String = lines.collect();
    let pairs = digits.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).expect("digits"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("a byte")).collect()
}

fn golden() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/golden/v1.txt");
    fs::read_to_string(path).expect("the golden payloads")
}

/// A number in place of a byte claims that more data follows than there is.
#[test]
fn a_forged_number_allocates_nothing() {
    let numbers: [&[u8]; 5] =
        [&[251, 255, 255], &[252, 0, 0, 16, 0], &[252, 255, 255, 255, 127], &[253; 9], &[255; 9]];
    let (mut refused, text) = (0, golden());
    for paragraph in text.split("\n\nname ").skip(1) {
        let payload = payload(paragraph);
        // As much as a value may take for its payload, twice because a value may grow while it is read.
        let most = 2 * (200 * payload.len() + 1_000);
        for (at, number) in (1..payload.len()).flat_map(|at| numbers.map(|number| (at, number))) {
            let forged = [&payload[..at], number, &payload[at + 1..]].concat();
            let before = BYTES.get();
            MOST_BYTES.set(before);
            refused += u32::from(decode(&forged).is_err());
            let bytes = MOST_BYTES.get() - before;
            assert!(bytes <= most, "{bytes} bytes for {forged:?}");
        }
    }
    assert!(refused > 10_000, "{refused}");
}

#[test]
fn each_allocation_of_a_value_is_visited_once() {
    let (mut most, text) = (0, golden());
    for paragraph in text.split("\n\nname ").skip(1) {
        let name = paragraph.lines().next();
        let mut limiter = decode(&payload(paragraph)).expect("a limiter");
        let mut visited = Visited::default();
        limiter.visit_heap(&mut visited);
        FREED.set(0);
        drop(limiter);
        assert_eq!(visited.0, FREED.get(), "{name:?}");
        most = most.max(visited.0);
    }
    assert!(most > 20, "no value has more than {most} allocations");
}
