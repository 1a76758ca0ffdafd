//! What a key takes, for those who choose a rule. Tests of the limiter hold the
//! numbers to what it does.

/// Bytes that a sliding log keeps of a request whose window is this long.
pub(crate) const fn log_entry_bytes(window_us: u64) -> u64 {
    match window_us >> 32 {
        0 => 4,
        1..=0xFF => 5,
        0x100..=0xFFFF => 6,
        _ => 8,
    }
}
