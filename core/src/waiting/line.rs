//! The clients that wait for one key: flows, whose turns alternate, and a walk along their first
//! clients, which tries each that may pass.
//!
//! ```text
//!  flow a   [ first | second | third ... ]   in order of arrival
//!  flow b   [ first ... ]
//!              |
//!  turns    ( b's first, a's first, ... )    the walk tries them in this order
//! ```
//!
//! The first of a flow that is denied is passed over, but only by those who lack a rule that
//! denies it. When the key changes, all are tried again.
//!
//! A walk along many rests in between. If it then must turn back, it also goes on from where it
//! was, or changes would keep it from the last; so these may overtake one in front.

use super::denials::{Denials, Denying};
use super::present::Present;
use super::request::{Flow, Request, Ticket};
use super::turn::{Start, Turn};
use crate::rule::Identity;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a walk does in each time of `ROUND_US`: 256 tries in vain, or 4096 steps over those who may
/// not be tried, each compared with up to 16 rules.
const WORK: u32 = 4_096;
const TRY: u32 = 16;
const ROUND_US: u64 = 4_000;
/// The part of the time that tries in vain may take: one in so many.
const PART: u64 = 4;

/// The identities of a request's rules; `None` if a policy may have changed since they were read.
type Rules = Option<Box<[Identity]>>;

#[derive(Debug)]
struct Clients {
    start: Start,
    weight: u16,
    rules: BTreeMap<Ticket, Rules>,
}

/// The first client of a flow.
#[derive(Debug)]
struct Head {
    flow: Arc<Flow>,
    /// What denied it, and the number of the walk in which it did.
    denied: Option<(Denying, u64)>,
}

/// Where a walk comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// This client may be tried.
    Try(Ticket),
    /// The rules of this client must be read again.
    Read(Ticket),
    /// Enough until then.
    Rest(u64),
    /// All have been tried who may be.
    End,
}

#[derive(Debug)]
pub struct Line {
    flows: BTreeMap<Arc<Flow>, Clients>,
    heads: BTreeMap<Turn, Head>,
    /// How many heads have a rule.
    having: BTreeMap<Identity, usize>,
    denials: Denials,
    /// The present of each priority in line.
    presents: BTreeMap<u8, Present>,
    /// The number of the walk, and the first turn that it has not come to.
    walk: u64,
    next: Turn,
    /// Where it rested, if it had to turn back since.
    resume: Turn,
    /// What the walk may still do in this round, when that began, and how long it tried in vain.
    work: u32,
    round_us: u64,
    vain_us: u64,
    /// Who was tried last, and when.
    tried: Option<(Ticket, u64)>,
    /// When the walk goes on, if that is planned.
    pub walk_us: Option<u64>,
}

impl Line {
    pub const EMPTY: Self = Self {
        flows: BTreeMap::new(),
        heads: BTreeMap::new(),
        having: BTreeMap::new(),
        denials: Denials::NONE,
        presents: BTreeMap::new(),
        walk: 0,
        next: Turn::END,
        resume: Turn::END,
        work: WORK,
        round_us: 0,
        vain_us: 0,
        tried: None,
        walk_us: None,
    };

    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Whose denial tells one of this flow most about its wait: the first of its flow, or else
    /// who is served next if nobody is passed over.
    pub fn in_front_of(&self, flow: &Flow) -> Option<Ticket> {
        let own = self.flows.get(flow).and_then(|clients| clients.rules.first_key_value());
        let own = own.map(|(&ticket, _)| ticket).filter(|&ticket| {
            let turn = self.turn_of(flow, ticket);
            turn.and_then(|turn| self.heads.get(&turn)).is_some_and(|head| head.denied.is_some())
        });
        own.or_else(|| self.heads.first_key_value().map(|(turn, _)| turn.ticket()))
    }

    /// Appends a client to its flow.
    pub fn join(&mut self, ticket: Ticket, request: Request) -> Arc<Flow> {
        let Request { flow, weight, rules } = request;
        let (flow, start) = match self.flows.get_key_value(&flow) {
            Some((flow, clients)) => (Arc::clone(flow), clients.start),
            None => {
                let start = self.start_of_newcomer(&flow, weight);
                (Arc::new(flow), start)
            }
        };
        let new = || Clients { start, weight, rules: BTreeMap::new() };
        let clients = self.flows.entry(Arc::clone(&flow)).or_insert_with(new);
        clients.weight = weight;
        clients.rules.insert(ticket, Some(rules));
        if clients.rules.len() == 1 {
            self.enter(&flow);
        }
        flow
    }

