//! Clients in line, as time passes.

use ratelimit_engine::key::Verdict;
use ratelimit_protocol::waiting::{Due, Flow, HoldId, Request, Rules, Ticket};

use super::requests::Look;
use super::{MS_US, PATIENCE_MS, World};
use crate::line::{Waiter, place};

impl World {
    /// A request that waits in line, as `RL.WAIT` does.
    pub(super) fn wait(&mut self, key: u8) {
        let ask = self.ask(key);
        let key = ask.key;
        let (number, ms) = (self.requests, self.rng.u64(1..PATIENCE_MS));
        let rules = Rules::of(&self.rules[ask.rules].0);
        let hold = ask.hold.map(|id| HoldId::of(id.to_string().as_bytes()));
        let name = [&b""[..], b"a", b"b"][self.rng.usize(..3)].into();
        let flow = Flow { priority: self.rng.u8(..5) / 4, name };
        let weight = self.rng.u16(1..4);
        let request = Request { flow: flow.clone(), weight, rules, plan_end: None, hold };
        let waiter = Waiter { number, ask, flow };
        let in_front = self.line.queues.in_front(&place(key), &request, self.steady_us);
        let denial = match self.look(number, ask) {
            Look::Passes(_) if in_front.is_some() => None,
            // A wait that is too long can end in time only if a hold is settled.
            Look::Later(denial) if denial.wait_ms <= ms || self.has_live_holds(key) => Some(denial),
            look => {
                if matches!(look, Look::Passes(_)) {
                    self.assert_turn(&waiter);
                }
                self.check(number, ask);
                return;
            }
        };
        let deadline_us = self.steady_us + ms * MS_US;
        let ticket = self.line.join(waiter, request, deadline_us);
        if let Some(denial) = denial {
            self.line.queues.deny(ticket, denial, self.steady_us);
        }
    }

    fn has_live_holds(&self, key: u8) -> bool {
        let limiter = self.seen(key);
        let has = limiter.live_holds(self.wall_us) > 0;
        assert_eq!(has, !limiter.next_holds(self.wall_us, 1).is_empty(), "live holds");
        has
    }

    /// Lets time pass, and serves the line at each instant at which something is due.
    pub(super) fn pass(&mut self, ms: u64) {
        let until_us = self.steady_us + ms * MS_US;
        while let Some(at_us) = self.line.queues.next_us().filter(|&at_us| at_us <= until_us) {
            self.reach(at_us.max(self.steady_us));
            self.serve();
        }
        self.reach(until_us);
    }

    fn reach(&mut self, steady_us: u64) {
        self.wall_us += steady_us - self.steady_us;
        self.steady_us = steady_us;
    }

    pub(super) fn serve(&mut self) {
        while let Some(due) = self.line.queues.due(self.steady_us) {
            match due {
                Due::Try(ticket) => self.attempt(ticket),
                Due::Read(_) => unreachable!("no policy changes"),
                Due::More => {}
                Due::Deadline(ticket) => self.run_out(ticket),
            }
        }
    }

    fn attempt(&mut self, ticket: Ticket) {
        let waiter = self.line.queues.waiter(ticket).expect("in line");
        match self.look(waiter.number, waiter.ask) {
            Look::Later(denial) => self.line.queues.deny(ticket, denial, self.steady_us),
            Look::Passes(_) | Look::Repeats | Look::Decided => self.decide(ticket),
        }
    }

    /// Answers a client whose deadline has come.
    fn run_out(&mut self, ticket: Ticket) {
        let waiter = self.line.queues.waiter(ticket).expect("in line");
        let passes = matches!(self.look(waiter.number, waiter.ask), Look::Passes(_));
        if passes && self.line.queues.behind(ticket).is_some() {
            let waiter = self.line.queues.leave(ticket, None).expect("in line");
            return self.line.answered(&waiter, false, self.steady_us);
        }
        self.decide(ticket);
    }

    fn decide(&mut self, ticket: Ticket) {
        let waiter = self.line.queues.waiter(ticket).expect("in line").clone();
        let look = self.look(waiter.number, waiter.ask);
        if let Look::Passes(cost) = look {
            self.assert_turn(&waiter);
            self.line.queues.leave(ticket, Some(cost));
        } else {
            self.line.queues.leave(ticket, None);
        }
        let allowed = self.check(waiter.number, waiter.ask) == Verdict::Allowed;
        // A repeat may overtake clients that wait, since it consumes nothing.
        let repeats = matches!(look, Look::Repeats);
        self.line.answered(&waiter, allowed && !repeats, self.steady_us);
    }
}
