//! The clients that wait for one key: flows, and the order in which their heads are tried.
//!
//! ```text
//!  flow a   [ head | second | third ... ]    in order of arrival
//!  flow b   [ head ... ]
//!               |
//!  heads    ( b's, a's, ... )                in the order of their turns
//!             |
//!             +-- due      to be tried in this wake
//!             +-- woken    to be tried in the next
//!             +-- denied   tried, and denied since
//! ```
//!
//! A cause wakes heads. They are tried in the order of their turns, and those that another cause
//! wakes meanwhile are tried after them, so no rate of changes keeps a head from its try. A new
//! head of a flow is due at once.
//!
//! A head that is denied keeps back the due heads after it that have all rules that deny it. These
//! stay due, and are looked at again when it leaves or is tried again. A head whose rules are known
//! to deny it is not tried: its denial stands.

use super::cause::Cause;
use super::denials::{Denials, Denying, all_turns};
use super::heads_by_rule::HeadsByRule;
use super::known::Known;
use super::present::Present;
use super::request::{Flow, HoldId, Ticket, Waiter};
use super::rules::Rules;
use super::turn::{Start, Turn};
use ratelimit_core::rule::{Identity, Rule};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Debug)]
struct Clients {
    start: Start,
    weight: u16,
    waiters: BTreeMap<Ticket, Waiter>,
}

/// The first client of a flow.
#[derive(Debug)]
struct Head {
    flow: Arc<Flow>,
    /// What denied it when it was last tried, and when its wait is over.
    denied: Option<(Denying, u64)>,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Try this head.
    Try(Ticket),
    /// Read the rules of this head again.
    Read(Ticket),
    /// The denial of this head stands, and its wait is over then.
    Stands(Ticket, u64),
    /// Nothing.
    End,
}

#[derive(Debug)]
pub struct Line {
    flows: BTreeMap<Arc<Flow>, Clients>,
    heads: BTreeMap<Turn, Head>,
    /// Heads by the holds that they ask for.
    holds: BTreeSet<(HoldId, Turn)>,
    heads_by_rule: HeadsByRule,
    /// The present of each priority in line.
    presents: BTreeMap<u8, Present>,
    /// The denials of the heads that are not due.
    denials: Denials,
    due: BTreeSet<Turn>,
    /// The due heads before this turn are kept back.
    next: Turn,
    /// The last turn of this wake. A flow that is served comes later with its next head, so no
    /// admissions keep a wake from its end.
    last: Turn,
    woken: BTreeSet<Turn>,
    /// States of which all heads that they deny are woken.
    told: BTreeSet<Identity>,
    /// What the tries since the line last had nothing due have shown, and the heads that were denied
    /// before and have been woken since.
    known: Known,
    recalled: BTreeSet<Turn>,
    /// The generation of policies.
    generation: u64,
    /// When the next step is planned.
    pub planned_us: Option<u64>,
}

