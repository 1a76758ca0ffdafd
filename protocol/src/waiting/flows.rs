//! The flows of a line, their clients, and the order of their heads.

use super::present::Present;
use super::request::{Client, Flow, Ticket};
use super::turn::{Start, Turn};
use std::collections::BTreeMap;
use std::sync::Arc;

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
