//! Which clients wait for a key, in which order, and when to look at the first one again.
//!
//! ```text
//!  key  ->  queue    [ first | second | third ... ]    strictly in order of arrival
//!                        |        |       |
//!  look again at    <----+        +-------+------> only their deadlines count
//!  deadline         <----+
//! ```
//!
//! Only the first of a queue is decided: a later one never overtakes it, however small its
//! request. The first is due when the wait that its last denial announced has passed, and at
//! once when its key changes or when it has just become the first. When it is admitted, the
//! next one becomes the first.
//!
//! One ordered set holds every instant at which something is due. So one timer, set for the
//! earliest, serves all queues, and nothing happens in between. With N waiters an operation
//! takes O(log N), unless it wakes many queues.
//!
//! Nothing here decides a request, knows a client or reads a clock: time is an argument, in
//! microseconds of any clock that never steps back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A key of a database.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Its name, any bytes.
    pub key: Box<[u8]>,
    /// The number of the database.
    pub db: i32,
}

/// Identifies a waiter. Later arrivals have greater tickets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    /// Decide the first of a queue: it then leaves, or the caller plans a later look.
    First(Ticket),
    /// A waiter's deadline has come, and it must leave.
    Deadline(Ticket),
}

/// How many waiters fit, and how large they may be together.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// The most waiters of all keys together.
    pub waiters: usize,
    /// The most bytes that the arguments of all waiters may take.
    pub bytes: usize,
}

#[derive(Debug)]
struct Queued<W> {
    place: Arc<Place>,
    deadline_us: u64,
    /// When to decide it. Only the first of a queue has such a time.
    look_us: Option<u64>,
    bytes: usize,
    value: W,
}

/// All queues.
#[derive(Debug)]
pub struct Queues<W> {
    queues: BTreeMap<Arc<Place>, BTreeSet<Ticket>>,
    waiters: BTreeMap<Ticket, Queued<W>>,
    /// Every deadline, and when to look at the first of each queue.
    instants: BTreeSet<(u64, Due)>,
    bytes: usize,
    arrivals: u64,
}

/// An instant that has passed at any time.
const AT_ONCE: u64 = 0;

impl<W> Queues<W> {
    /// No queues.
    pub const EMPTY: Self = Self {
        queues: BTreeMap::new(),
        waiters: BTreeMap::new(),
        instants: BTreeSet::new(),
        bytes: 0,
        arrivals: 0,
    };

    /// How many clients wait.
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// How many bytes the arguments of all waiters take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether another waiter fits, whose arguments take this many bytes.
    pub fn has_room(&self, room: Room, bytes: usize) -> bool {
        self.waiting() < room.waiters && self.bytes.saturating_add(bytes) <= room.bytes
    }

    /// Appends a waiter to the queue of a key. If it is the first, it is due at `look_us`.
    pub fn join(
        &mut self,
        place: Place,
        deadline_us: u64,
        look_us: u64,
        bytes: usize,
        value: W,
    ) -> Ticket {
        let ticket = Ticket(self.arrivals);
        self.arrivals = self.arrivals.saturating_add(1);
        let place = match self.queues.get_key_value(&place) {
            Some((place, _)) => Arc::clone(place),
            None => Arc::new(place),
        };
        let queue = self.queues.entry(Arc::clone(&place)).or_default();
        queue.insert(ticket);
        let is_first = queue.len() == 1;
        self.instants.insert((deadline_us, Due::Deadline(ticket)));
        self.bytes = self.bytes.saturating_add(bytes);
        self.waiters.insert(ticket, Queued { place, deadline_us, look_us: None, bytes, value });
        if is_first {
            self.look_at(ticket, look_us);
        }
        ticket
    }

