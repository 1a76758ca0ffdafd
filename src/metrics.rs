//! Counters since the module was loaded, for `INFO ratelimit`.
//!
//! Commands run one at a time, so a counter has one writer and needs no atomic addition:
//! a load and a store are cheaper. Any thread may read it.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::server::info::Info;
use crate::server::{alloc, log};
use ratelimit_engine::check::Decision;
use ratelimit_engine::key::{Access, Verdict};
use ratelimit_engine::rule::{Kind, Rule};

/// A number that one thread at a time writes.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub fn add(&self, amount: u64) {
        self.set(self.get().wrapping_add(amount));
    }

    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters, each with its field in `INFO`, and the lists of them.
macro_rules! counters {
    ($($list:ident { $($(#[$about:meta])* $name:ident = $field:literal;)+ })+) => {$(
        $($(#[$about])* pub static $name: Counter = Counter::new();)+
        static $list: [(&CStr, &Counter); [$(stringify!($name)),+].len()] =
            [$(($field, &$name)),+];
    )+};
}

counters! {
    FIRST {
        CHECKS = c"checks";
        ALLOWED = c"allowed";
        LIMITED = c"limited";
        BLOCKED = c"blocked";
        EXEMPT = c"exempt";
        BANS = c"bans";
        /// Calls of `RL.PAUSE` that paused a key or prolonged its pause.
        PAUSES = c"pauses";
        /// Plans that checks asked for, and that named an unknown policy.
        PLANS_UNKNOWN = c"plans_unknown";
        SHADOW_LIMITED = c"shadow_limited";
        /// Checks that would have been denied but for `enforce observe`, and all checks while it is `off`.
        UNENFORCED = c"unenforced";
        /// Checks and peeks that named a policy which this server does not have.
        ERRORS_UNKNOWN_POLICY = c"errors_unknown_policy";
        /// Checks and peeks with any other error of the module but a panic.
        ERRORS_OTHER = c"errors_other";
        PEEKS = c"peeks";
        REFUNDS = c"refunds";
        REFUNDED_UNITS = c"refunded_units";
        HOLDS_TAKEN = c"holds_taken";
        HOLDS_SETTLED = c"holds_settled";
        HOLDS_RENEWED = c"holds_renewed";
        /// Checks that repeated a live hold.
        HOLDS_REPEATED = c"holds_repeated";
        /// How many clients wait.
        WAITING_CLIENTS = c"waiting_clients";
    }
    OF_WAITS {
        /// Clients that were admitted after they had waited.
        WAITS_ADMITTED = c"waits_admitted";
        /// Clients that waited until their deadlines.
        WAITS_EXPIRED = c"waits_expired";
        /// Clients that waited until their key was blocked, until its slot was no longer served, or
        /// until their request could never pass.
        WAITS_REFUSED = c"waits_refused";
    }
    LAST {
        CLOCK_STEPS = c"clock_steps_back";
        /// Skipped effects, values and policies that cannot be read.
        UNREADABLE = c"unreadable_effects";
    }
}

/// The module's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit that it was built from, if the build knew it.
pub const COMMIT: &str = match option_env!("RATELIMIT_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// Passes the first 47 bytes of texts that are joined to a function, without an allocation.
fn with_joined(texts: [&str; 2], body: impl FnOnce(&CStr)) {
    let mut joined = [0; 48];
    let bytes = texts.iter().flat_map(|text| text.bytes());
    joined.iter_mut().take(47).zip(bytes).for_each(|(to, byte)| *to = byte);
    body(CStr::from_bytes_until_nul(&joined).unwrap_or_default());
}

/// How many rules of each algorithm the checks had.
static RULES: [Counter; Kind::ALL.len()] = [const { Counter::new() }; Kind::ALL.len()];

/// How many bytes the arguments and the rules of waiting clients take.
static WAITING_BYTES: Counter = Counter::new();

/// The clock at the last check, to notice steps back.
static LATEST_US: AtomicU64 = AtomicU64::new(0);

/// The number of values in memory, including those yet to be freed. The server's
/// threads free values too, so this counter needs atomic additions.
static VALUES: AtomicU64 = AtomicU64::new(0);

/// Counts a check that was decided at this reading of the clock.
#[inline]
pub fn count_check(verdict: Verdict, clock_us: u64) {
    CHECKS.add(1);
    match verdict {
        Verdict::Allowed => ALLOWED.add(1),
        Verdict::Limited => LIMITED.add(1),
        Verdict::Blocked => BLOCKED.add(1),
    }
    saw_clock(clock_us);
}

/// Counts one key of a check: its exemption, its ban and its rules. Returns true if a shadow would have
/// denied it.
#[inline]
pub fn count_key(
    access: Option<Access>,
    banned: bool,
    rules: &[Rule],
    decisions: &[Decision],
) -> bool {
    let mut shadowed = false;
    if access == Some(Access::Exempt) {
        EXEMPT.add(1);
    }
    if banned {
        BANS.add(1);
    }
    for (rule, decision) in rules.iter().zip(decisions) {
        if decision.verdict == Verdict::Limited && rule.is_shadow() {
            shadowed = shadow_limited();
        }
        if let Some(counter) = RULES.get(rule.kind() as usize) {
            counter.add(1);
        }
    }
    shadowed
}

#[cold]
fn shadow_limited() -> bool {
    SHADOW_LIMITED.add(1);
    true
}

fn saw_clock(now_us: u64) {
    if now_us < LATEST_US.load(Ordering::Relaxed) {
        CLOCK_STEPS.add(1);
    }
    LATEST_US.store(now_us, Ordering::Relaxed);
}

/// Counts a refund.
pub fn refunded(units: u64) {
    REFUNDS.add(1);
    REFUNDED_UNITS.add(units);
}

/// Notes how many clients wait, and how many bytes their arguments and rules take.
pub fn clients_wait(clients: usize, bytes: usize) {
    WAITING_CLIENTS.set(clients as u64);
    WAITING_BYTES.set(bytes as u64);
}

/// The number of values in memory, including those yet to be freed.
pub fn values() -> u64 {
    VALUES.load(Ordering::Relaxed)
}

/// Counts a new value in memory.
pub fn value_made() {
    VALUES.fetch_add(1, Ordering::Relaxed);
}

/// Counts a freed value.
pub fn value_freed() {
    VALUES.fetch_sub(1, Ordering::Relaxed);
}

/// Writes the `INFO` section. It may be called while the server crashes, so it takes no
/// lock and allocates nothing.
pub fn write_info(info: &Info, enforce: (&CStr, bool), max_waiters: u64, max_waiter_bytes: u64) {
    if !info.section(None) {
        return;
    }
    let counters = |list: &[(&CStr, &Counter)]| {
        list.iter().for_each(|(name, counter)| info.add(name, counter.get()));
    };
    counters(&FIRST);
    info.add(c"max_waiters", max_waiters);
    info.add(c"waiting_bytes", WAITING_BYTES.get());
    info.add(c"max_waiter_bytes", max_waiter_bytes);
    counters(&OF_WAITS);
    for (kind, counter) in Kind::ALL.iter().zip(&RULES) {
        with_joined([kind.name(), "_rules"], |name| info.add(name, counter.get()));
    }
    counters(&LAST);
    info.add(c"internal_errors", log::panics());
    info.add(c"values", values());
    info.add(c"bytes", alloc::in_use());
    let (enforce, enforcing) = enforce;
    info.add_text(c"enforce", enforce);
    info.add(c"enforcing", enforcing.into());
    with_joined([VERSION, ""], |version| info.add_text(c"version", version));
    with_joined([COMMIT, ""], |commit| info.add_text(c"commit", commit));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_back_of_the_clock_is_counted_once() {
        for (now_us, steps) in [(5, 0), (5, 0), (9, 0), (7, 1), (8, 1), (2, 2), (9, 2)] {
            saw_clock(now_us);
            assert_eq!(CLOCK_STEPS.get(), steps, "at {now_us}");
        }
    }
}
