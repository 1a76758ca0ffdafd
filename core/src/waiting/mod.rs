//! Which clients wait for a key, in which order, and when to try them.
//!
//! ```text
//!  key  ->  line    flow a [ first | second | third ... ]    in order of arrival
//!                   flow b [ first ... ]
//!                             |         |
//!  try again at     <---------+         +------> only their deadlines count
//!  deadline         <---------+
//! ```
//!
//! Only the first of a flow is tried: a later one never overtakes it, however small its request.
//! Between flows their turns decide (`turn.rs`), and some may pass others (`line.rs`). One is due
//! when the wait that its last denial announced has passed, and at once when the key changes or
//! when its turn has come.
//!
//! Two ordered sets hold every instant at which something is due. So one timer, set for the
//! earliest, serves all lines, and nothing happens in between. With N waiters an operation
//! takes O(log N), unless it wakes many lines or passes many over.
//!
//! Nothing here decides a request, knows a client or reads a clock: time is an argument, in
//! microseconds of any clock that never steps back.

mod denial;
mod denials;
mod line;
mod present;
mod request;
mod turn;

use crate::rule::Identity;
pub use denial::Denial;
use line::{Line, Step};
pub use request::{Flow, Request, Ticket};
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

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    /// Decide this waiter: it is admitted or leaves, or the caller says why it is denied.
    Try(Ticket),
    /// Read this waiter's rules again, as a policy may have changed.
    Read(Ticket),
    /// A waiter's deadline has come, and it must leave.
    Deadline(Ticket),
}

/// What happens at an instant. At one time all tries come before deadlines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Instant {
    /// The walk of a line goes on.
    Walk(Arc<Place>),
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
    flow: Arc<Flow>,
    deadline_us: u64,
    /// When it may pass, and when to try it again, once it was denied.
    denied: Option<(u64, u64)>,
    bytes: usize,
    value: W,
}

/// All lines.
#[derive(Debug)]
pub struct Queues<W> {
    lines: BTreeMap<Arc<Place>, Line>,
    waiters: BTreeMap<Ticket, Queued<W>>,
    instants: BTreeSet<(u64, Instant)>,
    /// When the waits end of those who were denied.
    ends: BTreeSet<(u64, Ticket)>,
    bytes: usize,
    arrivals: u64,
    /// The latest time that was told: what is due at once is due then, after all that is overdue.
    now_us: u64,
}