impl Line {
    pub const fn new(generation: u64) -> Self {
        Self {
            flows: BTreeMap::new(),
            heads: BTreeMap::new(),
            holds: BTreeSet::new(),
            heads_by_rule: HeadsByRule::NONE,
            presents: BTreeMap::new(),
            denials: Denials::NONE,
            due: BTreeSet::new(),
            next: Turn::END,
            last: Turn::FIRST,
            woken: BTreeSet::new(),
            told: BTreeSet::new(),
            known: Known::NOTHING,
            recalled: BTreeSet::new(),
            generation,
            planned_us: None,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Whether a flow has clients in line, or another flow fits.
    pub fn has_room(&self, flow: &Flow, flows: usize) -> bool {
        self.flows.len() < flows || self.flows.contains_key(flow)
    }

    /// The client in front of a client of this flow: the head of the flow if it was denied, or else
    /// the first head.
    pub fn in_front_of(&self, flow: &Flow) -> Option<Ticket> {
        let own = self
            .head_of(flow)
            .filter(|turn| self.heads.get(turn).is_some_and(|head| head.denied.is_some()));
        own.or_else(|| self.heads.first_key_value().map(|(&turn, _)| turn)).map(Turn::ticket)
    }

    /// Appends a client to its flow.
    pub fn join(&mut self, ticket: Ticket, flow: Flow, weight: u16, waiter: Waiter) -> Arc<Flow> {
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
        if clients.waiters.len() == 1 {
            self.enter(&flow);
        }
        flow
    }

    /// Removes a client, and returns its rules. If it was admitted, at this cost, the turn of its
    /// flow passes on.
    pub fn leave(
        &mut self,
        flow: &Arc<Flow>,
        ticket: Ticket,
        admitted: Option<u32>,
    ) -> Option<Arc<Rules>> {
        let turn = self.turn_of(flow, ticket);
        if let Some(turn) = turn {
            self.exit(turn);
        }
        let clients = self.flows.get_mut(flow)?;
        let waiter = clients.waiters.remove(&ticket)?;
        if let Some(cost) = admitted.filter(|_| turn.is_some()) {
            let present = self.presents.entry(flow.priority).or_default();
            clients.start = present.serve(clients.start).after(cost, clients.weight);
        }
        if clients.waiters.is_empty() {
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
        Some(waiter.rules)
    }

    /// The next head to try.
    pub fn step(&mut self, now_us: u64) -> Step {
        loop {
            let due = self.due.range(self.next..).next().filter(|&&turn| turn <= self.last);
            let Some(&turn) = due else {
                if self.begin_wake() {
                    continue;
                }
                return Step::End;
            };
            let Some(waiter) = self.waiter_at(turn) else {
                self.due.remove(&turn);
                continue;
            };
            if waiter.generation != self.generation {
                self.next = turn;
                return Step::Read(turn.ticket());
            }
            let is_kept_back = self.denials.keep_back(&waiter.rules, turn);
            let stands_until = self.stands_until(turn, waiter, now_us);
            self.next = turn.next();
            if is_kept_back {
                continue;
            }
            self.due.remove(&turn);
            let Some(until_us) = stands_until else { return Step::Try(turn.ticket()) };
            let denied = self.heads.get_mut(&turn).and_then(|head| head.denied.as_mut());
            if let Some((denying, ends_us)) = denied {
                *ends_us = until_us;
                let denying = denying.clone();
                self.add_denial(&denying, turn);
            }
            return Step::Stands(turn.ticket(), until_us);
        }
    }

    /// Makes the heads due that were woken meanwhile. Returns false if none is to be tried.
    fn begin_wake(&mut self) -> bool {
        if !self.has_due() {
            // A head that is still kept back must be tried once nothing keeps it back: why it was
            // woken is forgotten here.
            for turn in std::mem::take(&mut self.recalled) {
                if let Some(head) = self.heads.get_mut(&turn).filter(|_| self.due.contains(&turn)) {
                    head.denied = None;
                }
            }
            self.known.forget();
            return false;
        }
        for &turn in &self.woken {
            if let Some((denying, _)) = self.heads.get(&turn).and_then(|head| head.denied.as_ref())
            {
                self.denials.remove(denying, turn);
                self.recalled.insert(turn);
            }
        }
        self.told.clear();
        self.next = self.woken.first().map_or(self.next, |&first| first.min(self.next));
        self.due.append(&mut self.woken);
        self.last = self.due.last().copied().unwrap_or(Turn::FIRST);
        true
    }

    /// Until when the last denial of a head stands at least: each rule that denied it either is
    /// known to deny as small a cost, or nothing has happened that could make it admit.
    fn stands_until(&self, turn: Turn, waiter: &Waiter, now_us: u64) -> Option<u64> {
        let (denying, ends_us) = self.heads.get(&turn)?.denied.as_ref()?;
        let waits = *ends_us > now_us;
        let mut until_us = None;
        for rule in denying.rules() {
            let rule = waiter.rules.get(rule)?;
            let cost = rule.cost_or(waiter.cost);
            let known_us = self.known.denies_until(rule, cost, now_us);
            if known_us.is_none() && (!waits || self.known.may_admit(rule)) {
                return None;
            }
            until_us = until_us.into_iter().chain(known_us).min();
        }
        until_us.map(|until_us| if waits { until_us.min(*ends_us) } else { until_us })
    }

    /// These of its rules deny a client until then. Returns false if it is not the head of its flow.
    pub fn deny(
        &mut self,
        flow: &Flow,
        ticket: Ticket,
        by: &[Identity],
        until_us: u64,
        now_us: u64,
    ) -> bool {
        let Some(turn) = self.turn_of(flow, ticket) else { return false };
        let Some(waiter) = self.waiter_at(turn) else { return false };
        let denying = Denying::new(by, &waiter.rules, |rule| self.heads_by_rule.heads(rule));
        let (rules, cost) = (Arc::clone(&waiter.rules), waiter.cost);
        for rule in by.iter().filter_map(|rule| rules.get(rule)) {
            self.known.denies(rule, rule.cost_or(cost), until_us, now_us);
        }
        let all_have = by.iter().all(|rule| self.heads_by_rule.heads(rule) == self.heads.len());
        if all_have && self.next > turn {
            // It keeps back all heads after it.
            self.next = Turn::END;
        }
        self.due.remove(&turn);
        self.recalled.remove(&turn);
        self.forget_denial(turn);
        self.add_denial(&denying, turn);
        if let Some(head) = self.heads.get_mut(&turn) {
            head.denied = Some((denying, until_us));
        }
        true
    }

    /// Something changed the key. Returns whether a head is to be tried.
    pub fn change(&mut self, cause: Cause<'_>) -> bool {
        match cause {
            Cause::Consumed { rules, hold } => self.consumed(rules, hold.map(HoldId::of)),
            Cause::Returned(states) => states.iter().for_each(|&state| self.returned(state)),
            Cause::Changed => self.wake_all(),
        }
        let has_due = self.has_due();
        if !has_due {
            self.known.forget();
        }
        has_due
    }

    /// A check consumed. That lets only a rule of another text admit more: the state may have been
    /// reshaped or trimmed for the rule that consumed.
    fn consumed(&mut self, rules: &[Rule], hold: Option<HoldId>) {
        for state in self.heads_by_rule.states_of_other_texts(rules) {
            self.returned(state);
        }
        if let Some(hold) = hold {
            // Their requests repeat the hold now, whatever denied them.
            let turns: Vec<_> = self.holds.range(all_turns(hold)).map(|&(_, turn)| turn).collect();
            turns.iter().for_each(|&turn| self.forget_denial(turn));
            self.woken.extend(turns);
        }
    }

    /// A state got something back.
    fn returned(&mut self, state: Identity) {
        if state != Identity::LOG && self.heads_by_rule.heads(&state) == 0 {
            return;
        }
        self.known.returned(state);
        if self.told.insert(state) {
            self.woken.extend(self.denials.by_state(state));
        }
    }

    fn add_denial(&mut self, denying: &Denying, turn: Turn) {
        self.denials.add(denying, turn);
        for state in denying.states() {
            self.told.remove(&state);
        }
    }

    fn wake_all(&mut self) {
        self.known.changed();
        self.woken.extend(self.heads.keys().filter(|turn| !self.due.contains(turn)));
    }

    /// Wakes all heads if their rules come from another generation of policies. Returns whether.
    pub fn begin_generation(&mut self, generation: u64) -> bool {
        let is_new = self.generation != generation;
        if is_new {
            self.generation = generation;
            self.heads_by_rule = HeadsByRule::NONE;
            self.wake_all();
        }
        is_new
    }

    /// The wait of a head that was denied is over.
    pub fn wait_ended(&mut self, flow: &Flow, ticket: Ticket) {
        self.woken.extend(self.turn_of(flow, ticket));
    }

    /// The rules of a client as they are now. Returns those that it had.
    pub fn read(&mut self, flow: &Flow, ticket: Ticket, rules: Arc<Rules>) -> Arc<Rules> {
        let waiter = self.flows.get_mut(flow).and_then(|clients| clients.waiters.get_mut(&ticket));
        let Some(waiter) = waiter else { return rules };
        waiter.generation = self.generation;
        let before = std::mem::replace(&mut waiter.rules, rules);
        if self.turn_of(flow, ticket).is_some() {
            self.count(flow, ticket, 1);
        }
        before
    }

    /// Whether a head is to be tried.
    pub fn has_due(&self) -> bool {
        !self.woken.is_empty() || self.due.range(self.next..).next().is_some()
    }

    /// Whether a client may be decided: it is a head, and no earlier head is to be tried or keeps
    /// it back.
    pub fn is_open_to(&self, flow: &Flow, ticket: Ticket) -> bool {
        let Some(turn) = self.turn_of(flow, ticket) else { return false };
        let current = self.waiter_at(turn).filter(|one| one.generation == self.generation);
        self.is_open_at(turn, current.map(|waiter| &*waiter.rules))
    }

    /// Whether a newcomer of these rules may be decided.
    pub fn is_open_to_newcomer(
        &self,
        flow: &Flow,
        weight: u16,
        rules: &Rules,
        ticket: Ticket,
    ) -> bool {
        let turn = Turn::new(flow.priority, self.start_of_newcomer(flow, weight), ticket);
        !self.flows.contains_key(flow) && self.is_open_at(turn, Some(rules))
    }

    /// Whether a request of these rules may be decided at this turn.
    fn is_open_at(&self, turn: Turn, rules: Option<&Rules>) -> bool {
        let untried = || {
            let due = self.due.range(self.next.min(turn)..turn).next();
            due.or_else(|| self.woken.range(..turn).next()).is_some()
        };
        let is_kept_back = || rules.is_none_or(|rules| self.denials.keep_back(rules, turn));
        self.heads.range(..turn).next().is_none() || !untried() && !is_kept_back()
    }

    /// The start of a flow that comes.
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

    fn waiter_at(&self, turn: Turn) -> Option<&Waiter> {
        self.flows.get(&self.heads.get(&turn)?.flow)?.waiters.get(&turn.ticket())
    }

    /// The turn of the head of a flow.
    fn head_of(&self, flow: &Flow) -> Option<Turn> {
        let clients = self.flows.get(flow)?;
        let (&ticket, _) = clients.waiters.first_key_value()?;
        Some(Turn::new(flow.priority, clients.start, ticket))
    }

    /// The turn of a client that is the head of its flow.
    fn turn_of(&self, flow: &Flow, ticket: Ticket) -> Option<Turn> {
        self.head_of(flow).filter(|turn| turn.ticket() == ticket && self.heads.contains_key(turn))
    }

    /// The first client of a flow becomes its head.
    fn enter(&mut self, flow: &Arc<Flow>) {
        let Some(turn) = self.head_of(flow) else { return };
        self.heads.insert(turn, Head { flow: Arc::clone(flow), denied: None });
        self.due.insert(turn);
        self.next = turn.min(self.next);
        let hold = self.waiter_at(turn).and_then(|waiter| waiter.hold);
        self.holds.extend(hold.map(|hold| (hold, turn)));
        self.count(flow, turn.ticket(), 1);
    }

    /// A head leaves, and those that it kept back are looked at again.
    fn exit(&mut self, turn: Turn) {
        self.forget_denial(turn);
        self.due.remove(&turn);
        self.woken.remove(&turn);
        self.recalled.remove(&turn);
        self.next = turn.min(self.next);
        if let Some(hold) = self.waiter_at(turn).and_then(|waiter| waiter.hold) {
            self.holds.remove(&(hold, turn));
        }
        if let Some(head) = self.heads.remove(&turn) {
            self.count(&head.flow, turn.ticket(), -1);
        }
    }

    fn forget_denial(&mut self, turn: Turn) {
        if let Some((denying, _)) = self.heads.get_mut(&turn).and_then(|head| head.denied.take()) {
            self.denials.remove(&denying, turn);
        }
    }

    /// Counts the rules of a head, or stops counting them. Rules of an earlier generation of
    /// policies are not counted.
    fn count(&mut self, flow: &Flow, ticket: Ticket, heads: isize) {
        let waiter = self.flows.get(flow).and_then(|clients| clients.waiters.get(&ticket));
        let waiter = waiter.filter(|waiter| waiter.generation == self.generation);
        if let Some(waiter) = waiter {
            self.heads_by_rule.count(&waiter.rules, heads);
        }
    }
}
