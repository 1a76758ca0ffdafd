//! Effects, values and policies that this module cannot read: from a newer version of the module, or
//! damaged.
//!
//! They must not be lost silently, so each way in which they can arrive has a rule:
//!
//! ```text
//! AOF at start             of a newer version: the server does not start, and the file stays unchanged;
//!                          damaged: skipped, counted and logged
//! full synchronization     of a newer version: refused before the first key, by the version in the
//!                          snapshot
//! stream of a primary      skipped, counted and logged; the replica refuses to read keys until its
//!                          next full synchronization or its promotion
//! ```
//!
//! A replica cannot make its primary wait, and should not exit because of one module while it
//! serves other data. `INSTALL.md` says what operators see.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::metrics;
use crate::server::{Call, CommandError, ServerEvent, clock, end_server, log};
use ratelimit_engine::key::DecodeError;
use ratelimit_protocol::effect::EffectError;
use ratelimit_protocol::parse::ParseError;

/// True if this replica skipped an effect of its primary.
static SKIPPED: AtomicBool = AtomicBool::new(false);
/// True while a primary's snapshot is being loaded.
static FROM_PRIMARY: AtomicBool = AtomicBool::new(false);
/// True if the data being loaded is staged: the old data is still served.
static STAGED: AtomicBool = AtomicBool::new(false);

/// The time between two warnings: hostile data can be skipped a million times a second.
const QUIET_US: u64 = 60_000_000;

/// When the next warning may be logged, by a clock that never steps back.
static NEXT_WARNING_US: AtomicU64 = AtomicU64::new(0);

/// Refuses a replicated or saved command of a newer version.
fn refuse_newer(call: &Call<'_>, why: String) -> CommandError {
    if call.is_of_loader() {
        end_server(&format!("the append-only file cannot be loaded: {why}"));
    }
    skip(call, why)
}

/// Skips a replicated or saved command. Counts it, and logs why, at most once a minute.
fn skip(call: &Call<'_>, why: String) -> CommandError {
    metrics::UNREADABLE.add(1);
    if call.is_on_replica() && !SKIPPED.swap(true, Ordering::Relaxed) {
        log::warning(&format!(
            "this replica skips what its primary does, and answers no question about keys: {why}"
        ));
    } else if may_warn(clock::steady_us()) {
        let skipped = metrics::UNREADABLE.get();
        log::warning(&format!(
            "skipped an effect or a value that cannot be read, {skipped} since the start: {why}"
        ));
    }
    CommandError::Because(why.into())
}

fn may_warn(now_us: u64) -> bool {
    let due = now_us >= NEXT_WARNING_US.load(Ordering::Relaxed);
    if due {
        NEXT_WARNING_US.store(now_us.saturating_add(QUIET_US), Ordering::Relaxed);
    }
    due
}

/// Refuses an effect that cannot be read.
pub fn refuse_effect(call: &Call<'_>, error: &EffectError) -> CommandError {
    let why = error.to_string();
    match error {
        EffectError::Newer { .. } => refuse_newer(call, why),
        EffectError::UnknownWord { .. } | EffectError::Parse(_) => skip(call, why),
    }
}

/// Why a value cannot be read, and what to do about it if its version is newer: versions start at
/// 1, and this module reads all of them up to its own.
pub fn explain(error: &DecodeError) -> String {
    match error {
        DecodeError::Version(1..) => of_newer(error),
        error => error.to_string(),
    }
}

/// Refuses a replicated or saved value that cannot be read.
pub fn refuse_value(call: &Call<'_>, error: &DecodeError) -> CommandError {
    let why = explain(error);
    match error {
        DecodeError::Version(1..) => refuse_newer(call, why),
        _ => skip(call, why),
    }
}

/// Refuses a replicated or saved policy that cannot be read.
pub fn refuse_policy(call: &Call<'_>, error: &ParseError) -> CommandError {
    refuse_newer(call, of_newer(error))
}

/// Explains an error in data of a newer version: this module can read all other data.
fn of_newer(error: &impl Display) -> String {
    format!("{error}; it was written by a newer version of the module; upgrade this server first")
}

/// Refuses a command that reads keys on a replica that skipped an effect.
///
/// # Errors
/// The reason, and what to do about it.
pub fn require_nothing_skipped(call: &Call<'_>) -> Result<(), CommandError> {
    if SKIPPED.load(Ordering::Relaxed) && call.is_on_replica() {
        return Err(CommandError::because(
            "this replica skipped what its primary did, since it cannot read it (see its log); if \
             the primary runs a newer version of the module, upgrade this server",
        ));
    }
    Ok(())
}

/// True if the data being loaded comes from a primary.
pub fn is_from_primary() -> bool {
    FROM_PRIMARY.load(Ordering::Relaxed)
}

/// Updates the flags when the server loads data or changes its role.
pub fn on_server_event(event: ServerEvent) {
    let set = |flag: &AtomicBool, value| flag.store(value, Ordering::Relaxed);
    match event {
        ServerEvent::LoadingFromPrimary => {
            set(&FROM_PRIMARY, true);
            if !STAGED.load(Ordering::Relaxed) {
                set(&SKIPPED, false);
            }
        }
        ServerEvent::LoadingEnded | ServerEvent::LoadingFailed => set(&FROM_PRIMARY, false),
        ServerEvent::StagingStarted => set(&STAGED, true),
        ServerEvent::StagingAborted => set(&STAGED, false),
        ServerEvent::StagingCompleted => {
            set(&STAGED, false);
            set(&SKIPPED, false);
        }
        ServerEvent::Promoted if SKIPPED.swap(false, Ordering::Relaxed) => log::warning(
            "promoted after it skipped what its primary did: \
             units consumed meanwhile can be consumed again",
        ),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_logged_at_most_once_a_minute() {
        let minute_us = QUIET_US;
        for (now_us, warns) in
            [(5, true), (5, false), (minute_us + 4, false), (minute_us + 5, true)]
        {
            assert_eq!(may_warn(now_us), warns, "at {now_us}");
        }
    }
}
