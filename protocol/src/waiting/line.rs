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
//! A cause wakes heads, which are tried in the order of their turns. Heads that another cause wakes
//! meanwhile are tried after them. So each head is tried, however often the key changes.
//!
//! Heads with equal rules form a group, and only the first of a group is tried: if rules deny it, all
//! others have these rules too. A denied head also keeps back each later due head of another group that
//! has all of the denying rules; if a pause denies it, it keeps back all later heads. The heads kept back
//! stay due, and are looked at again when the denied head leaves or is tried again. A step looks at one
//! head, so the time of a step is bounded.

use super::denials::{Denials, all_turns};
use super::flows::{Flows, Turn};
use super::request::{Cause, Client, Flow, HoldId, PlanEnd, Rules, Ticket, hash_of_limit};
use ratelimit_engine::rule::{Identity, Rule};
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    /// Decide this waiter: it is admitted or leaves, or the caller says why it is denied.
    Try(Ticket),
    /// Read this waiter's rules again, as a policy or the key's plan may have changed.
    Read(Ticket),
    /// A waiter's deadline has come, and it must leave.
    Deadline(Ticket),
    /// Ask again, after any other work: the line has not looked at everything that is due.
    More,
}

#[derive(Debug, Default)]
pub struct Line {
    flows: Flows,
    /// The heads whose rules were read in this generation, by their rules.
    groups: BTreeMap<Arc<Rules>, BTreeSet<Turn>>,
    /// Heads by the holds that they ask for.
    holds: BTreeSet<(HoldId, Turn)>,
    /// The last denials of the heads that are not due.
    denials: Denials,
    /// The first head of each group, unless it is denied, and heads whose rules must be read.
    due: BTreeSet<Turn>,
    /// The due heads before this turn are kept back.
    next: Turn,
    /// The last turn of this wake. Later turns belong to the next wake, so each wake ends.
    last: Turn,
    /// Denied heads that become due with the next wake.
    woken: BTreeSet<Turn>,
    /// How many calls of [`Queues::everything_changed`](super::Queues) the line has caught up with.
    seen: u64,
    /// Grows when the rules of its clients may have changed.
    generation: u64,
    /// When the key's plan ends, if rules that were read in this generation depend on it. All rules
    /// are read again then.
    plan_end: Option<PlanEnd>,
    /// When the next step is planned.
    pub planned_us: Option<u64>,
}

