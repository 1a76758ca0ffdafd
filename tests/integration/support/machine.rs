//! How tests share the machine. A test that other load would spoil can have it alone.
//!
//! The test harness runs each test in a thread, and that thread starts the servers of the test. A test
//! shares the machine from its first server until its thread ends.

use std::cell::RefCell;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static MACHINE: RwLock<()> = RwLock::new(());

enum Held {
    Shared { _guard: RwLockReadGuard<'static, ()> },
    Alone { _guard: RwLockWriteGuard<'static, ()> },
}

thread_local! {
    /// The lock of this thread's test, released when the thread ends.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Waits while another test has the machine alone, then shares it until this test ends.
pub fn share() {
    HELD.with_borrow_mut(|held| {
        held.get_or_insert_with(|| Held::Shared {
            _guard: MACHINE.read().unwrap_or_else(PoisonError::into_inner),
        });
    });
}

/// Waits until no other test has a server. Until this test ends, no other test can start one.
pub fn alone() {
    HELD.with_borrow_mut(|held| {
        *held = None;
        let guard = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
        *held = Some(Held::Alone { _guard: guard });
    });
}
