//! The memory that a rule takes, as `RL.EXPLAIN` tells it. A test of the limiter checks
//! that it is so.

/// Bytes of a request in a sliding log with a window of this length.
pub(crate) const fn log_entry_bytes(window_us: u64) -> u64 {
    match window_us >> 32 {
        0 => 4,
        1..=0xFF => 5,
        0x100..=0xFFFF => 6,
        _ => 8,
    }
}
