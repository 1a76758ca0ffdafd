//! Which tests have the machine: they share it, and a test that measures what a busy machine would
//! spoil takes it for itself.
//!
//! The test harness gives each test a thread, and a server is started by the thread of its test. A
//! test shares the machine from its first server to its end.

use std::cell::RefCell;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static MACHINE: RwLock<()> = RwLock::new(());

enum Held {
    Shared { _guard: RwLockReadGuard<'static, ()> },
    Alone { _guard: RwLockWriteGuard<'static, ()> },
}

thread_local! {
    /// What the test of this thread holds; its end gives it back.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Waits for a test that is alone, and keeps another from being so.
pub fn share() {
    HELD.with_borrow_mut(|held| {
        held.get_or_insert_with(|| Held::Shared {
            _guard: MACHINE.read().unwrap_or_else(PoisonError::into_inner),
        });
    });
}

/// Waits until no other test has a server, and lets none start one until this test ends.
pub fn alone() {
    HELD.with_borrow_mut(|held| {
        *held = None;
        let guard = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
        *held = Some(Held::Alone { _guard: guard });
    });
}
