//! Which clients wait for a key, in which order, and when to try them.
//!
//! ```text
//!  key  ->  line    flow a [ head | second | third ... ]    in order of arrival
//!                   flow b [ head ... ]
//!                             |         |
//!  try again at     <---------+         +------> only their deadlines count
//!  deadline         <---------+
//! ```
//!
//! Only the head of a flow is tried: a later client never overtakes it, however small its request.
//! Between flows their turns decide (`turn.rs`), and some may pass others (`line.rs`). A head is due
//! when the wait that its last denial announced is over, when something happens to its key that may
//! let it pass (`cause.rs`), and when it becomes the head of its flow.
//!
//! Two ordered sets hold every instant at which something is due. So one timer, set for the
//! earliest, serves all lines, and nothing happens in between. Lines take turns, try by try, and a
//! deadline that has passed comes before a try that became due after it.
//!
//! Nothing here decides a request, knows a client or reads a clock: time is an argument, in
//! microseconds of any clock that never steps back.
//!
//! ```text
//! request        what a client asks of a line
//! rules          its rules, as far as a line needs them
//! cause          what changed a key
//! denial         why a request is denied
//! denials        which rules deny heads, and whom that keeps back
//! heads_by_rule  how many heads a rule has
//! known          what tries have shown about rules
//! turn           the order of flows
//! present        where a flow that comes begins
//! line           the clients that wait for one key
//! ```

mod cause;
mod denial;
mod denials;
mod heads_by_rule;
mod known;
mod line;
mod present;
mod request;
mod rules;
mod turn;

pub use cause::Cause;
pub use denial::Denial;
use line::{Line, Step};
use request::Waiter;
pub use request::{Flow, HoldId, Request, Ticket};
pub use rules::Rules;
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

/// How many lines are told of a change of everything before the next try.
const MOST_RENEWED: usize = 16;

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

/// What happens at an instant. At one time tries come before deadlines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Instant {
    /// The next try of a line.
    Try(Arc<Place>),
    Deadline(Ticket),
}

/// How many waiters fit, and how large they may be together.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// The most waiters of all keys together.
    pub waiters: usize,
    /// The most flows of a line.
    pub flows: usize,
    /// The most bytes that the arguments and the rules of all waiters may take.
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
    /// When the waits end of the heads that were denied.
    ends: BTreeSet<(u64, Ticket)>,
    rules: BTreeSet<Arc<Rules>>,
    bytes: usize,
    arrivals: u64,
    /// Counts changes of everything, and how many of them the lines have seen.
    generation: u64,
    seen: u64,
    /// The lines that may not have seen the last one.
    stale: Vec<Arc<Place>>,
    /// The latest time that a caller gave. A wake is planned for this time.
    now_us: u64,
}

impl<W> Queues<W> {
    /// No lines.
    pub const EMPTY: Self = Self {
        lines: BTreeMap::new(),
        waiters: BTreeMap::new(),
        instants: BTreeSet::new(),
        ends: BTreeSet::new(),
        rules: BTreeSet::new(),
        bytes: 0,
        arrivals: 0,
        generation: 0,
        seen: 0,
        stale: Vec::new(),
        now_us: 0,
    };

    /// How many clients wait.
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// How many bytes the arguments and the rules of all waiters take. Equal rules count once.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether another waiter fits, whose arguments take this many bytes.
    pub fn has_room(&self, room: Room, place: &Place, request: &Request, bytes: usize) -> bool {
        let Request { flow, rules, .. } = request;
        let rules = if self.rules.contains(rules) { 0 } else { rules.bytes() };
        let has_flow = self.lines.get(place).is_none_or(|line| line.has_room(flow, room.flows));
        self.waiting() < room.waiters
            && self.bytes.saturating_add(bytes).saturating_add(rules) <= room.bytes
            && has_flow
    }

    /// `None` if a newcomer may be decided at once. Otherwise a client in front of it may pass at
    /// this time.
    pub fn in_front(&mut self, place: &Place, request: &Request, now_us: u64) -> Option<u64> {
        self.wake(now_us);
        self.renew(place);
        let Request { flow, weight, rules, .. } = request;
        let (line, newcomer) = (self.lines.get(place)?, Ticket(self.arrivals));
        let is_open = line.is_open_to_newcomer(flow, *weight, rules, newcomer);
        (!is_open).then(|| self.passes_us(line, flow))
    }

