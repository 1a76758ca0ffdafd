//! Counters since the module was loaded, for `INFO ratelimit`.
//!
//! Commands run one at a time, so a counter has one writer and needs no atomic addition:
//! a load and a store are cheaper. Any thread may read it.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::config;
use crate::server::info::Info;
use crate::server::log;
use ratelimit_core::limit::{Access, Decision, Verdict};
use ratelimit_core::rule::{Kind, Rule};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub fn add(&self, amount: u64) {
        self.0.store(self.get().wrapping_add(amount), Ordering::Relaxed);
    }

    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

static CHECKS: Counter = Counter::new();
static ALLOWED: Counter = Counter::new();
static LIMITED: Counter = Counter::new();
static BLOCKED: Counter = Counter::new();
static EXEMPT: Counter = Counter::new();
static BANS: Counter = Counter::new();
static SHADOW_LIMITED: Counter = Counter::new();
static PEEKS: Counter = Counter::new();
static REFUNDS: Counter = Counter::new();
static REFUNDED_UNITS: Counter = Counter::new();
static HOLDS_TAKEN: Counter = Counter::new();
static HOLDS_REPEATED: Counter = Counter::new();
static HOLDS_SETTLED: Counter = Counter::new();
static HOLDS_RENEWED: Counter = Counter::new();
static WAITS_ADMITTED: Counter = Counter::new();
static WAITS_EXPIRED: Counter = Counter::new();
static WAITS_REFUSED: Counter = Counter::new();
static UNREADABLE: Counter = Counter::new();
static CLOCK_STEPS: Counter = Counter::new();
static LOG_RULES: Counter = Counter::new();
static WINDOW_RULES: Counter = Counter::new();
static FIXED_RULES: Counter = Counter::new();
static BUCKET_RULES: Counter = Counter::new();
static LEAKY_RULES: Counter = Counter::new();
static SLOTS_RULES: Counter = Counter::new();

/// How many clients wait.
static WAITING_CLIENTS: AtomicUsize = AtomicUsize::new(0);

/// The bytes that the arguments of waiting clients take.
static WAITING_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The clock at the last check, to notice steps back.
static LATEST_US: AtomicU64 = AtomicU64::new(0);

/// The number of values in memory, including those yet to be freed. The server's
/// threads free values too, so this counter needs atomic additions.
static VALUES: AtomicU64 = AtomicU64::new(0);

/// Counts a check, decided at this reading of the clock.
#[inline]
pub fn checked(verdict: Verdict, clock_us: u64) {
    CHECKS.add(1);
    match verdict {
        Verdict::Allowed => ALLOWED.add(1),
        Verdict::Limited => LIMITED.add(1),
        Verdict::Blocked => BLOCKED.add(1),
    }
    saw_clock(clock_us);
}

/// Counts one key of a check: its exemption, its ban and its rules.
#[inline]
pub fn key_checked(access: Option<Access>, banned: bool, rules: &[Rule], decisions: &[Decision]) {
    if access == Some(Access::Exempt) {
        EXEMPT.add(1);
    }
    if banned {
        BANS.add(1);
    }
    for (rule, decision) in rules.iter().zip(decisions) {
        if rule.is_shadow() && decision.verdict == Verdict::Limited {
            SHADOW_LIMITED.add(1);
        }
        let (_, rules) = rules_of(rule.kind());
        rules.add(1);
    }
}

/// The field and the counter of an algorithm's rules.
#[inline]
const fn rules_of(kind: Kind) -> (&'static CStr, &'static Counter) {
    match kind {
        Kind::Log => (c"log_rules", &LOG_RULES),
        Kind::Window => (c"window_rules", &WINDOW_RULES),
        Kind::Fixed => (c"fixed_rules", &FIXED_RULES),
        Kind::Bucket => (c"bucket_rules", &BUCKET_RULES),
        Kind::Leaky => (c"leaky_rules", &LEAKY_RULES),
        Kind::Slots => (c"slots_rules", &SLOTS_RULES),
    }
}

fn saw_clock(now_us: u64) {
    if now_us < LATEST_US.load(Ordering::Relaxed) {
        CLOCK_STEPS.add(1);
    }
    LATEST_US.store(now_us, Ordering::Relaxed);
}

/// Counts a peek.
pub fn peeked() {
    PEEKS.add(1);
}

/// Counts a refund.
pub fn refunded(units: u64) {
    REFUNDS.add(1);
    REFUNDED_UNITS.add(units);
}

/// Counts a hold that a check took.
pub fn hold_taken() {
    HOLDS_TAKEN.add(1);
}

/// Counts a check that repeated a live hold.
pub fn hold_repeated() {
    HOLDS_REPEATED.add(1);
}

/// Counts a settled hold.
pub fn hold_settled() {
    HOLDS_SETTLED.add(1);
}

/// Counts a renewed hold.
pub fn hold_renewed() {
    HOLDS_RENEWED.add(1);
}

/// Notes how many clients wait, and how many bytes their arguments take.
pub fn clients_wait(clients: usize, bytes: usize) {
    WAITING_CLIENTS.store(clients, Ordering::Relaxed);
    WAITING_BYTES.store(bytes, Ordering::Relaxed);
}

/// Counts a client that was admitted after it had waited.
pub fn wait_admitted() {
    WAITS_ADMITTED.add(1);
}

/// Counts a client that waited until its deadline.
pub fn wait_expired() {
    WAITS_EXPIRED.add(1);
}

/// Counts a client that waited until its key was blocked or its request could never pass.
pub fn wait_refused() {
    WAITS_REFUSED.add(1);
}

/// Counts a skipped command that a newer version of the module wrote.
pub fn unreadable() {
    UNREADABLE.add(1);
}

/// The number of values in memory, including those yet to be freed.
#[must_use]
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
pub fn write_info(info: &Info) {
    let Some(fields) = info.section(None) else { return };
    fields.add(c"checks", CHECKS.get());
    fields.add(c"allowed", ALLOWED.get());
    fields.add(c"limited", LIMITED.get());
    fields.add(c"blocked", BLOCKED.get());
    fields.add(c"exempt", EXEMPT.get());
    fields.add(c"bans", BANS.get());
    fields.add(c"shadow_limited", SHADOW_LIMITED.get());
    fields.add(c"peeks", PEEKS.get());
    fields.add(c"refunds", REFUNDS.get());
    fields.add(c"refunded_units", REFUNDED_UNITS.get());
    fields.add(c"holds_taken", HOLDS_TAKEN.get());
    fields.add(c"holds_settled", HOLDS_SETTLED.get());
    fields.add(c"holds_renewed", HOLDS_RENEWED.get());
    fields.add(c"holds_repeated", HOLDS_REPEATED.get());
    let room = config::room_for_waiters();
    for (name, amount) in [
        (c"waiting_clients", WAITING_CLIENTS.load(Ordering::Relaxed)),
        (c"max_waiters", room.waiters),
        (c"waiting_bytes", WAITING_BYTES.load(Ordering::Relaxed)),
        (c"max_waiter_bytes", room.bytes),
    ] {
        fields.add(name, amount as u64);
    }
    fields.add(c"waits_admitted", WAITS_ADMITTED.get());
    fields.add(c"waits_expired", WAITS_EXPIRED.get());
    fields.add(c"waits_refused", WAITS_REFUSED.get());
    for (name, rules) in Kind::ALL.map(rules_of) {
        fields.add(name, rules.get());
    }
    fields.add(c"clock_steps_back", CLOCK_STEPS.get());
    fields.add(c"unreadable_effects", UNREADABLE.get());
    fields.add(c"internal_errors", log::panics());
    fields.add(c"values", values());
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
