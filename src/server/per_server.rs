//! State that commands share. It needs no lock, because commands run under the server's lock.

use std::cell::UnsafeCell;

use super::call::Call;

/// A value that each command takes out while it runs, then puts back. Commands never share a
/// reference into it: a command within a command (from a module that reacts to a keyspace event)
/// finds it missing and uses a new one.
pub struct PerServer<T>(UnsafeCell<Option<Box<T>>>);

// SAFETY: a `Call` exists only while a command is executed, so only on the thread that holds the
// server's lock. A request for a command's keys, which comes without the lock, is not a `Call`
// (`KeysRequest`). The value is passed on to the thread that takes the lock next.
unsafe impl<T: Send> Sync for PerServer<T> {}

impl<T> PerServer<T> {
    pub const fn empty() -> Self {
        Self(UnsafeCell::new(None))
    }

    #[inline]
    fn replace(&self, _: &Call<'_>, value: Option<Box<T>>) -> Option<Box<T>> {
        // SAFETY: no other thread has a call, and on this one no reference to
        // the value outlives the exchange, which runs no code of T's.
        unsafe { std::mem::replace(&mut *self.0.get(), value) }
    }
}

impl<T: Default> PerServer<T> {
    /// Runs a body with the value. If the body panics, the value is lost.
    #[inline]
    pub fn with<R>(&self, call: &Call<'_>, body: impl FnOnce(&mut T) -> R) -> R {
        let mut value = self.replace(call, None).unwrap_or_default();
        let result = body(&mut value);
        drop(self.replace(call, Some(value)));
        result
    }
}
