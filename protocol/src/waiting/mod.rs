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
//! Only the head of a flow is tried: a later client of the flow never overtakes it, however small its
//! request. Between flows, turns decide (`flows.rs`), and some heads may pass others (`line.rs`). A head
//! is due when the wait that its last denial announced is over, when something happens to its key that
//! may let it pass (`Cause`), and when it becomes the head of its flow. When the key's plan ends, other
//! rules may decide: the rules of all clients are read again, and all heads are due.
//!
//! One ordered set holds every instant at which something is due. So one timer, set for the
//! earliest, serves all lines, and nothing happens in between. Lines take turns, head by head, and a
//! deadline that has passed comes before a try that became due after it. However much is due, each
//! call takes a bounded time.
//!
//! Nothing here decides a request, knows a client or reads a clock: time is an argument, in
//! microseconds of any clock that never steps back.
//!
//! ```text
//! request  what a client asks of a line and its rules, what changed a key, and why a request is denied
//! denials  what denies heads, until when, and which later heads a denial keeps back
//! flows    the flows of a line, and the order of their heads
//! line     the clients that wait for one key, and which heads to try
//! ```

mod denials;
mod flows;
mod line;
mod request;

pub use line::Due;
use line::Line;
pub use request::{Cause, Denial, Flow, HoldId, PlanEnd, Request, Rules, Ticket};
use request::{Client, SharedRules};
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

/// How many lines one call of `Queues::wake` catches up after everything has changed.
const MOST_RENEWED: usize = 4;
/// How many steps without a result one call takes before it returns to its caller.
const MOST_STEPS: usize = 4;

/// What happens at an instant. Steps come before deadlines at the same time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Instant {
    /// The next step of a line.
    Step(Arc<Place>),
    Deadline(Ticket),
}

/// How many waiters fit, and how large they may be together.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// How many waiters all keys together may have.
    pub waiters: usize,
    /// How many flows a line may have.
    pub flows: usize,
    /// How many bytes the arguments and the rules of all waiters may take.
    pub bytes: usize,
}

#[derive(Debug)]
struct Queued<W> {
    place: Arc<Place>,
    flow: Arc<Flow>,
    deadline_us: u64,
    bytes: usize,
    value: W,
}

/// All lines.
#[derive(Debug)]
pub struct Queues<W> {
    lines: BTreeMap<Arc<Place>, Line>,
    waiters: BTreeMap<Ticket, Queued<W>>,
    instants: BTreeSet<(u64, Instant)>,
    rules: SharedRules,
    /// How many bytes the arguments of all waiters take.
    bytes: usize,
    arrivals: u64,
    /// How often [`Queues::everything_changed`] was called.
    generation: u64,
    /// With how many of these calls the lines have to catch up.
    seen: u64,
    /// Lines from this place on may still have to catch up with the last `everything_changed`.
    stale_from: Option<Arc<Place>>,
    /// The latest time that a caller gave. A wake is planned for this time.
    now_us: u64,
}

impl<W> Queues<W> {
    /// No lines.
    pub const EMPTY: Self = Self {
        lines: BTreeMap::new(),
        waiters: BTreeMap::new(),
        instants: BTreeSet::new(),
        rules: SharedRules::NONE,
        bytes: 0,
        arrivals: 0,
        generation: 0,
        seen: 0,
        stale_from: None,
        now_us: 0,
    };

    /// How many clients wait.
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// How many bytes the arguments and the rules of all waiters take. Equal rules count once.
    pub fn bytes(&self) -> usize {
        self.bytes.saturating_add(self.rules.bytes())
    }

    /// Whether another waiter fits, whose arguments take this many bytes.
    pub fn has_room(&self, room: Room, place: &Place, request: &Request, bytes: usize) -> bool {
        let Request { flow, rules, .. } = request;
        let bytes = self.bytes().saturating_add(bytes).saturating_add(self.rules.bytes_of(rules));
        let has_flow = self.lines.get(place).is_none_or(|line| line.has_room(flow, room.flows));
        self.waiting() < room.waiters && bytes <= room.bytes && has_flow
    }

    /// `None` if a newcomer may be decided at once, otherwise the time at which a client in front of it
    /// may pass.
    pub fn in_front(&mut self, place: &Place, request: &Request, now_us: u64) -> Option<u64> {
        self.wake(now_us);
        self.catch_up(place);
        let Request { flow, weight, rules, .. } = request;
        let (line, newcomer) = (self.lines.get(place)?, Ticket(self.arrivals));
        let is_open = line.is_open_to_newcomer(flow, *weight, rules, newcomer);
        (!is_open).then(|| line.front_passes_us(flow, self.now_us))
    }

