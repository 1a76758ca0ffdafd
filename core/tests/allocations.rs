//! A check and a peek allocate nothing. The allocator of a program counts, so this test has a program to itself.

use ratelimit_core::{Cost, Limiter, Rules};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

struct Counting;

thread_local! {
    static COUNT: Cell<u32> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller keeps to the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps to the same contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(call: impl FnOnce() -> bool) -> (u32, bool) {
    COUNT.set(0);
    let is_allowed = call();
    (COUNT.get(), is_allowed)
}

#[test]
fn checks_and_peeks_allocate_nothing() {
    let many: Vec<_> = (0..32).map(|n| format!("bucket:9/m,name=n{n}")).collect();
    for text in [
        "window:9/m",
        "window:9/m,res=6",
        "fixed:9/m",
        "fixed:9/month,tz=+02:00",
        "bucket:9/m",
        "bucket:9/m,refill=interval",
        "leaky:9/m",
        "bucket:9/m,name=a,count=all",
        "bucket:9/m,shadow fixed:9/m",
        "window:9/s bucket:9/m",
        "fixed:9/s window:90/m bucket:9/m leaky:9/m,name=long-name-of-a-rule bucket:9/h,name=e",
        &many.join(" "),
    ] {
        let rules: Rules = text.parse().unwrap();
        let (mut limiter, now) = (Limiter::new(), Duration::from_secs(1_800_000_000));
        assert!(limiter.check(&rules, now).is_allowed());
        let mut outcomes = (0, 0);
        for ms in (0..600).map(|n| n * 50) {
            let now = now + Duration::from_millis(ms);
            let peek = allocations(|| limiter.peek(&rules, Cost::ONE, now).is_allowed());
            let check = allocations(|| limiter.check(&rules, now).is_allowed());
            assert_eq!((peek.0, check.0), (0, 0), "{text} after {ms} ms");
            assert_eq!(peek.1, check.1, "{text} after {ms} ms");
            outcomes = (outcomes.0 + u32::from(check.1), outcomes.1 + u32::from(!check.1));
        }
        assert!(outcomes.0 > 0 && outcomes.1 > 0, "{text}: {outcomes:?}");
    }
}

/// A log grows with what it remembers, and only then.
#[test]
fn a_full_log_allocates_nothing() {
    let rules: Rules = "9/s 90/m".parse().unwrap();
    let (mut limiter, mut now) = (Limiter::new(), Duration::from_secs(1_800_000_000));
    let mut counted = 0;
    for round in 0..2_000 {
        now += Duration::from_millis(53);
        let (count, _) = allocations(|| limiter.check(&rules, now).is_allowed());
        counted += if round < 1_000 { 0 } else { count };
        assert_eq!(allocations(|| limiter.peek(&rules, Cost::ONE, now).is_allowed()).0, 0);
    }
    assert_eq!(counted, 0);
}
