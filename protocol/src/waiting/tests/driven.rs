//! Drives the lines as a server does: waits for the next instant at which something is due.

use super::place;
use super::world::{Answer, Asker, Happened, Keys, Look, MS_US, START_US, Step};
use crate::waiting::{Due, Place, Queues, Rules, Ticket};
use ratelimit_engine::rule::Rule;
use std::collections::BTreeMap;

pub struct Driver<'a> {
    keys: Keys<'a>,
    pub queues: Queues<Asker>,
    tickets: BTreeMap<u64, Ticket>,
    pub answers: Vec<Answer>,
    pub looks: usize,
}

fn place_of(key: u8) -> Place {
    place(&key.to_string(), 0)
}

impl<'a> Driver<'a> {
    pub fn new(rules: &'a [Vec<Rule>]) -> Self {
        Self {
            keys: Keys::new(rules),
            queues: Queues::EMPTY,
            tickets: BTreeMap::new(),
            answers: Vec::new(),
            looks: 0,
        }
    }

    fn answer(&mut self, asker: &Asker, now_us: u64, admitted: bool) {
        self.tickets.remove(&asker.number);
        self.answers.push((asker.number, now_us, admitted));
    }

    /// Admits a client. Its ticket and its cost follow if it is in line, which it leaves afterwards.
    fn admit(&mut self, asker: &Asker, now_us: u64, queued: Option<(Ticket, u32)>) {
        let happened = self.keys.take(asker, now_us);
        self.tell(asker.ask.key, &happened);
        if let Some((ticket, cost)) = queued {
            self.queues.leave(ticket, Some(cost)).unwrap();
        }
        self.answer(asker, now_us, true);
    }

    fn tell(&mut self, key: u8, happened: &Happened) {
        let (key, queues) = (place_of(key).key, &mut self.queues);
        happened.tell(self.keys.rules, |cause| queues.key_changed(&key, cause));
    }

    /// A client asks. It is decided at once if no client is in front of it.
    fn ask(&mut self, asker: Asker, now_us: u64) {
        let (place, request) = (place_of(asker.ask.key), self.keys.request(&asker, now_us));
        let in_front = self.queues.in_front(&place, &request, now_us);
        let look = self.keys.look(&asker, now_us);
        if in_front.is_none() && matches!(look, Look::Passes(_)) {
            return self.admit(&asker, now_us, None);
        }
        let ticket = self.queues.join(place, request, asker.deadline_us, 1, asker);
        self.tickets.insert(asker.number, ticket);
        if let Look::Later(denial) = look {
            self.queues.deny(ticket, denial, now_us);
        }
    }

    fn serve(&mut self, now_us: u64) {
        while let Some(due) = self.queues.due(now_us) {
            self.looks += usize::from(due != Due::More);
            match due {
                Due::More => {}
                Due::Try(ticket) => {
                    let asker = *self.queues.waiter(ticket).unwrap();
                    match self.keys.look(&asker, now_us) {
                        Look::Passes(cost) => self.admit(&asker, now_us, Some((ticket, cost))),
                        Look::Later(denial) => self.queues.deny(ticket, denial, now_us),
                        Look::Never => unreachable!("{asker:?} cannot wait"),
                    }
                }
                Due::Read(ticket) => {
                    let ask = self.queues.waiter(ticket).unwrap().ask;
                    let rules = Rules::of(self.keys.rules_of(&ask, now_us));
                    self.queues.read(ticket, rules, self.keys.plan_end(&ask, now_us));
                }
                Due::Deadline(ticket) => {
                    let asker = self.queues.leave(ticket, None).unwrap();
                    self.answer(&asker, now_us, false);
                }
            }
        }
    }

    /// Serves everything that is due up to a time.
    fn run_until(&mut self, until_us: u64) {
        while let Some(at_us) = self.queues.next_us().filter(|&at_us| at_us <= until_us) {
            self.serve(at_us.max(START_US));
        }
    }

    pub fn step(&mut self, number: u64, step: &Step, now_us: u64) {
        self.run_until(now_us);
        match *step {
            Step::Ask(ask) => self.ask(Asker::new(number, ask, now_us), now_us),
            Step::Leave(index) if !self.tickets.is_empty() => {
                let (&number, &ticket) =
                    self.tickets.iter().nth(index % self.tickets.len()).unwrap();
                assert_eq!(self.queues.leave(ticket, None).unwrap().number, number);
                self.tickets.remove(&number);
            }
            Step::Policy => self.queues.everything_changed(),
            _ => {
                if let Some((key, happened)) = self.keys.change(step, now_us) {
                    self.tell(key, &happened);
                }
            }
        }
        self.serve(now_us);
    }

    /// Waits until all clients are answered.
    pub fn end(&mut self) {
        self.run_until(u64::MAX);
        assert!(self.tickets.is_empty(), "forgotten: {:?}", self.tickets);
        assert!(self.queues.waiting() == 0 && self.queues.bytes() == 0);
        assert!(self.queues.lines.is_empty() && self.queues.instants.is_empty());
        assert_eq!(self.queues.rules.len(), 0);
        self.answers.sort_unstable();
        let twice = self.answers.windows(2).find(|pair| pair[0].0 == pair[1].0);
        assert_eq!(twice, None, "answered twice");
    }
}

/// Runs steps, each some ticks after the step before. Returns the answers, and how many looks they
/// took.
pub fn driven(steps: &[(u64, Step)], rules: &[Vec<Rule>], tick_ms: u64) -> (Vec<Answer>, usize) {
    let mut driver = Driver::new(rules);
    let mut now_us = START_US;
    for (number, (ticks, step)) in (0..).zip(steps) {
        now_us += ticks * tick_ms * MS_US;
        driver.step(number, step, now_us);
    }
    driver.end();
    (driver.answers, driver.looks)
}
