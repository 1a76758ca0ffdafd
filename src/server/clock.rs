//! The server's clock.

use std::mem::zeroed;
use std::sync::atomic::{AtomicU64, Ordering};

use redis_module::raw;

/// Unix microseconds of the wall clock; 0 before 1970.
///
/// From 7.2 on it is the time of the running command: a script or a transaction has one time, by
/// which the server also expires keys. Older servers lack that call, so this reads the kernel's
/// clock.
#[inline]
pub fn now_us() -> u64 {
    // SAFETY: the pointer is written once, when the module is loaded.
    match unsafe { raw::RedisModule_CachedMicroseconds } {
        // SAFETY: the call takes nothing and returns a number.
        Some(of_command) => u64::try_from(unsafe { of_command() }).unwrap_or(0),
        None => read_us(libc::CLOCK_REALTIME),
    }
}

/// Microseconds of a clock that never steps back and cannot be set.
pub fn steady_us() -> u64 {
    read_us(libc::CLOCK_MONOTONIC)
}

/// What [`steady_us`] will return in `ms` milliseconds.
pub fn steady_us_after(ms: u64) -> u64 {
    steady_us().saturating_add(ms.saturating_mul(1_000))
}

/// Whether the wall clock was set by more than 50 ms since the last call. Slewing moves it less.
pub fn was_set() -> bool {
    const LEAST_US: u64 = 50_000;
    /// By how much the wall clock was ahead of the steady one; 0 before the first call.
    static AHEAD_US: AtomicU64 = AtomicU64::new(0);
    let ahead_us = read_us(libc::CLOCK_REALTIME).wrapping_sub(steady_us());
    let before_us = AHEAD_US.swap(ahead_us, Ordering::Relaxed);
    let moved_us = ahead_us.wrapping_sub(before_us).cast_signed().unsigned_abs();
    before_us != 0 && moved_us > LEAST_US
}

/// Reads a clock of the kernel, as `RedisModule_Microseconds` does, without calling the server.
fn read_us(clock: libc::clockid_t) -> u64 {
    // SAFETY: a timespec is two numbers, which the call writes; if it fails, they stay 0.
    let now = unsafe {
        let mut now = zeroed::<libc::timespec>();
        libc::clock_gettime(clock, &raw mut now);
        now
    };
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000).saturating_add(nanos / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_shows_unix_microseconds() {
        assert!(now_us() > 1_700_000_000_000_000);
    }
}