    /// `None` if this waiter may be decided, otherwise the time at which a client in front of it may
    /// pass.
    pub fn behind(&mut self, ticket: Ticket) -> Option<u64> {
        let place = Arc::clone(&self.waiters.get(&ticket)?.place);
        self.catch_up(&place);
        let waiter = self.waiters.get(&ticket)?;
        let line = self.lines.get(&waiter.place)?;
        let is_open = line.is_open_to(&waiter.flow, ticket);
        (!is_open).then(|| line.front_passes_us(&waiter.flow, self.now_us))
    }

    /// Appends a waiter to the line of a key. The head of a flow is tried at once, unless the caller
    /// denies it first.
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
        self.catch_up(&place);
        let Request { flow, weight, rules, plan_end, hold } = request;
        let waiter = Client { rules: self.rules.share(rules), generation: 0, hold };
        let new = || Line::new(self.seen);
        let line = self.lines.entry(Arc::clone(&place)).or_insert_with(new);
        let flow = line.join(ticket, flow, weight, waiter, plan_end);
        self.instants.insert((deadline_us, Instant::Deadline(ticket)));
        self.bytes = self.bytes.saturating_add(bytes);
        plan(&mut self.instants, &place, line, self.now_us);
        self.waiters.insert(ticket, Queued { place, flow, deadline_us, bytes, value });
        ticket
    }

    /// Removes a waiter from any place in its line. `admitted` is its cost if it is admitted.
    pub fn leave(&mut self, ticket: Ticket, admitted: Option<u32>) -> Option<W> {
        let waiter = self.waiters.remove(&ticket)?;
        self.bytes = self.bytes.saturating_sub(waiter.bytes);
        self.instants.remove(&(waiter.deadline_us, Instant::Deadline(ticket)));
        if let Some(line) = self.lines.get_mut(&waiter.place) {
            let rules = line.leave(&waiter.flow, ticket, admitted);
            if line.is_empty() {
                unplan(&mut self.instants, &waiter.place, line);
                self.lines.remove(&waiter.place);
            } else {
                plan(&mut self.instants, &waiter.place, line, self.now_us);
            }
            if let Some(rules) = rules {
                self.rules.unshare(&rules);
            }
        }
        Some(waiter.value)
    }

    /// Notes that a waiter is denied. Only the head of a flow is tried again.
    #[expect(clippy::needless_pass_by_value, reason = "a denial is used once")]
    pub fn deny(&mut self, ticket: Ticket, denial: Denial, now_us: u64) {
        let Some(waiter) = self.waiters.get(&ticket) else { return };
        let Some(line) = self.lines.get_mut(&waiter.place) else { return };
        self.now_us = now_us.max(self.now_us);
        let [pass_us, again_us] = [denial.wait_ms, denial.again_ms]
            .map(|ms| now_us.saturating_add(ms.saturating_mul(1_000)));
        line.deny(&waiter.flow, ticket, &denial.by, (pass_us, again_us));
        plan(&mut self.instants, &waiter.place, line, self.now_us);
    }

    /// Notes that the key of a waiter cannot be changed for `ms` milliseconds. The waiter stays until
    /// then, even if its deadline has passed, and as in a pause, no head may pass it.
    pub fn put_off(&mut self, ticket: Ticket, ms: u64, now_us: u64) {
        let Some(waiter) = self.waiters.get_mut(&ticket) else { return };
        let until_us = now_us.saturating_add(ms.saturating_mul(1_000));
        if waiter.deadline_us < until_us {
            self.instants.remove(&(waiter.deadline_us, Instant::Deadline(ticket)));
            self.instants.insert((until_us, Instant::Deadline(ticket)));
            waiter.deadline_us = until_us;
        }
        self.deny(ticket, Denial { wait_ms: ms, again_ms: ms, by: Box::default() }, now_us);
    }

    /// Notes that the key of this name changed, in any database.
    pub fn key_changed(&mut self, key: &[u8], cause: Cause<'_>) {
        let from = Place { key: key.into(), db: i32::MIN };
        let of_key = self.lines.range_mut(from..).take_while(|(place, _)| *place.key == *key);
        for (place, line) in of_key {
            line.change(cause);
            plan(&mut self.instants, place, line, self.now_us);
        }
    }

    /// Notes that any key or policy may have changed: all rules are read again, and all heads may pass.
    pub fn everything_changed(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// Notes the time, and wakes the heads of some lines after a change of everything.
    fn wake(&mut self, now_us: u64) {
        self.now_us = now_us.max(self.now_us);
        if self.seen != self.generation {
            self.seen = self.generation;
            self.stale_from = self.lines.keys().next().cloned();
        }
        let Some(from) = self.stale_from.take() else { return };
        let mut stale = self.lines.range_mut(from..);
        for (place, line) in stale.by_ref().take(MOST_RENEWED) {
            line.catch_up(self.seen, self.now_us);
            plan(&mut self.instants, place, line, self.now_us);
        }
        self.stale_from = stale.next().map(|(place, _)| Arc::clone(place));
    }

    /// Wakes the heads of a line that may pass because time has passed or everything has changed.
    fn catch_up(&mut self, place: &Place) {
        let of_place = self.lines.range_mut::<Place, _>(place..=place).next();
        if let Some((place, line)) = of_place {
            line.catch_up(self.seen, self.now_us);
            plan(&mut self.instants, place, line, self.now_us);
        }
    }

    /// Replaces the rules of a waiter by those that it has now. They may change when `plan_end` is
    /// reached; it is `None` if they do not depend on the key's plan.
    pub fn read(&mut self, ticket: Ticket, rules: Rules, plan_end: Option<PlanEnd>) {
        let rules = self.rules.share(rules);
        let waiter = self.waiters.get(&ticket);
        let line = waiter.and_then(|waiter| Some((self.lines.get_mut(&waiter.place)?, waiter)));
        let unused = match line {
            Some((line, waiter)) => line.read(&waiter.flow, ticket, rules, plan_end),
            None => rules,
        };
        self.rules.unshare(&unused);
    }

    /// When something is due next.
    pub fn next_us(&self) -> Option<u64> {
        let is_stale = self.seen != self.generation && !self.lines.is_empty();
        if is_stale || self.stale_from.is_some() {
            return Some(self.now_us);
        }
        self.instants.first().map(|&(at_us, _)| at_us)
    }

    /// The earliest thing that is due by `now_us`. A try is due once; a deadline stays until the
    /// waiter leaves.
    pub fn due(&mut self, now_us: u64) -> Option<Due> {
        self.wake(now_us);
        for _ in 0..MOST_STEPS {
            match self.instants.first().filter(|(at_us, _)| *at_us <= now_us) {
                None => return self.stale_from.is_some().then_some(Due::More),
                Some(&(_, Instant::Deadline(ticket))) => return Some(Due::Deadline(ticket)),
                Some((_, Instant::Step(place))) => {
                    let place = Arc::clone(place);
                    let due = self.step(&place);
                    if due.is_some() {
                        return due;
                    }
                }
            }
        }
        Some(Due::More)
    }

    /// Takes the next step of a line. If the step gives something to do, plans the next step of the line
    /// for the present time, so that other lines come first.
    fn step(&mut self, place: &Arc<Place>) -> Option<Due> {
        let line = self.lines.get_mut(place)?;
        line.catch_up(self.seen, self.now_us);
        let due = line.step().filter(|due| *due != Due::More);
        if due.is_some() {
            unplan(&mut self.instants, place, line);
        }
        plan(&mut self.instants, place, line, self.now_us);
        due
    }

    /// The value that a waiter joined with.
    pub fn waiter(&self, ticket: Ticket) -> Option<&W> {
        self.waiters.get(&ticket).map(|waiter| &waiter.value)
    }
}

/// Plans the next step of a line, if it has one.
fn plan(instants: &mut BTreeSet<(u64, Instant)>, place: &Arc<Place>, line: &mut Line, now_us: u64) {
    let next_us = line.next_us(now_us);
    if next_us != line.planned_us {
        unplan(instants, place, line);
        instants.extend(next_us.map(|at_us| (at_us, Instant::Step(Arc::clone(place)))));
        line.planned_us = next_us;
    }
}

fn unplan(instants: &mut BTreeSet<(u64, Instant)>, place: &Arc<Place>, line: &mut Line) {
    if let Some(at_us) = line.planned_us.take() {
        instants.remove(&(at_us, Instant::Step(Arc::clone(place))));
    }
}

#[cfg(test)]
mod tests;