    /// Removes a client. If it was admitted, at this cost, the turn of its flow passes on.
    pub fn leave(&mut self, flow: &Arc<Flow>, ticket: Ticket, admitted: Option<u32>) {
        let turn = self.turn_of(flow, ticket);
        if let Some(turn) = turn {
            self.exit(turn);
        }
        let Some(clients) = self.flows.get_mut(flow) else { return };
        clients.rules.remove(&ticket);
        if let Some(cost) = admitted.filter(|_| turn.is_some()) {
            // The try was not in vain.
            self.work = self.work.saturating_add(TRY).min(WORK);
            let present = self.presents.entry(flow.priority).or_default();
            clients.start = present.serve(clients.start).after(cost, clients.weight);
        }
        if clients.rules.is_empty() {
            let start = clients.start;
            self.flows.remove(flow);
            if self.first_from(flow.priority, Start::default()).is_none() {
                self.presents.remove(&flow.priority);
            } else {
                self.presents.entry(flow.priority).or_default().leave(flow, start);
            }
        } else if turn.is_some() {
            self.enter(flow);
        }
    }

    /// Takes the walk to the next client that may be tried.
    pub fn step(&mut self, now_us: u64) -> Step {
        if now_us >= self.round_ends_us() {
            (self.work, self.round_us, self.vain_us) = (WORK, now_us, 0);
        }
        loop {
            if self.resume <= self.next {
                self.resume = Turn::END;
            }
            // Half of the work is for those before the place where the walk rested.
            let resumes = self.resume != Turn::END && self.work <= WORK / 2;
            let from = if resumes { self.resume } else { self.next };
            let Some((&turn, head)) = self.heads.range(from..).next() else {
                *self.cursor(resumes) = Turn::END;
                if resumes {
                    continue;
                }
                self.resume = Turn::END;
                return Step::End;
            };
            if self.work == 0 || self.vain_us.saturating_mul(PART) >= ROUND_US {
                if self.resume == Turn::END {
                    self.resume = self.next;
                }
                return Step::Rest(self.round_ends_us());
            }
            let was_tried = head.denied.as_ref().is_some_and(|&(_, walk)| walk == self.walk);
            let Some(rules) = self.rules(&head.flow, turn.ticket()) else {
                self.work = self.work.saturating_sub(TRY);
                *self.cursor(resumes) = turn;
                return Step::Read(turn.ticket());
            };
            let mut compared = 0;
            let may_be_tried = !was_tried && !self.denials.keep_back(rules, turn, &mut compared);
            let work = if may_be_tried { TRY } else { 1 };
            self.work = self.work.saturating_sub(work).saturating_sub(compared / 16);
            *self.cursor(resumes) = turn.next();
            if !was_tried {
                self.forget_denial(turn);
            }
            if may_be_tried {
                self.tried = Some((turn.ticket(), now_us));
                return Step::Try(turn.ticket());
            }
        }
    }

    fn round_ends_us(&self) -> u64 {
        self.round_us.saturating_add(ROUND_US.max(self.vain_us.saturating_mul(PART)))
    }

    const fn cursor(&mut self, resumes: bool) -> &mut Turn {
        if resumes { &mut self.resume } else { &mut self.next }
    }

    /// These rules deny a client. Returns false if it is not the first of its flow.
    pub fn deny(&mut self, flow: &Flow, ticket: Ticket, by: Box<[Identity]>, now_us: u64) -> bool {
        if let Some((_, tried_us)) = self.tried.take_if(|&mut (tried, _)| tried == ticket) {
            let took_us = now_us.saturating_sub(tried_us);
            self.vain_us = self.vain_us.saturating_add(took_us);
        }
        let Some(turn) = self.turn_of(flow, ticket) else { return false };
        self.forget_denial(turn);
        let denying = Denying::new(by, |rule| self.having.get(rule).copied().unwrap_or(0));
        self.denials.add(&denying, turn);
        // A newcomer that was denied on arrival needs no try: the walk skips it.
        if self.next == turn {
            self.next = turn.next();
        }
        if self.all_have(denying.rules()) {
            for cursor in [&mut self.next, &mut self.resume] {
                if *cursor == turn.next() {
                    *cursor = Turn::END;
                }
            }
        }
        if let Some(head) = self.heads.get_mut(&turn) {
            head.denied = Some((denying, self.walk));
        }
        true
    }

    fn all_have(&self, rules: &[Identity]) -> bool {
        rules.iter().all(|rule| self.having.get(rule) == Some(&self.heads.len()))
    }

    /// The wait of the first of a flow, which was denied, is over.
    pub fn wait_ended(&mut self, flow: &Flow, ticket: Ticket) {
        if let Some(turn) = self.turn_of(flow, ticket) {
            self.forget_denial(turn);
            self.next = turn.min(self.next);
        }
    }

    /// The key changed, so all denials may be over.
    pub fn key_changed(&mut self) {
        self.walk = self.walk.wrapping_add(1);
        self.next = Turn::FIRST;
    }

