//! The server's clock.

use std::mem::MaybeUninit;

use redis_module::raw;

/// Microseconds since 1970, by the wall clock; 0 before that.
///
/// The time of the running command where the server has it (7.2 and later): a
/// script or a transaction has one time, which is also the time by which the
/// server expires keys. Before that, the kernel's clock.
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

/// The kernel's clock, not `RedisModule_Microseconds`: an equal reading without
/// a detour.
fn kernel_us() -> u64 {
    let mut now = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the call writes a timespec to the address given.
    let now = unsafe {
        if libc::clock_gettime(libc::CLOCK_REALTIME, now.as_mut_ptr()) != 0 {
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
    fn the_clock_is_this_centurys() {
        assert!(now_us() > 1_700_000_000_000_000);
    }
}
