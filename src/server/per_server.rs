//! State that commands share, behind the lock they hold anyway: the server's.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem;

use super::call::Call;

/// A value that whoever executes a command may exchange for another. It is
/// never lent, so a command within a command (a module that reacts to a
/// keyspace event) finds what the outer one left there.
pub struct PerServer<T>(UnsafeCell<T>);

// SAFETY: a call is made only for a command being executed, and for as long as
// it is, so on the one thread that has the server's lock; what the server asks
// without it, where a command's keys are, is no call (`KeysRequest`). The value
// goes to the next thread that has the lock.
unsafe impl<T: Send> Sync for PerServer<T> {}

impl<T> PerServer<T> {
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Leaves a value there, and gives the one that was.
    #[inline]
    pub fn replace(&self, _: &Call<'_>, value: T) -> T {
        // SAFETY: no other thread has a call, and on this one no reference to
        // the value outlives the exchange, which runs no code of T's.
        unsafe { mem::replace(&mut *self.0.get(), value) }
    }
}

impl<T> fmt::Debug for PerServer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PerServer")
    }
}
