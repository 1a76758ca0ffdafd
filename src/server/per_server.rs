//! State that commands share, behind the lock they hold anyway: the server's.

use std::cell::UnsafeCell;
use std::fmt;

use super::call::Call;

/// A value that whoever executes a command takes out, and puts back. What is
/// here is never lent, so a command within a command (a module that reacts to a
/// keyspace event) finds nothing here and gets a fresh one.
pub struct PerServer<T>(UnsafeCell<Option<Box<T>>>);

// SAFETY: a call is made only for a command being executed, and for as long as
// it is, so on the one thread that has the server's lock; what the server asks
// without it, where a command's keys are, is no call (`KeysRequest`). The value
// goes to the next thread that has the lock.
unsafe impl<T: Send> Sync for PerServer<T> {}

impl<T> PerServer<T> {
    #[must_use]
    pub const fn empty() -> Self {
        Self(UnsafeCell::new(None))
    }

    /// Leaves something there, and gives what was.
    #[inline]
    fn replace(&self, _: &Call<'_>, value: Option<Box<T>>) -> Option<Box<T>> {
        // SAFETY: no other thread has a call, and on this one no reference to
        // the value outlives the exchange, which runs no code of T's.
        unsafe { std::mem::replace(&mut *self.0.get(), value) }
    }
}

impl<T: Default> PerServer<T> {
    /// Runs a body with the value. One that panics loses it.
    #[inline]
    pub fn with<R>(&self, call: &Call<'_>, body: impl FnOnce(&mut T) -> R) -> R {
        let mut value = self.replace(call, None).unwrap_or_default();
        let result = body(&mut value);
        drop(self.replace(call, Some(value)));
        result
    }
}

impl<T> fmt::Debug for PerServer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PerServer")
    }
}
