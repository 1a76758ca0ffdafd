//! Tells a listener which keys the server changes.
//!
//! The data type's `unlink` reports that a value has left its key by deletion, expiry, eviction,
//! overwriting, renaming or moving. `FLUSHDB`, `FLUSHALL` and `SWAPDB` change many keys without calling
//! it, but cause server events. So the module needs no keyspace notifications, which would slow down
//! every command of the server. The module's own commands tell the queue of waiting clients
//! (`command::line`) what they did.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes<'a> {
    /// The key with this name, in any database.
    Key(&'a [u8]),
    /// Perhaps every key, or something that affects all requests.
    Everything,
}

/// A function that notes changes. It may be called in the middle of a command, and must not access
/// keys.
pub type Listener = fn(Changes<'_>);

static LISTENER: OnceLock<Listener> = OnceLock::new();
static LISTENING: AtomicBool = AtomicBool::new(false);

/// Starts reporting changes to `listener`.
pub fn listen(listener: Listener) {
    LISTENER.get_or_init(|| listener);
    LISTENING.store(true, Ordering::Relaxed);
}

/// Stops reporting changes.
pub fn stop_listening() {
    LISTENING.store(false, Ordering::Relaxed);
}

/// Whether someone is listening.
#[inline(always)]
pub fn is_heard() -> bool {
    LISTENING.load(Ordering::Relaxed)
}

/// Reports a change. The closure describes it, and is only called while someone is listening.
#[inline(always)]
pub fn report<'a>(changes: impl FnOnce() -> Changes<'a>) {
    if is_heard() {
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
