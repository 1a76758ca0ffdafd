//! The clients that wait, and what they were answered.

use std::collections::BTreeMap;

use fastrand::Rng;
use ratelimit_protocol::waiting::{Flow, Place, Queues, Request, Ticket};

/// A request: the index of its rules, its cost or the range of its costs, and the hold that it takes
/// or repeats.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub key: u8,
    pub rules: usize,
    pub cost: u32,
    pub up_to: Option<u32>,
    pub hold: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct Waiter {
    pub number: u64,
    pub ask: Ask,
    pub flow: Flow,
}

#[derive(Debug)]
pub struct Line {
    pub queues: Queues<Waiter>,
    /// The clients that wait, by number, with their deadlines.
    waiting: BTreeMap<u64, (Ticket, u64, Waiter)>,
    /// The number of the client that was admitted last, for each flow of each key.
    admitted: BTreeMap<(u8, Flow), u64>,
}

pub fn place(key: u8) -> Place {
    Place { key: [key].into(), db: 0 }
}

impl Line {
    pub const EMPTY: Self =
        Self { queues: Queues::EMPTY, waiting: BTreeMap::new(), admitted: BTreeMap::new() };

    pub fn join(&mut self, waiter: Waiter, request: Request, deadline_us: u64) -> Ticket {
        let place = place(waiter.ask.key);
        let ticket = self.queues.join(place, request, deadline_us, 1, waiter.clone());
        self.waiting.insert(waiter.number, (ticket, deadline_us, waiter));
        ticket
    }

    /// A client gives up, anywhere in the line.
    pub fn give_up(&mut self, rng: &mut Rng) {
        let one = rng.usize(..self.waiting.len().max(1));
        let Some((&number, &(ticket, ..))) = self.waiting.iter().nth(one) else { return };
        self.waiting.remove(&number);
        self.queues.leave(ticket, None).expect("in line");
    }

    /// The first client of each flow that waits for a key.
    pub fn heads(&self, key: u8) -> Vec<&Waiter> {
        let mut heads: Vec<&Waiter> = Vec::new();
        for (.., waiter) in self.waiting.values().filter(|(.., waiter)| waiter.ask.key == key) {
            if heads.iter().all(|head| head.flow != waiter.flow) {
                heads.push(waiter);
            }
        }
        heads
    }

    pub fn answered(&mut self, waiter: &Waiter, admitted: bool, steady_us: u64) {
        let (_, deadline_us, _) = self.waiting.remove(&waiter.number).expect("answered once");
        assert!(steady_us <= deadline_us, "{waiter:?} is answered late");
        if admitted {
            let flow = (waiter.ask.key, waiter.flow.clone());
            let before = self.admitted.insert(flow, waiter.number);
            assert!(before < Some(waiter.number), "{waiter:?} is admitted after {before:?}");
        }
    }

    /// All clients lose their connections.
    pub fn disconnected(&mut self) {
        *self = Self { admitted: std::mem::take(&mut self.admitted), ..Self::EMPTY };
    }

    pub fn assert_nobody_is_forgotten(&self) {
        assert!(self.waiting.is_empty() && self.queues.waiting() == 0, "{:?}", self.waiting);
    }
}