impl Line {
    pub fn new(seen: u64) -> Self {
        Self { next: Turn::END, last: Turn::FIRST, seen, ..Self::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.flows.len() == 0
    }

    /// Whether a flow has clients in line, or another flow fits.
    pub fn has_room(&self, flow: &Flow, flows: usize) -> bool {
        self.flows.len() < flows || self.flows.contains(flow)
    }

    /// When the client in front of a client of this flow may pass. The client in front is the head of
    /// the flow if that was denied, otherwise the first head of the line.
    pub fn front_passes_us(&self, flow: &Flow, now_us: u64) -> u64 {
        let own = self.flows.head_of(flow).and_then(|turn| self.denials.of(turn));
        let front = own.or_else(|| self.denials.of(self.flows.heads().next()?));
        front.filter(|denied| denied.again_us > now_us).map_or(now_us, |denied| denied.pass_us)
    }

    /// When the next step is due: if a head is due, now or at an earlier planned time; otherwise when
    /// the first wait or the key's plan ends.
    pub fn next_us(&self, now_us: u64) -> Option<u64> {
        if self.has_due() {
            return Some(self.planned_us.unwrap_or(now_us).min(now_us));
        }
        let plan_end_us = self.plan_end.and_then(PlanEnd::at_us);
        self.denials.first_end_us().into_iter().chain(plan_end_us).min()
    }

    /// Appends a client to its flow.
    pub fn join(
        &mut self,
        ticket: Ticket,
        flow: Flow,
        weight: u16,
        waiter: Client,
        plan_end: Option<PlanEnd>,
    ) -> Arc<Flow> {
        self.note_plan(plan_end);
        let waiter = Client { generation: self.generation, ..waiter };
        let (flow, turn) = self.flows.join(ticket, flow, weight, waiter);
        if let Some(turn) = turn {
            self.enter(turn);
        }
        flow
    }

    /// Removes a client, and returns its rules. `admitted` is the client's cost if it was admitted; the
    /// client's flow then gets a later turn.
    pub fn leave(
        &mut self,
        flow: &Arc<Flow>,
        ticket: Ticket,
        admitted: Option<u32>,
    ) -> Option<Arc<Rules>> {
        if let Some(turn) = self.flows.turn_of(flow, ticket) {
            self.exit(turn);
        }
        let (waiter, next) = self.flows.leave(flow, ticket, admitted)?;
        if let Some(turn) = next {
            self.enter(turn);
        }
        Some(waiter.rules)
    }

    /// Returns what is due next, or [`Due::More`] if this step began a wake or passed over a head.
    /// Takes a bounded time, because it looks at one head at most.
    pub fn step(&mut self) -> Option<Due> {
        let due = self.due.range(self.next..).next().filter(|&&turn| turn <= self.last);
        let Some(&turn) = due else {
            return self.begin_wake().then_some(Due::More);
        };
        let Some(waiter) = self.flows.head(turn) else {
            self.due.remove(&turn);
            return Some(Due::More);
        };
        if waiter.generation != self.generation {
            self.next = turn;
            return Some(Due::Read(turn.ticket));
        }
        self.next = turn.next();
        if self.denials.keep_back(&waiter.rules, turn) {
            return Some(Due::More);
        }
        self.due.remove(&turn);
        Some(Due::Try(turn.ticket))
    }

    /// Makes the woken heads due. Returns false if no head is to be tried.
    fn begin_wake(&mut self) -> bool {
        let woken = mem::take(&mut self.woken);
        self.next = woken.first().map_or(self.next, |&first| first.min(self.next));
        for turn in woken {
            self.denials.forget(turn);
            self.line_up(turn);
        }
        self.last = self.due.last().copied().unwrap_or(Turn::FIRST);
        self.has_due()
    }

    /// Notes that the rules `by` deny a client, if it is the head of its flow. The client may pass at
    /// `pass_us`, and is tried again at `again_us`.
    pub fn deny(
        &mut self,
        flow: &Flow,
        ticket: Ticket,
        by: &[Identity],
        (pass_us, again_us): (u64, u64),
    ) {
        let Some(turn) = self.flows.turn_of(flow, ticket) else { return };
        let Some(waiter) = self.flows.head(turn) else { return };
        let by = by.iter().map(|&rule| waiter.rules.entry(rule)).collect();
        self.due.remove(&turn);
        self.denials.add(turn, by, pass_us, again_us);
    }

    /// Notes what changed the key, and wakes heads.
    pub fn change(&mut self, cause: Cause<'_>) {
        match cause {
            Cause::Consumed { rules, hold } => self.consumed(rules, hold.map(HoldId::of)),
            Cause::Returned(states) => {
                for &state in states {
                    self.denials.add_denied_by(state, &[], &mut self.woken);
                }
            }
            // The plan may have changed too.
            Cause::Changed if self.plan_end.is_some() => self.renew(),
            Cause::Changed => self.woken.extend(self.denials.turns()),
        }
    }

    /// Notes that a check consumed. Only a rule with another text can admit more than before: the check
    /// may have reshaped or trimmed the state for its own rule.
    fn consumed(&mut self, rules: &[Rule], hold: Option<HoldId>) {
        // A log rule reads the log, and takes over the state that had its name.
        let states = |rule: &Rule| {
            let text = hash_of_limit(rule);
            [rule.state(), rule.identity()].map(|state| (state, text))
        };
        let texts: Vec<_> = rules.iter().flat_map(states).collect();
        for &(state, _) in &texts {
            self.denials.add_denied_by(state, &texts, &mut self.woken);
        }
        if let Some(hold) = hold {
            // The requests of these heads now repeat the hold, whatever denied them before.
            for &(_, turn) in self.holds.range(all_turns(hold)) {
                self.denials.forget(turn);
                self.woken.insert(turn);
            }
        }
    }

    /// Wakes all heads, and marks their rules to be read again.
    fn renew(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.plan_end = None;
        self.groups.clear();
        self.woken.extend(self.flows.heads());
    }

    /// Notes when the plan ends by which a client's rules were read.
    fn note_plan(&mut self, plan_end: Option<PlanEnd>) {
        self.plan_end = self.plan_end.into_iter().chain(plan_end).min();
    }

    /// Wakes the heads whose waits are over, and all heads if everything has changed or the key's plan
    /// has ended.
    pub fn catch_up(&mut self, seen: u64, now_us: u64) {
        let plan_ended = self.plan_end.is_some_and(|end| end <= PlanEnd::At(now_us));
        if self.seen != seen || plan_ended {
            self.seen = seen;
            self.renew();
        }
        while let Some(turn) = self.denials.pop_ended(now_us) {
            self.woken.insert(turn);
        }
    }

    /// Replaces the rules of a client by those that it has now. Returns its earlier rules.
    pub fn read(
        &mut self,
        flow: &Flow,
        ticket: Ticket,
        rules: Arc<Rules>,
        plan_end: Option<PlanEnd>,
    ) -> Arc<Rules> {
        self.note_plan(plan_end);
        let Some(waiter) = self.flows.waiter_mut(flow, ticket) else { return rules };
        waiter.generation = self.generation;
        let before = std::mem::replace(&mut waiter.rules, rules);
        if let Some(turn) = self.flows.turn_of(flow, ticket) {
            self.line_up(turn);
        }
        before
    }

    /// Whether a head is to be tried.
    fn has_due(&self) -> bool {
        !self.woken.is_empty() || self.due.range(self.next..).next().is_some()
    }

    /// Whether a client may be decided: it is a head, and no earlier head is to be tried or keeps
    /// it back.
    pub fn is_open_to(&self, flow: &Flow, ticket: Ticket) -> bool {
        let Some(turn) = self.flows.turn_of(flow, ticket) else { return false };
        let current = self.flows.head(turn).filter(|one| one.generation == self.generation);
        self.is_open_at(turn, current.map(|waiter| &*waiter.rules))
    }

    /// Whether a newcomer with these rules may be decided.
    pub fn is_open_to_newcomer(
        &self,
        flow: &Flow,
        weight: u16,
        rules: &Rules,
        ticket: Ticket,
    ) -> bool {
        let turn = self.flows.turn_of_newcomer(flow, weight, ticket);
        !self.flows.contains(flow) && self.is_open_at(turn, Some(rules))
    }

    /// Whether a request with these rules may be decided at this turn.
    fn is_open_at(&self, turn: Turn, rules: Option<&Rules>) -> bool {
        let untried = || {
            let due = self.due.range(self.next.min(turn)..turn).next();
            due.or_else(|| self.woken.range(..turn).next()).is_some()
        };
        let is_kept_back = || rules.is_none_or(|rules| self.denials.keep_back(rules, turn));
        self.flows.heads().next().is_none_or(|first| first >= turn) || !untried() && !is_kept_back()
    }

    /// Notes that a client became the head of its flow.
    fn enter(&mut self, turn: Turn) {
        self.next = turn.min(self.next);
        let hold = self.flows.head(turn).and_then(|waiter| waiter.hold);
        self.holds.extend(hold.map(|hold| (hold, turn)));
        self.line_up(turn);
    }

    /// Adds a head to its group. It is due if it is the first of them, or if its rules must be read.
    fn line_up(&mut self, turn: Turn) {
        let Some(waiter) = self.flows.head(turn) else { return };
        if waiter.generation != self.generation {
            self.due.insert(turn);
            return;
        }
        let group = self.groups.entry(Arc::clone(&waiter.rules)).or_default();
        group.insert(turn);
        if group.first() == Some(&turn) {
            self.due.insert(turn);
            // The head that was the first is kept back.
            self.due.remove(group.iter().nth(1).unwrap_or(&Turn::END));
        } else {
            self.due.remove(&turn);
        }
    }

    /// Notes that a head leaves. The heads that it kept back are looked at again.
    fn exit(&mut self, turn: Turn) {
        self.denials.forget(turn);
        self.due.remove(&turn);
        self.woken.remove(&turn);
        self.next = turn.min(self.next);
        let Some(waiter) = self.flows.head(turn) else { return };
        if let Some(hold) = waiter.hold {
            self.holds.remove(&(hold, turn));
        }
        let Some(group) = self.groups.get_mut(&waiter.rules) else { return };
        group.remove(&turn);
        match group.first() {
            Some(&first) if self.denials.of(first).is_none() => drop(self.due.insert(first)),
            Some(_) => {}
            None => drop(self.groups.remove(&waiter.rules)),
        }
    }
}