    /// `None` if this waiter may be decided. Otherwise a client in front of it may pass at this time.
    pub fn behind(&mut self, ticket: Ticket) -> Option<u64> {
        let place = Arc::clone(&self.waiters.get(&ticket)?.place);
        self.renew(&place);
        let waiter = self.waiters.get(&ticket)?;
        let line = self.lines.get(&waiter.place)?;
        (!line.is_open_to(&waiter.flow, ticket)).then(|| self.passes_us(line, &waiter.flow))
    }

    fn passes_us(&self, line: &Line, flow: &Flow) -> u64 {
        let first = line.in_front_of(flow).and_then(|ticket| self.waiters.get(&ticket));
        first.and_then(|waiter| waiter.denied).map_or(self.now_us, |(pass_us, _)| pass_us)
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
        self.renew(&place);
        let Request { flow, weight, rules, cost, hold } = request;
        let (rules, generation) = (self.share(rules), self.seen);
        let waiter = Waiter { rules, generation, cost, hold };
        let new = || Line::new(self.seen);
        let line = self.lines.entry(Arc::clone(&place)).or_insert_with(new);
        let flow = line.join(ticket, flow, weight, waiter);
        self.instants.insert((deadline_us, Instant::Deadline(ticket)));
        self.bytes = self.bytes.saturating_add(bytes);
        plan(&mut self.instants, &place, line, self.now_us);
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
            let rules = line.leave(&waiter.flow, ticket, admitted);
            if line.is_empty() {
                let planned_us = line.planned_us;
                self.lines.remove(&waiter.place);
                if let Some(at_us) = planned_us {
                    self.instants.remove(&(at_us, Instant::Try(waiter.place)));
                }
            } else if line.has_due() {
                plan(&mut self.instants, &waiter.place, line, self.now_us);
            }
            rules.into_iter().for_each(|rules| self.unshare(&rules));
        }
        Some(waiter.value)
    }

    /// The rules of all waiters that have equal ones.
    fn share(&mut self, rules: Rules) -> Arc<Rules> {
        if let Some(shared) = self.rules.get(&rules) {
            return Arc::clone(shared);
        }
        self.bytes = self.bytes.saturating_add(rules.bytes());
        let rules = Arc::new(rules);
        self.rules.insert(Arc::clone(&rules));
        rules
    }

    /// Drops rules that only the caller still has.
    fn unshare(&mut self, rules: &Arc<Rules>) {
        if Arc::strong_count(rules) == 2 && self.rules.remove(rules) {
            self.bytes = self.bytes.saturating_sub(rules.bytes());
        }
    }

    /// A waiter is denied. Only the head of a flow is tried again.
    pub fn deny(&mut self, ticket: Ticket, denial: Denial, now_us: u64) {
        let Some(waiter) = self.waiters.get_mut(&ticket) else { return };
        let Some(line) = self.lines.get_mut(&waiter.place) else { return };
        self.now_us = now_us.max(self.now_us);
        let after = |ms: u64| now_us.saturating_add(ms.saturating_mul(1_000));
        let (pass_us, again_us) = (after(denial.wait_ms), after(denial.again_ms));
        if line.deny(&waiter.flow, ticket, &denial.by, again_us, now_us) {
            waiter.denied_until(pass_us, again_us, ticket, &mut self.ends);
        }
    }

    /// The key of this name changed in any database.
    pub fn key_changed(&mut self, key: &[u8], cause: Cause<'_>) {
        let from = Place { key: key.into(), db: i32::MIN };
        let of_key = self.lines.range_mut(from..).take_while(|(place, _)| *place.key == *key);
        for (place, line) in of_key {
            if line.change(cause) {
                plan(&mut self.instants, place, line, self.now_us);
            }
        }
    }

    /// Any key or policy may have changed, so all heads may pass, by rules that are read again.
    pub fn everything_changed(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// Wakes the heads whose waits are over, and those of some lines after a change of everything.
    fn wake(&mut self, now_us: u64) {
        self.now_us = now_us.max(self.now_us);
        if self.seen != self.generation {
            self.seen = self.generation;
            self.stale = self.lines.keys().cloned().collect();
        }
        let mut renewed = 0_usize;
        while renewed < MOST_RENEWED
            && let Some(place) = self.stale.pop()
        {
            renewed = renewed.saturating_add(usize::from(self.renew(&place)));
        }
        while let Some(&(at_us, ticket)) = self.ends.first().filter(|&&(at_us, _)| at_us <= now_us)
        {
            self.ends.remove(&(at_us, ticket));
            let Some(waiter) = self.waiters.get_mut(&ticket) else { continue };
            waiter.denied = None;
            if let Some(line) = self.lines.get_mut(&waiter.place) {
                line.wait_ended(&waiter.flow, ticket);
                plan(&mut self.instants, &waiter.place, line, at_us);
            }
        }
    }

    /// Wakes all heads of a line that has not seen the last change of everything. Returns whether.
    fn renew(&mut self, place: &Place) -> bool {
        let of_place = self.lines.range_mut::<Place, _>(place..=place).next();
        let Some((place, line)) = of_place else { return false };
        let is_new = line.begin_generation(self.seen);
        if is_new {
            plan(&mut self.instants, place, line, self.now_us);
        }
        is_new
    }

    /// The rules of a waiter as they are now.
    pub fn read(&mut self, ticket: Ticket, rules: Rules) {
        let rules = self.share(rules);
        let waiter = self.waiters.get(&ticket);
        let line = waiter.and_then(|waiter| Some((self.lines.get_mut(&waiter.place)?, waiter)));
        let unused = match line {
            Some((line, waiter)) => line.read(&waiter.flow, ticket, rules),
            None => rules,
        };
        self.unshare(&unused);
    }

    /// When something is due next.
    pub fn next_us(&self) -> Option<u64> {
        let is_stale = self.seen != self.generation && !self.lines.is_empty();
        if is_stale || !self.stale.is_empty() {
            return Some(self.now_us);
        }
        let instant_us = self.instants.first().map(|&(at_us, _)| at_us);
        let end_us = self.ends.first().map(|&(at_us, _)| at_us);
        instant_us.into_iter().chain(end_us).min()
    }

    /// The earliest thing that is due by `now_us`. A try is due once; a deadline stays until the
    /// waiter leaves.
    pub fn due(&mut self, now_us: u64) -> Option<Due> {
        self.wake(now_us);
        loop {
            match self.instants.first()? {
                (at_us, _) if *at_us > now_us => return None,
                &(_, Instant::Deadline(ticket)) => return Some(Due::Deadline(ticket)),
                (_, Instant::Try(place)) => {
                    let place = Arc::clone(place);
                    self.instants.pop_first();
                    if let Some(due) = self.step(&place) {
                        return Some(due);
                    }
                }
            }
        }
    }

    /// The next try of a line. The one after it is due now, so other lines come before it.
    fn step(&mut self, place: &Arc<Place>) -> Option<Due> {
        let line = self.lines.get_mut(place)?;
        line.begin_generation(self.seen);
        line.planned_us = None;
        let due = loop {
            match line.step(self.now_us) {
                Step::Try(ticket) => break Due::Try(ticket),
                Step::Read(ticket) => break Due::Read(ticket),
                Step::Stands(ticket, until_us) => {
                    if let Some(waiter) = self.waiters.get_mut(&ticket) {
                        let (pass_us, _) = waiter.denied.unwrap_or_default();
                        let pass_us = pass_us.max(until_us);
                        waiter.denied_until(pass_us, until_us, ticket, &mut self.ends);
                    }
                }
                Step::End => return None,
            }
        };
        plan(&mut self.instants, place, line, self.now_us);
        Some(due)
    }

    /// The value that a waiter joined with.
    pub fn waiter(&self, ticket: Ticket) -> Option<&W> {
        self.waiters.get(&ticket).map(|waiter| &waiter.value)
    }
}

impl<W> Queued<W> {
    /// Tries it again then.
    fn denied_until(
        &mut self,
        pass_us: u64,
        again_us: u64,
        ticket: Ticket,
        ends: &mut BTreeSet<(u64, Ticket)>,
    ) {
        if let Some((_, before_us)) = self.denied.replace((pass_us, again_us)) {
            ends.remove(&(before_us, ticket));
        }
        ends.insert((again_us, ticket));
    }
}

/// Plans the next try of a line for this time, unless it is planned.
fn plan(instants: &mut BTreeSet<(u64, Instant)>, place: &Arc<Place>, line: &mut Line, at_us: u64) {
    if line.planned_us.is_none() {
        line.planned_us = Some(at_us);
        instants.insert((at_us, Instant::Try(Arc::clone(place))));
    }
}

#[cfg(test)]
mod tests;
