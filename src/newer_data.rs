//! Data from a newer version of the module that this version cannot read.
//!
//! It must not be lost silently, so each way that it can arrive has a rule:
//!
//! ```text
//! AOF at start             the server does not start, and the file stays unchanged
//! full synchronization     refused before the first key, by the version in the snapshot
//! stream of a primary      skipped and counted; until the next full synchronization or its
//!                          promotion the replica answers no question about keys
//! ```
//!
//! A replica cannot make its primary wait, and should not exit because of one module while it
//! serves other data. `docs/upgrade.md` tells what operators see.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::metrics;
use crate::server::{Call, CommandError, ServerEvent, end_server, log};
use ratelimit_core::limit::DecodeError;
use ratelimit_core::parse::ParseError;

/// True if this replica skipped an effect of its primary.
static SKIPPED: AtomicBool = AtomicBool::new(false);
/// True while a primary's snapshot is being loaded.
static FROM_PRIMARY: AtomicBool = AtomicBool::new(false);
/// True if the data being loaded is staged: the old data is still served.
static STAGED: AtomicBool = AtomicBool::new(false);

/// Refuses a replicated or saved command that cannot be read.
pub fn refuse(call: &Call<'_>, why: String) -> CommandError {
    if call.is_of_loader() {
        end_server(&format!("the append-only file cannot be loaded: {why}"));
    }
    metrics::UNREADABLE.add(1);
    if call.is_on_replica() && !SKIPPED.swap(true, Ordering::Relaxed) {
        log::warning(&format!(
            "this replica skips what its primary does, and answers no question about keys: {why}"
        ));
    }
    CommandError::Because(why.into())
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
        DecodeError::Version(1..) => refuse(call, why),
        _ => CommandError::Because(why.into()),
    }
}

/// Refuses a replicated or saved policy that cannot be read.
pub fn refuse_policy(call: &Call<'_>, error: &ParseError) -> CommandError {
    refuse(call, of_newer(error))
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
            "this replica skipped what its primary did with a newer version of the module; \
             upgrade this server",
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
        ServerEvent::Promoted => {
            if SKIPPED.swap(false, Ordering::Relaxed) {
                log::warning(
                    "promoted after it skipped what its primary did: \
                     units consumed meanwhile can be consumed again",
                );
            }
        }
        ServerEvent::Ready
        | ServerEvent::AofWriteStarted
        | ServerEvent::WriteEnded
        | ServerEvent::AofRewriteStarted
        | ServerEvent::Alarm => {}
    }
}
