//! Decides three requests without the standard library, and exits with the number of wrong answers.

#![no_std]
#![no_main]

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use ratelimit_core::{Answer, Limiter, Rules};

const ROOM: usize = 64 * 1024;

/// Hands out its memory once, front to back.
struct Bump {
    memory: UnsafeCell<[u8; ROOM]>,
    used: AtomicUsize,
}

// SAFETY: no two allocations get the same part of the memory.
unsafe impl Sync for Bump {}

// SAFETY: an allocation lies within the memory, is aligned, and overlaps no other.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let room = layout.size() + layout.align();
        let used = self.used.fetch_add(room, Ordering::Relaxed);
        if used + room > ROOM {
            return ptr::null_mut();
        }
        // SAFETY: `room` bytes from `used` on lie within the memory.
        let start = unsafe { self.memory.get().cast::<u8>().add(used) };
        start.wrapping_add(start.align_offset(layout.align()))
    }

    unsafe fn dealloc(&self, _memory: *mut u8, _layout: Layout) {}
}

#[global_allocator]
static MEMORY: Bump = Bump { memory: UnsafeCell::new([0; ROOM]), used: AtomicUsize::new(0) };

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

// Linux targets ship an `alloc` that was compiled to unwind. It refers to these symbols.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() {}

#[link(name = "c")]
unsafe extern "C" {}

#[unsafe(no_mangle)]
extern "C" fn main() -> i32 {
    let Ok(rules) = "2/s bucket:100/h".parse::<Rules>() else { return 100 };
    let mut limiter = Limiter::new();
    let now = Duration::from_secs(1_800_000_000);
    let answers = [(); 3].map(|()| limiter.check(&rules, now));
    let wrong_denials = answers[..2].iter().filter(|answer| !answer.is_allowed()).count();
    let is_right = matches!(answers[2], Answer::Denied { wait: Some(wait), .. } if wait == Duration::from_secs(1));
    wrong_denials as i32 + i32::from(!is_right)
}
