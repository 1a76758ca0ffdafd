//! The server's clock.

use std::mem::MaybeUninit;

use redis_module::raw;

/// Unix microseconds of the wall clock; 0 before 1970.
///
/// From 7.2 on it is the time of the running command: a script or a transaction has one time, by
/// which the server also expires keys. Older servers lack that call, so this reads the kernel's
/// clock.
#[must_use]
#[inline]
pub fn now_us() -> u64 {
    // SAFETY: the pointer is written once, when the module is loaded.
    match unsafe { raw::RedisModule_CachedMicroseconds } {
        // SAFETY: the call takes nothing and returns a number.
        Some(of_command) => u64::try_from(unsafe { of_command() }).unwrap_or(0),
        None => kernel_us(),
    }
}

/// Microseconds of a clock that never steps back and cannot be set.
#[must_use]
pub fn steady_us() -> u64 {
    read_us(libc::CLOCK_MONOTONIC)
}

/// Reads the kernel's clock, as `RedisModule_Microseconds` does, without calling the server.
fn kernel_us() -> u64 {
    read_us(libc::CLOCK_REALTIME)
}

fn read_us(clock: libc::clockid_t) -> u64 {
    let mut now = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the call writes a timespec to the address given.
    let now = unsafe {
        if libc::clock_gettime(clock, now.as_mut_ptr()) != 0 {
            return 0;
        }
        now.assume_init()
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
