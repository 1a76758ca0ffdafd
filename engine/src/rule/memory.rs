//! How many bytes of memory a key's value takes, for the text that explains a rule.
//! Tests compare these numbers with the layout.

/// A key with one state of a fixed size.
pub const KEY: u64 = 48;
/// A key with a log, without the log's entries.
pub const LOG_KEY: u64 = 52;
/// A key with a sliding window counter, without its counters.
pub const WINDOW_KEY: u64 = 36;
/// A counter of a sliding window counter.
pub const WINDOW_COUNTER: u64 = 6;
/// A hold on one state, including its entries in the two indexes (by id, by end).
pub const HOLD: u64 = 60;
/// A past window under `keep=`.
pub const PAST_WINDOW: u64 = 16;

/// The size of one entry in a log that spans `span_us`, which is at most the longest period.
pub const fn log_entry(span_us: u64) -> u64 {
    match span_us >> 32 {
        0 => 4,
        1..=0xFF => 5,
        _ => 6,
    }
}
