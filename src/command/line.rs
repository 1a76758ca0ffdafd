//! The clients that wait in line, and how their lines learn of changes.
//!
//! The command that makes a change tells the line, which only notes the change. Later the timer serves
//! the clients that are due (`wait`).
//!
//! A call of the server may change keys, and noting a change takes the lock. So the lock is held
//! briefly, and never during a call of the server except to allocate memory.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::metrics;
use crate::server::changes::{self, Changes};
use crate::server::{Arg, ClientId, Texts, WaitingClient, alarm};
use ratelimit_protocol::waiting::{Cause, Queues, Ticket};

/// A waiting client.
#[derive(Debug)]
pub struct Waiter {
    pub client: WaitingClient,
    pub db: i32,
    /// A copy of its command: the server may free a client's arguments at any time.
    pub args: Arc<Texts>,
}

/// All waiting clients.
#[derive(Debug)]
pub struct Waiters {
    pub queues: Queues<Waiter>,
    pub tickets: BTreeMap<ClientId, Ticket>,
    /// The client whose ticket [`Waiters::next_in_round`] returned last in this round.
    visited: Option<ClientId>,
}

static WAITERS: Mutex<Waiters> =
    Mutex::new(Waiters { queues: Queues::EMPTY, tickets: BTreeMap::new(), visited: None });

/// Locks the waiting clients.
pub fn waiters() -> MutexGuard<'static, Waiters> {
    // A call that panicked while it held the lock cannot have left a queue incomplete.
    WAITERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether any client waits, for any key.
#[inline(always)]
pub fn is_in_use() -> bool {
    changes::is_heard()
}

/// Tells a key's line what a command did to the key.
pub fn tell(key: Arg<'_>, cause: Cause<'_>) {
    if is_in_use() {
        waiters().queues.key_changed(key.bytes(), cause);
        set_alarm();
    }
}

/// Notes that the server changed a key, or perhaps every key.
fn note(changed: Changes<'_>) {
    match changed {
        Changes::Key(key) => waiters().queues.key_changed(key, Cause::Changed),
        Changes::Everything => waiters().queues.everything_changed(),
    }
    set_alarm();
}

/// Sets the timer for what is due next.
pub fn set_alarm() {
    let next_us = waiters().queues.next_us();
    if let Some(next_us) = next_us {
        alarm::set(next_us);
    }
}

impl Waiters {
    /// Publishes the number of waiters and their memory after a change.
    fn counted(&self) {
        let waiting = self.queues.waiting();
        metrics::clients_wait(waiting, self.queues.bytes());
        if waiting == 0 {
            changes::stop_listening();
        }
    }

    /// Notes a client that has joined.
    pub fn joined(&mut self, id: ClientId, ticket: Ticket) {
        self.tickets.insert(id, ticket);
        changes::listen(note);
        self.counted();
    }

    /// Returns the next client of a round through all clients. `None` ends the round, and the next call
    /// begins another.
    pub fn next_in_round(&mut self) -> Option<Ticket> {
        let from = self.visited.map_or(Unbounded, Excluded);
        let next = self.tickets.range((from, Unbounded)).next();
        self.visited = next.map(|(&id, _)| id);
        next.map(|(_, &ticket)| ticket)
    }

    /// Removes a client. `admitted` is its cost if its rules admit it.
    pub fn leave(&mut self, ticket: Ticket, admitted: Option<u32>) -> Option<Waiter> {
        let waiter = self.queues.leave(ticket, admitted)?;
        self.tickets.remove(&waiter.client.id());
        self.counted();
        Some(waiter)
    }
}