    /// Removes a waiter, wherever in its queue it is. If it was the first, the next one is
    /// due at once.
    pub fn leave(&mut self, ticket: Ticket) -> Option<W> {
        let waiter = self.waiters.remove(&ticket)?;
        self.bytes = self.bytes.saturating_sub(waiter.bytes);
        self.instants.remove(&(waiter.deadline_us, Due::Deadline(ticket)));
        if let Some(look_us) = waiter.look_us {
            self.instants.remove(&(look_us, Due::First(ticket)));
        }
        let Some(queue) = self.queues.get_mut(&waiter.place) else { return Some(waiter.value) };
        let was_first = queue.first() == Some(&ticket);
        queue.remove(&ticket);
        match queue.first().copied() {
            None => drop(self.queues.remove(&waiter.place)),
            Some(next) if was_first => self.look_at(next, AT_ONCE),
            Some(_) => {}
        }
        Some(waiter.value)
    }

    /// Sets when to decide the first of a queue, and replaces any earlier plan. Does nothing
    /// for other waiters.
    pub fn look_at(&mut self, ticket: Ticket, at_us: u64) {
        let Some(waiter) = self.waiters.get_mut(&ticket) else { return };
        if self.queues.get(&waiter.place).and_then(BTreeSet::first) != Some(&ticket) {
            return;
        }
        if let Some(planned) = waiter.look_us.replace(at_us) {
            self.instants.remove(&(planned, Due::First(ticket)));
        }
        self.instants.insert((at_us, Due::First(ticket)));
    }

    /// The key of this name changed in any database, so its first waiter is due at once.
    pub fn key_changed(&mut self, key: &[u8]) {
        let from = Place { key: key.into(), db: i32::MIN };
        let of_key = self.queues.range(from..).take_while(|(place, _)| *place.key == *key);
        let firsts: Vec<_> = of_key.filter_map(|(_, queue)| queue.first().copied()).collect();
        self.look_at_once(firsts);
    }

    /// Any key or policy may have changed, so the first waiter of every key is due at once.
    pub fn everything_changed(&mut self) {
        let firsts: Vec<_> = self.queues.values().filter_map(|q| q.first().copied()).collect();
        self.look_at_once(firsts);
    }

    fn look_at_once(&mut self, firsts: Vec<Ticket>) {
        for first in firsts {
            self.look_at(first, AT_ONCE);
        }
    }

    /// When something is due next.
    pub fn next_us(&self) -> Option<u64> {
        self.instants.first().map(|&(at_us, _)| at_us)
    }

    /// The earliest thing that is due by `now_us`. Removes a planned look; a deadline stays
    /// until the waiter leaves.
    pub fn due(&mut self, now_us: u64) -> Option<Due> {
        let &(at_us, due) = self.instants.first().filter(|&&(at_us, _)| at_us <= now_us)?;
        if let Due::First(ticket) = due {
            self.instants.remove(&(at_us, due));
            if let Some(waiter) = self.waiters.get_mut(&ticket) {
                waiter.look_us = None;
            }
        }
        Some(due)
    }

    /// The value that a waiter joined with.
    pub fn waiter(&self, ticket: Ticket) -> Option<&W> {
        self.waiters.get(&ticket).map(|waiter| &waiter.value)
    }

    /// When the first of the queue is to be decided; `None` if this waiter is the first.
    pub fn behind(&self, ticket: Ticket) -> Option<u64> {
        let waiter = self.waiters.get(&ticket)?;
        self.first_look(&waiter.place).filter(|&(first, _)| first != ticket).map(|(_, at)| at)
    }

    /// When the first waiter of a key is to be decided.
    pub fn look_of(&self, place: &Place) -> Option<u64> {
        self.first_look(place).map(|(_, at_us)| at_us)
    }

    fn first_look(&self, place: &Place) -> Option<(Ticket, u64)> {
        let &first = self.queues.get(place)?.first()?;
        Some((first, self.waiters.get(&first)?.look_us.unwrap_or(AT_ONCE)))
    }
}

#[cfg(test)]
mod tests;
