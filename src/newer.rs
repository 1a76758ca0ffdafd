//! What a newer version of the module wrote, and this one cannot read.
//!
//! It must not be lost in silence, so each way by which it comes has its stop:
//!
//! ```text
//! AOF at start             the server does not start, and the file stays as it is
//! full synchronization     refused before the first key, by the version in the snapshot
//! stream of a primary      skipped and counted; until the next full synchronization or its
//!                          promotion the replica answers no question about keys
//! ```
//!
//! A replica cannot make its primary wait, and must not end for the sake of one
//! module while it serves other data. `docs/upgrade.md` says what operators see.

#![forbid(unsafe_code)]

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::limit::DecodeError;
use crate::metrics;
use crate::parse::ParseError;
use crate::server::{Call, CommandError, ServerEvent, end, log};

/// Whether this replica skipped what its primary did.
static SKIPPED: AtomicBool = AtomicBool::new(false);
/// Whether a snapshot of a primary is being loaded.
static FROM_PRIMARY: AtomicBool = AtomicBool::new(false);
/// Whether the data loaded is beside the data in force.
static STAGED: AtomicBool = AtomicBool::new(false);

/// A replicated or saved command cannot be read.
pub fn refuse(call: &Call<'_>, why: String) -> CommandError {
    if call.is_of_loader() {
        end(&format!("the append-only file cannot be loaded: {why}"));
    }
    metrics::unreadable();
    if call.is_on_replica() && !SKIPPED.swap(true, Ordering::Relaxed) {
        log::warning(&format!(
            "this replica skips what its primary does, and answers no question about keys: {why}"
        ));
    }
    CommandError::Because(why.into())
}

/// Whether a value cannot be read as it is of a newer version. Version 0 never was,
/// and all others up to the newest are read.
const fn is_newer(error: &DecodeError) -> bool {
    matches!(error, DecodeError::Version(1..))
}

/// Why a value cannot be read, and what to do about it where something can be done.
pub fn explain(error: &DecodeError) -> String {
    if is_newer(error) { of_newer(error) } else { error.to_string() }
}

/// A replicated or saved value cannot be read.
pub fn refuse_value(call: &Call<'_>, error: &DecodeError) -> CommandError {
    let why = explain(error);
    if is_newer(error) { refuse(call, why) } else { CommandError::Because(why.into()) }
}

/// A replicated or saved policy cannot be read.
pub fn refuse_policy(call: &Call<'_>, error: &ParseError) -> CommandError {
    refuse(call, of_newer(error))
}

/// Every version is read up to this one, so what cannot be read is of a newer one.
fn of_newer(error: &impl Display) -> String {
    format!("{error}; it was written by a newer version of the module; upgrade this server first")
}

/// Refuses a question about keys on a replica that skipped something.
///
/// # Errors
/// What is to be done.
pub fn require_nothing_skipped(call: &Call<'_>) -> Result<(), CommandError> {
    if SKIPPED.load(Ordering::Relaxed) && call.is_on_replica() {
        return Err(CommandError::because(
            "this replica skipped what its primary did with a newer version of the module; \
             upgrade this server",
        ));
    }
    Ok(())
}

/// Whether a primary sends what is being loaded.
pub fn is_from_primary() -> bool {
    FROM_PRIMARY.load(Ordering::Relaxed)
}

/// What the server is about to do with its data.
pub fn on(event: ServerEvent) {
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
        | ServerEvent::AofRewriteStarted => {}
    }
}
