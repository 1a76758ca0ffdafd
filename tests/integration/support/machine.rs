//! How tests share the machine. A test that other load would spoil can have it alone.
//!
//! The test harness runs each test in a thread, and that thread starts the servers of the test. A test
//! shares the machine from its first server until its thread ends. `RUST_TEST_THREADS` is larger than
//! [`AT_ONCE`], so that tests which wait for their turn do not keep other tests from running.

use std::cell::RefCell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// How many tests run servers at once.
const AT_ONCE: usize = 8;
/// How many of these tests may have a cluster, because each cluster has six servers.
const CLUSTERS_AT_ONCE: usize = 3;

struct Machine {
    sharing: usize,
    clusters: usize,
    waiting_to_share: usize,
    is_taken: bool,
}

static MACHINE: Mutex<Machine> =
    Mutex::new(Machine { sharing: 0, clusters: 0, waiting_to_share: 0, is_taken: false });
static CHANGED: Condvar = Condvar::new();

enum Held {
    Shared { with_cluster: bool },
    Alone,
}

thread_local! {
    /// What this thread's test has, released when the thread ends.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Waits while another test has the machine alone or enough tests share it, then shares it until this
/// test ends. A thread without a name belongs to a test that runs already, so it waits for no turn.
pub fn share() {
    share_with(false);
}

/// [`share`] for a test that starts a cluster.
pub fn share_for_cluster() {
    share_with(true);
}

fn share_with(with_cluster: bool) {
    HELD.with_borrow_mut(|held| {
        held.get_or_insert_with(|| {
            let is_test = thread::current().name().is_some();
            let mut machine = machine();
            machine.waiting_to_share += 1;
            let mut machine = wait_while(machine, |machine| {
                machine.is_taken
                    || is_test && machine.sharing >= AT_ONCE
                    || with_cluster && machine.clusters >= CLUSTERS_AT_ONCE
            });
            machine.waiting_to_share -= 1;
            machine.sharing += 1;
            machine.clusters += usize::from(with_cluster);
            Held::Shared { with_cluster }
        });
    });
}

/// Waits until no other test has a server or waits to start one. Until this test ends, no other test
/// can start a server.
pub fn alone() {
    HELD.with_borrow_mut(|held| {
        *held = None;
        let mut machine = wait_while(machine(), |machine| {
            machine.is_taken || machine.sharing + machine.waiting_to_share > 0
        });
        machine.is_taken = true;
        *held = Some(Held::Alone);
    });
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut machine = machine();
        match *self {
            Self::Shared { with_cluster } => {
                machine.sharing -= 1;
                machine.clusters -= usize::from(with_cluster);
            }
            Self::Alone => machine.is_taken = false,
        }
        CHANGED.notify_all();
    }
}

fn machine() -> MutexGuard<'static, Machine> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait_while(
    machine: MutexGuard<'static, Machine>,
    condition: impl Fn(&Machine) -> bool,
) -> MutexGuard<'static, Machine> {
    CHANGED
        .wait_while(machine, |machine| condition(machine))
        .unwrap_or_else(PoisonError::into_inner)
}