    /// A policy may have changed, so all rules must be read again.
    pub fn rules_changed(&mut self) {
        for rules in self.flows.values_mut().flat_map(|clients| clients.rules.values_mut()) {
            *rules = None;
        }
        self.having.clear();
        self.key_changed();
    }

    /// The rules of a client as they are now.
    pub fn read(&mut self, flow: &Flow, ticket: Ticket, rules: Box<[Identity]>) {
        let Some(clients) = self.flows.get_mut(flow) else { return };
        let Some(unread) = clients.rules.get_mut(&ticket).filter(|rules| rules.is_none()) else {
            return;
        };
        *unread = Some(rules);
        self.count(flow, ticket, 1);
    }

    /// Whether the walk has not ended.
    pub fn is_walking(&self) -> bool {
        self.heads.range(self.next..).next().is_some()
    }

    /// Whether a client may be decided: all before it were tried, and have a rule that denies them
    /// and that it has not.
    pub fn is_open_to(&self, flow: &Flow, ticket: Ticket) -> bool {
        let rules = self.rules(flow, ticket);
        self.turn_of(flow, ticket).is_some_and(|turn| self.is_open_at(turn, rules))
    }

    /// Whether a newcomer may be decided, by the same rule.
    pub fn is_open_to_newcomer(&self, request: &Request, ticket: Ticket) -> bool {
        let Request { flow, weight, rules } = request;
        let turn = Turn::new(flow.priority, self.start_of_newcomer(flow, *weight), ticket);
        !self.flows.contains_key(flow) && self.is_open_at(turn, Some(rules))
    }

    /// Whether a request of these rules may be decided at this turn.
    fn is_open_at(&self, turn: Turn, rules: Option<&[Identity]>) -> bool {
        let untried = || self.heads.range(self.next.min(turn)..turn).next().is_some();
        let is_kept_back = || rules.is_none_or(|rules| self.denials.keep_back(rules, turn, &mut 0));
        self.heads.range(..turn).next().is_none() || !untried() && !is_kept_back()
    }

    /// The start of a flow that comes: not before the next flow that is not passed over.
    fn start_of_newcomer(&self, flow: &Flow, weight: u16) -> Start {
        let present = self.presents.get(&flow.priority);
        let next = self.first_from(flow.priority, present.map(Present::start).unwrap_or_default());
        let next = next.and_then(|head| self.flows.get(&head.flow));
        let next = next.map(|clients| clients.start).unwrap_or_default();
        present.map_or(next, |present| present.start_of(flow, weight, next))
    }

    /// The first head of a priority from this start on.
    fn first_from(&self, priority: u8, start: Start) -> Option<&Head> {
        let from = Turn::new(priority, start, Ticket(0));
        let (turn, head) = self.heads.range(from..).next()?;
        (turn.priority() == priority).then_some(head)
    }

    fn rules(&self, flow: &Flow, ticket: Ticket) -> Option<&[Identity]> {
        self.flows.get(flow)?.rules.get(&ticket)?.as_deref()
    }

    /// The turn of the first of a flow; `None` for others.
    fn turn_of(&self, flow: &Flow, ticket: Ticket) -> Option<Turn> {
        let turn = Turn::new(flow.priority, self.flows.get(flow)?.start, ticket);
        self.heads.contains_key(&turn).then_some(turn)
    }

    /// The first client of a flow gets a turn.
    fn enter(&mut self, flow: &Arc<Flow>) {
        let Some(clients) = self.flows.get(flow) else { return };
        let Some((&ticket, _)) = clients.rules.first_key_value() else { return };
        let turn = Turn::new(flow.priority, clients.start, ticket);
        self.heads.insert(turn, Head { flow: Arc::clone(flow), denied: None });
        self.next = turn.min(self.next);
        self.count(flow, ticket, 1);
    }

    /// The first client of a flow loses its turn, and those whom its denial kept back may be tried.
    fn exit(&mut self, turn: Turn) {
        if self.forget_denial(turn) {
            self.next = turn.min(self.next);
        }
        if let Some(head) = self.heads.remove(&turn) {
            self.count(&head.flow, turn.ticket(), -1);
        }
    }

    /// Returns whether there was a denial.
    fn forget_denial(&mut self, turn: Turn) -> bool {
        let denied = self.heads.get_mut(&turn).and_then(|head| head.denied.take());
        if let Some((denying, _)) = &denied {
            self.denials.remove(denying, turn);
        }
        denied.is_some()
    }

    /// Adds a head's rules to those that heads have, or removes them.
    fn count(&mut self, flow: &Flow, ticket: Ticket, heads: isize) {
        let rules = self.flows.get(flow).and_then(|clients| clients.rules.get(&ticket));
        for &rule in rules.and_then(Option::as_deref).unwrap_or_default() {
            let count = self.having.entry(rule).or_default();
            *count = count.saturating_add_signed(heads);
            if *count == 0 {
                self.having.remove(&rule);
            }
        }
    }
}
