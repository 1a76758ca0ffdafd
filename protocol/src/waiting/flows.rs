//! The flows of a line, their clients, and in which order the flows are served: start-time fair queueing.
//!
//! Each flow has a start: its admitted units, divided by its weight. Among the flows of one priority,
//! the flow with the least start is served next, and its start grows by `cost / weight`. So while two
//! flows have clients in line, their values of `units / weight` differ by at most the sum of their
//! values of `largest cost / weight`.
//!
//! Source: Goyal, Vin, Cheng, *Start-Time Fair Queueing*, SIGCOMM 1996.

use super::request::{Client, Flow, Ticket, hash_of};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Units divided by weight, as a multiple of 2^-64, rounded up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Start(u128);

impl Start {
    /// The start after a request of this cost. A request of cost 0 counts as one unit; otherwise its
    /// flow would always be next.
    pub fn after(self, cost: u32, weight: u16) -> Self {
        let units = u128::from(cost.max(1)) << 64;
        Self(self.0.saturating_add(units.div_ceil(u128::from(weight.max(1)))))
    }

    /// The value to compare, a multiple of 2^-20. Each request may round a start up by 2^-64, so starts
    /// that should be equal can differ slightly, and must compare as equal.
    const fn rounded(self) -> u128 {
        self.0 >> 44
    }
}

/// The place of a head in the order of service: by priority, highest first, then by start, then by
/// arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    pub priority: Reverse<u8>,
    start: u128,
    pub ticket: Ticket,
}

impl Turn {
    /// Before all turns.
    pub const FIRST: Self = Self { priority: Reverse(u8::MAX), start: 0, ticket: Ticket(0) };
    /// After all turns.
    pub const END: Self = Self { priority: Reverse(0), start: u128::MAX, ticket: Ticket(u64::MAX) };

    pub const fn new(priority: u8, start: Start, ticket: Ticket) -> Self {
        Self { priority: Reverse(priority), start: start.rounded(), ticket }
    }

    /// The turn right after this one.
    pub const fn next(self) -> Self {
        Self { ticket: Ticket(self.ticket.0.saturating_add(1)), ..self }
    }
}

/// How many flows that have left are remembered.
const REMEMBERED: usize = 128;

/// The virtual time of a priority, and the flows that left with a later start.
#[derive(Debug, Default)]
pub struct Present {
    /// The virtual time: the latest start of a flow that was served.
    pub start: Start,
    /// Flows that left with a later start: their hashes and starts.
    left: Vec<(u64, Start)>,
    /// The latest start of a flow that had to be forgotten.
    forgotten: Start,
}

impl Present {
    /// The start of a flow that joins the line, if `next` is the start of the next flow in line. A
    /// flow that returns keeps its start. Otherwise clients that leave and return after each answer
    /// would starve those that stay. Forgotten flows are not recognised, so any unknown flow may
    /// begin one unit late.
    pub fn start_of(&self, flow: &Flow, weight: u16, next: Start) -> Start {
        let present = self.start.max(next);
        let hash = hash_of(flow);
        let own = self.left.iter().find(|&&(of, _)| of == hash);
        let guess = || self.forgotten.min(present.after(1, weight));
        own.map_or_else(guess, |&(_, start)| start).max(present)
    }

    /// Notes that a flow with this start is served. Returns the value from which its start grows.
    pub fn serve(&mut self, start: Start) -> Start {
        self.start = self.start.max(start);
        self.start
    }

    /// Notes that a flow has left.
    pub fn leave(&mut self, flow: &Flow, start: Start) {
        let (present, hash) = (self.start, hash_of(flow));
        self.left.retain(|&(of, start)| of != hash && start > present);
        if start > present {
            self.left.push((hash, start));
        }
        if self.left.len() > REMEMBERED {
            let least = self.left.iter().enumerate().min_by_key(|(_, (_, start))| *start);
            if let Some(index) = least.map(|(index, _)| index) {
                self.forgotten = self.left.swap_remove(index).1.max(self.forgotten);
            }
        }
    }
}

#[derive(Debug)]
struct Clients {
    start: Start,
    weight: u16,
    waiters: BTreeMap<Ticket, Client>,
}

#[derive(Debug, Default)]
pub struct Flows {
    flows: BTreeMap<Arc<Flow>, Clients>,
    /// The flow of each head.
    heads: BTreeMap<Turn, Arc<Flow>>,
    /// The virtual time of each priority in line.
    presents: BTreeMap<u8, Present>,
}

