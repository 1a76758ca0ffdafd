//! What the settings allow in a request.

/// The longest name of a flow, in bytes.
pub const MAX_FLOW: usize = 64;

/// The settings that bound requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many rules a request may have for each key.
    pub max_rules: usize,
    /// How many entries a key's log may have, and so how large the limit of a `log` rule may be.
    pub max_log_entries: u64,
    /// Whether two rules of one key may have the same identity; false for a check.
    pub same_identity: bool,
    /// Whether a request may give the time.
    pub allow_at: bool,
    /// How many bytes of a `META` are kept, and how many a `REASON` may have.
    pub max_meta: usize,
    /// How many entries a key's history keeps; 0: a `META` is ignored.
    pub log_entries: u64,
    /// Whether checks only observe: all rules are shadows, and blocks and pauses are ignored.
    pub observe: bool,
}

impl Limits {
    /// Allows everything that the parsers can read. It is for texts that a primary has tested against
    /// its own settings, and for texts that were saved under earlier settings.
    pub const ANY: Self = Self {
        max_rules: usize::MAX,
        max_log_entries: ratelimit_engine::rule::MAX_UNITS as u64,
        same_identity: true,
        allow_at: true,
        max_meta: usize::MAX,
        log_entries: 128,
        observe: false,
    };

    /// Allows what the parsers can read and a check accepts.
    pub const ANY_CHECK: Self = Self { same_identity: false, ..Self::ANY };
}