impl<W> Queues<W> {
    /// No lines.
    pub const EMPTY: Self = Self {
        lines: BTreeMap::new(),
        waiters: BTreeMap::new(),
        instants: BTreeSet::new(),
        ends: BTreeSet::new(),
        bytes: 0,
        arrivals: 0,
        now_us: 0,
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

    /// When one before a newcomer to a key's line may pass; `None` if the newcomer may be decided
    /// at once, because nobody waits or all before it are passed over.
    pub fn in_front(&self, place: &Place, request: &Request, now_us: u64) -> Option<u64> {
        let line = self.lines.get(place)?;
        let is_open = line.is_open_to_newcomer(request, Ticket(self.arrivals));
        (!is_open || self.is_due(place, now_us)).then(|| self.passes_us(line, &request.flow))
    }

    /// When one before this waiter may pass; `None` if this waiter may be decided.
    pub fn behind(&self, ticket: Ticket) -> Option<u64> {
        let waiter = self.waiters.get(&ticket)?;
        let line = self.lines.get(&waiter.place)?;
        (!line.is_open_to(&waiter.flow, ticket)).then(|| self.passes_us(line, &waiter.flow))
    }

    fn passes_us(&self, line: &Line, flow: &Flow) -> u64 {
        let first = line.in_front_of(flow).and_then(|ticket| self.waiters.get(&ticket));
        first.and_then(|waiter| waiter.denied).map_or(self.now_us, |(pass_us, _)| pass_us)
    }

    /// Whether somebody in line is not tried yet whose wait is over.
    fn is_due(&self, place: &Place, now_us: u64) -> bool {
        let ended = self.ends.range(..=(now_us, Ticket(u64::MAX)));
        let mut waiters = ended.filter_map(|(_, ticket)| self.waiters.get(ticket));
        waiters.any(|waiter| *waiter.place == *place)
    }

    /// Appends a waiter to the line of a key. Unless it is denied afterwards, it is tried at once.
    pub fn join(
        &mut self,
        place: Place,
        request: Request,
        deadline_us: u64,
        bytes: usize,
        value: W,
    ) -> Ticket {
        let ticket = Ticket(self.arrivals);
        self.arrivals = self.arrivals.saturating_add(1);
        let place = match self.lines.get_key_value(&place) {
            Some((place, _)) => Arc::clone(place),
            None => Arc::new(place),
        };
        let line = self.lines.entry(Arc::clone(&place)).or_insert(Line::EMPTY);
        let flow = line.join(ticket, request);
        self.instants.insert((deadline_us, Instant::Deadline(ticket)));
        self.bytes = self.bytes.saturating_add(bytes);
        self.walk(&place);
        let denied = None;
        self.waiters.insert(ticket, Queued { place, flow, deadline_us, denied, bytes, value });
        ticket
    }

    /// Removes a waiter, wherever in its line it is.
    pub fn leave(&mut self, ticket: Ticket) -> Option<W> {
        self.remove(ticket, None)
    }

    /// Removes a waiter that is admitted at this cost.
    pub fn admit(&mut self, ticket: Ticket, cost: u32) -> Option<W> {
        self.remove(ticket, Some(cost))
    }

    fn remove(&mut self, ticket: Ticket, admitted: Option<u32>) -> Option<W> {
        let waiter = self.waiters.remove(&ticket)?;
        self.bytes = self.bytes.saturating_sub(waiter.bytes);
        self.instants.remove(&(waiter.deadline_us, Instant::Deadline(ticket)));
        if let Some((_, again_us)) = waiter.denied {
            self.ends.remove(&(again_us, ticket));
        }
        if let Some(line) = self.lines.get_mut(&waiter.place) {
            line.leave(&waiter.flow, ticket, admitted);
            if line.is_empty() {
                let walk_us = line.walk_us;
                self.lines.remove(&waiter.place);
                if let Some(at_us) = walk_us {
                    self.instants.remove(&(at_us, Instant::Walk(waiter.place)));
                }
            } else {
                self.walk(&waiter.place);
            }
        }
        Some(waiter.value)
    }

    /// A waiter is denied. Only the first of its flow is tried again.
    pub fn deny(&mut self, ticket: Ticket, denial: Denial, now_us: u64) {
        let Some(waiter) = self.waiters.get_mut(&ticket) else { return };
        let Some(line) = self.lines.get_mut(&waiter.place) else { return };
        self.now_us = now_us.max(self.now_us);
        if !line.deny(&waiter.flow, ticket, denial.by, now_us) {
            return;
        }
        let after = |ms: u64| now_us.saturating_add(ms.saturating_mul(1_000));
        let again_us = after(denial.again_ms);
        if let Some((_, before)) = waiter.denied.replace((after(denial.wait_ms), again_us)) {
            self.ends.remove(&(before, ticket));
        }
        self.ends.insert((again_us, ticket));
    }

    /// The key of this name changed in any database, so those in line for it may pass.
    pub fn key_changed(&mut self, key: &[u8]) {
        let from = Place { key: key.into(), db: i32::MIN };
        let of_key = self.lines.range_mut(from..).take_while(|(place, _)| *place.key == *key);
        for (place, line) in of_key {
            line.key_changed();
            plan_walk(&mut self.instants, place, line, self.now_us);
        }
    }

    /// Any key or policy may have changed, so all in line may pass, by rules that are read again.
    pub fn everything_changed(&mut self) {
        for (place, line) in &mut self.lines {
            line.rules_changed();
            plan_walk(&mut self.instants, place, line, self.now_us);
        }
    }

    /// The rules of a waiter as they are now.
    pub fn read(&mut self, ticket: Ticket, rules: Box<[Identity]>) {
        let Some(waiter) = self.waiters.get(&ticket) else { return };
        let Some(line) = self.lines.get_mut(&waiter.place) else { return };
        line.read(&waiter.flow, ticket, rules);
    }

    /// Lets the walk of a line go on, unless it has ended.
    fn walk(&mut self, place: &Arc<Place>) {
        if let Some(line) = self.lines.get_mut(place).filter(|line| line.is_walking()) {
            plan_walk(&mut self.instants, place, line, self.now_us);
        }
    }

    /// When something is due next.
    pub fn next_us(&self) -> Option<u64> {
        let instant_us = self.instants.first().map(|&(at_us, _)| at_us);
        let end_us = self.ends.first().map(|&(at_us, _)| at_us);
        instant_us.into_iter().chain(end_us).min()
    }

    /// The earliest thing that is due by `now_us`. A try is due once; a deadline stays until the
    /// waiter leaves.
    pub fn due(&mut self, now_us: u64) -> Option<Due> {
        self.now_us = now_us.max(self.now_us);
        while let Some(&(at_us, ticket)) = self.ends.first().filter(|&&(at_us, _)| at_us <= now_us)
        {
            self.ends.remove(&(at_us, ticket));
            self.wait_ended(ticket, at_us);
        }
        loop {
            match self.instants.first()? {
                (at_us, _) if *at_us > now_us => return None,
                &(_, Instant::Deadline(ticket)) => return Some(Due::Deadline(ticket)),
                &(at_us, Instant::Walk(ref place)) => {
                    let place = Arc::clone(place);
                    self.instants.pop_first();
                    if let Some(due) = self.step(&place, at_us, now_us) {
                        return Some(due);
                    }
                }
            }
        }
    }

    /// Takes the next step of a walk.
    fn step(&mut self, place: &Arc<Place>, at_us: u64, now_us: u64) -> Option<Due> {
        let line = self.lines.get_mut(place)?;
        line.walk_us = None;
        let (due, next_us) = match line.step(now_us) {
            Step::End => return None,
            Step::Rest(until_us) => (None, until_us),
            Step::Try(ticket) => (Some(Due::Try(ticket)), at_us),
            Step::Read(ticket) => (Some(Due::Read(ticket)), at_us),
        };
        plan_walk(&mut self.instants, place, line, next_us);
        due
    }

    /// The wait of the first of a flow is over.
    fn wait_ended(&mut self, ticket: Ticket, at_us: u64) {
        let Some(waiter) = self.waiters.get_mut(&ticket) else { return };
        waiter.denied = None;
        if let Some(line) = self.lines.get_mut(&waiter.place) {
            line.wait_ended(&waiter.flow, ticket);
            plan_walk(&mut self.instants, &waiter.place, line, at_us);
        }
    }

    /// The value that a waiter joined with.
    pub fn waiter(&self, ticket: Ticket) -> Option<&W> {
        self.waiters.get(&ticket).map(|waiter| &waiter.value)
    }
}

/// Lets the walk of a line go on at this time, unless it is planned.
fn plan_walk(
    instants: &mut BTreeSet<(u64, Instant)>,
    place: &Arc<Place>,
    line: &mut Line,
    at_us: u64,
) {
    if line.walk_us.is_none() {
        line.walk_us = Some(at_us);
        instants.insert((at_us, Instant::Walk(Arc::clone(place))));
    }
}

#[cfg(test)]
mod tests;