impl Flows {
    /// How many flows there are, each with one head.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    pub fn contains(&self, flow: &Flow) -> bool {
        self.flows.contains_key(flow)
    }

    /// The turns of all heads, in their order.
    pub fn heads(&self) -> impl Iterator<Item = Turn> {
        self.heads.keys().copied()
    }

    /// The turn of the head of a flow.
    pub fn head_of(&self, flow: &Flow) -> Option<Turn> {
        let clients = self.flows.get(flow)?;
        let (&ticket, _) = clients.waiters.first_key_value()?;
        Some(Turn::new(flow.priority, clients.start, ticket))
    }

    /// The turn of a client that is the head of its flow.
    pub fn turn_of(&self, flow: &Flow, ticket: Ticket) -> Option<Turn> {
        self.head_of(flow).filter(|turn| turn.ticket == ticket)
    }

    /// The turn of a client that begins a flow.
    pub fn turn_of_newcomer(&self, flow: &Flow, weight: u16, ticket: Ticket) -> Turn {
        Turn::new(flow.priority, self.start_of_newcomer(flow, weight), ticket)
    }

    /// The head with this turn.
    pub fn head(&self, turn: Turn) -> Option<&Client> {
        self.flows.get(self.heads.get(&turn)?)?.waiters.get(&turn.ticket)
    }

    /// A client of a flow.
    pub fn waiter_mut(&mut self, flow: &Flow, ticket: Ticket) -> Option<&mut Client> {
        self.flows.get_mut(flow)?.waiters.get_mut(&ticket)
    }

    /// Appends a client to its flow. Returns the flow, and the client's turn if it is the head.
    pub fn join(
        &mut self,
        ticket: Ticket,
        flow: Flow,
        weight: u16,
        waiter: Client,
    ) -> (Arc<Flow>, Option<Turn>) {
        let (flow, start) = match self.flows.get_key_value(&flow) {
            Some((flow, clients)) => (Arc::clone(flow), clients.start),
            None => {
                let start = self.start_of_newcomer(&flow, weight);
                (Arc::new(flow), start)
            }
        };
        let new = || Clients { start, weight, waiters: BTreeMap::new() };
        let clients = self.flows.entry(Arc::clone(&flow)).or_insert_with(new);
        clients.weight = weight;
        clients.waiters.insert(ticket, waiter);
        let is_head = clients.waiters.len() == 1;
        let turn = is_head.then(|| self.enter(&flow)).flatten();
        (flow, turn)
    }

    /// Removes a client. `admitted` is the client's cost if it is admitted. If such a client was a head,
    /// the start of its flow grows by `cost / weight`. Returns the client, and the turn of the flow's
    /// next head if the client was the head.
    pub fn leave(
        &mut self,
        flow: &Arc<Flow>,
        ticket: Ticket,
        admitted: Option<u32>,
    ) -> Option<(Client, Option<Turn>)> {
        let turn = self.turn_of(flow, ticket);
        let was_head = turn.is_some_and(|turn| self.heads.remove(&turn).is_some());
        let clients = self.flows.get_mut(flow)?;
        let waiter = clients.waiters.remove(&ticket)?;
        if let Some(cost) = admitted.filter(|_| was_head) {
            let present = self.presents.entry(flow.priority).or_default();
            clients.start = present.serve(clients.start).after(cost, clients.weight);
        }
        if !clients.waiters.is_empty() {
            let next = was_head.then(|| self.enter(flow)).flatten();
            return Some((waiter, next));
        }
        let start = clients.start;
        self.flows.remove(flow);
        if self.first_from(flow.priority, Start::default()).is_none() {
            self.presents.remove(&flow.priority);
        } else {
            self.presents.entry(flow.priority).or_default().leave(flow, start);
        }
        Some((waiter, None))
    }

    /// Makes the first client of a flow its head.
    fn enter(&mut self, flow: &Arc<Flow>) -> Option<Turn> {
        let turn = self.head_of(flow)?;
        self.heads.insert(turn, Arc::clone(flow));
        Some(turn)
    }

    /// The start of a flow that joins the line.
    fn start_of_newcomer(&self, flow: &Flow, weight: u16) -> Start {
        let present = self.presents.get(&flow.priority);
        let next = self
            .first_from(flow.priority, present.map(|present| present.start).unwrap_or_default());
        let next = next.and_then(|flow| self.flows.get(flow));
        let next = next.map(|clients| clients.start).unwrap_or_default();
        present.map_or(next, |present| present.start_of(flow, weight, next))
    }

    /// The flow of the first head of this priority whose start is `start` or later.
    fn first_from(&self, priority: u8, start: Start) -> Option<&Arc<Flow>> {
        let from = Turn::new(priority, start, Ticket(0));
        let (turn, flow) = self.heads.range(from..).next()?;
        (turn.priority.0 == priority).then_some(flow)
    }
}
