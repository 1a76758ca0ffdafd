//! Tells one listener which keys change, while it listens.
//!
//! The module's own commands report each change with `signal_modified`; the data type's
//! `unlink` reports that a value has left its key, however that came about: deletion,
//! expiry, eviction, overwriting, renaming, moving. `FLUSHDB`, `FLUSHALL` and `SWAPDB`
//! change many keys without either, and are server events. So no keyspace notification is
//! needed, which every command of the server would pay for.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes<'a> {
    /// The key of this name, in one of the databases.
    Key(&'a [u8]),
    /// Perhaps every key, or what all requests are judged by.
    Everything,
}

/// A function that notes changes. It may be called in the middle of a command, and must
/// not touch a key.
pub type Listener = fn(Changes<'_>);

static LISTENER: OnceLock<Listener> = OnceLock::new();
static LISTENING: AtomicBool = AtomicBool::new(false);

/// Begins to report changes.
pub fn listen(listener: Listener) {
    LISTENER.get_or_init(|| listener);
    LISTENING.store(true, Ordering::Relaxed);
}

/// Ends what [`listen`] began.
pub fn stop_listening() {
    LISTENING.store(false, Ordering::Relaxed);
}

/// Reports a change. The closure gives its description, and is called only if somebody
/// listens.
#[inline(always)]
pub fn report<'a>(changes: impl FnOnce() -> Changes<'a>) {
    if LISTENING.load(Ordering::Relaxed) {
        report_to_listener(changes());
    }
}

#[cold]
#[inline(never)]
fn report_to_listener(changes: Changes<'_>) {
    if let Some(listener) = LISTENER.get() {
        listener(changes);
    }
}
