//! The server's clock.

use std::mem::MaybeUninit;

/// Microseconds since 1970, by the wall clock; 0 before that.
///
/// The kernel's clock, not `RedisModule_Microseconds`: the same reading, but
/// without a detour through a pointer, and the same on all versions.
#[must_use]
pub fn now_us() -> u64 {
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
