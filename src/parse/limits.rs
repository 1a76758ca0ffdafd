//! What the settings let a request ask for.

/// The settings that requests are judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rules of one key in a request.
    pub max_rules: usize,
    /// Entries in a key's log, so the largest limit of a `log` rule.
    pub max_log_entries: u32,
    /// Whether a request may give the time.
    pub allow_at: bool,
    /// Bytes kept of a `META`, and the most that a `REASON` can have.
    pub max_meta: usize,
    /// Entries that a key's history keeps; 0: a `META` is ignored.
    pub log_entries: u32,
}

impl Limits {
    /// Everything that the parsers can read.
    #[cfg(test)]
    pub const ANY: Self = Self {
        max_rules: usize::MAX,
        max_log_entries: crate::rule::MAX_UNITS,
        allow_at: true,
        max_meta: usize::MAX,
        log_entries: 128,
    };
}
