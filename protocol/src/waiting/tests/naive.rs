//! The naive model: one list in order of arrival. At each tick of the clock it tries all clients that
//! are due, in the order that docs/guide/waiting.md promises, and looks at all deadlines.

use super::world::{Answer, Asker, Happened, Keys, Look, MS_US, START_US, Step};
use crate::waiting::Flow;
use ratelimit_core::rule::{Identity, Kind, Rule, identities};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A start in 1/2520 of a unit: an integer for weights up to 10.
type Start = u64;
const UNIT: Start = 2_520;

/// When a head is served.
type Turn = (Reverse<u8>, Start, u64);

/// The heads of one key, by number.
#[derive(Default)]
struct Heads {
    /// What denied each head when it was tried, and when the denial ends if nothing happens.
    denied: BTreeMap<u64, (Box<[Identity]>, u64)>,
    due: BTreeSet<u64>,
    /// The heads that become due when no other head is due.
    woken: BTreeSet<u64>,
    /// The turn up to which due heads are tried before the woken heads.
    last: Option<Turn>,
    /// The denied heads that were woken since the last time at which no head was due.
    recalled: BTreeSet<u64>,
    /// The clients whose rules have not been read since policies or the key's plan may have changed.
    unread: BTreeSet<u64>,
    /// Whether rules that were read since then depend on the key's plan.
    by_plan: bool,
    /// What tries have shown: a rule, the least cost that it denies, and until when.
    known: Vec<(Rule, u32, u64)>,
    /// What happened since the last time at which no head was due.
    returned: BTreeSet<Identity>,
    changed: bool,
}

impl Heads {
    /// Until when a rule is known to deny a cost.
    fn known_until(&self, rule: &Rule, cost: u32, now_us: u64) -> Option<u64> {
        let denies = |(of, least, until_us): &&(Rule, u32, u64)| {
            of == rule && cost >= *least && *until_us > now_us
        };
        self.known.iter().find(denies).map(|&(_, _, until_us)| until_us)
    }

    fn forget_what_is_known(&mut self) {
        for number in std::mem::take(&mut self.recalled) {
            if self.due.contains(&number) {
                self.denied.remove(&number);
            }
        }
        self.known.clear();
        self.returned.clear();
        self.changed = false;
    }
}

pub struct Naive<'a> {
    keys: Keys<'a>,
    line: Vec<Asker>,
    answers: Vec<Answer>,
    heads: [Heads; 2],
    /// The start and the weight of each flow in line, by key.
    flows: BTreeMap<(u8, Flow), (Start, u16)>,
    /// The start of the flow served last, by key and priority, while clients of that priority wait.
    presents: BTreeMap<(u8, u8), Start>,
    /// The starts of flows that left, while clients of their priority wait.
    left: BTreeMap<(u8, Flow), Start>,
    /// The keys' plans at the last tick.
    plans: [Option<usize>; 2],
    now_us: u64,
}

/// Runs steps, each some ticks after the step before, and returns the answers.
pub fn naive(steps: &[(u64, Step)], rules: &[Vec<Rule>], tick_ms: u64) -> Vec<Answer> {
    let mut naive = Naive {
        keys: Keys::new(rules),
        line: Vec::new(),
        answers: Vec::new(),
        heads: Default::default(),
        flows: BTreeMap::new(),
        presents: BTreeMap::new(),
        left: BTreeMap::new(),
        plans: [None; 2],
        now_us: START_US,
    };
    let mut now_us = START_US;
    for (number, &(ticks, step)) in (0..).zip(steps) {
        for _ in 0..ticks {
            now_us += tick_ms * MS_US;
            naive.serve(now_us);
        }
        match step {
            Step::Ask(ask) => naive.ask(Asker::new(number, ask, now_us), now_us),
            Step::Leave(index) if !naive.line.is_empty() => {
                let index = index % naive.line.len();
                naive.leave(index, None);
            }
            Step::Policy => (0..2).for_each(|key| {
                naive.forget_rules(key);
                naive.happened(key, &Happened::Changed);
            }),
            _ => {
                if let Some((key, happened)) = naive.keys.change(&step, now_us) {
                    naive.happened(key, &happened);
                }
            }
        }
        naive.serve(now_us);
    }
    while !naive.line.is_empty() {
        now_us += tick_ms * MS_US;
        naive.serve(now_us);
    }
    naive.answers.sort_unstable();
    naive.answers
}

impl Naive<'_> {
    fn flow(&self, asker: &Asker) -> (u8, Flow) {
        (asker.ask.key, self.keys.request(asker, self.now_us).flow)
    }

    fn ask(&mut self, asker: Asker, now_us: u64) {
        self.join(asker);
        self.heads[usize::from(asker.ask.key)].by_plan |= asker.ask.by_plan;
        let last = self.line.len() - 1;
        if self.heads(asker.ask.key).contains(&last) && self.look(&asker, now_us).is_some() {
            self.heads[usize::from(asker.ask.key)].due.insert(asker.number);
        }
        if let Some((index, _)) = self.passes(asker.ask.key, now_us) {
            assert_eq!(index, last, "all others have been tried");
            self.admit(last, now_us, None);
        }
    }

    fn join(&mut self, asker: Asker) {
        let (key, flow) = self.flow(&asker);
        let priority = flow.priority;
        let present = self.presents.get(&(key, priority)).copied().unwrap_or(0);
        let of_priority =
            self.flows.iter().filter(|((of, other), _)| *of == key && other.priority == priority);
        let starts = of_priority.map(|(_, &(start, _))| start).filter(|&start| start >= present);
        let own = self.left.get(&(key, flow.clone())).copied().unwrap_or(0);
        let start = starts.min().unwrap_or(present).max(own);
        self.flows.entry((key, flow)).or_insert((start, 1)).1 = asker.ask.weight;
        self.line.push(asker);
    }

    /// Removes a client. `admitted` is its cost if it was admitted.
    fn leave(&mut self, index: usize, admitted: Option<u32>) {
        let asker = self.line.remove(index);
        let (key, flow) = self.flow(&asker);
        let heads = &mut self.heads[usize::from(key)];
        heads.denied.remove(&asker.number);
        for set in [&mut heads.due, &mut heads.woken, &mut heads.unread] {
            set.remove(&asker.number);
        }
        if !self.line.iter().any(|other| other.ask.key == key) {
            self.heads[usize::from(key)] = Heads::default();
        }
        let of_priority = (key, flow.priority);
        if let Some(cost) = admitted {
            let (start, weight) = self.flows.get_mut(&(key, flow.clone())).unwrap();
            let present = self.presents.entry(of_priority).or_insert(0);
            *present = (*present).max(*start);
            *start = *present + u64::from(cost.max(1)) * UNIT / u64::from(*weight);
        }
        let flows: Vec<_> = self.line.iter().map(|asker| self.flow(asker)).collect();
        for (flow, (start, _)) in self.flows.extract_if(.., |flow, _| !flows.contains(flow)) {
            self.left.insert(flow, start);
        }
        if !flows.iter().any(|(key, flow)| (*key, flow.priority) == of_priority) {
            self.presents.remove(&of_priority);
            self.left.retain(|(key, flow), _| (*key, flow.priority) != of_priority);
        }
    }

    /// When the head at an index is served.
    fn turn(&self, index: usize) -> Turn {
        let asker = &self.line[index];
        let flow = self.flow(asker);
        (Reverse(flow.1.priority), self.flows[&flow].0, asker.number)
    }

    /// The indexes of the heads of a key's flows, in the order in which they are served.
    fn heads(&self, key: u8) -> Vec<usize> {
        let mut heads = BTreeMap::new();
        for (index, asker) in self.line.iter().enumerate().filter(|(_, one)| one.ask.key == key) {
            heads.entry(self.flow(asker)).or_insert(index);
        }
        let mut heads: Vec<_> = heads.into_values().collect();
        heads.sort_by_key(|&index| self.turn(index));
        heads
    }

    fn rules(&self, asker: &Asker) -> &[Rule] {
        self.keys.rules_of(&asker.ask, self.now_us)
    }

    /// Notes that the rules of all clients of a key must be read again. They may no longer have the rules
    /// that kept them back, so all are looked at again in the order of their turns.
    fn forget_rules(&mut self, key: u8) {
        let heads = &mut self.heads[usize::from(key)];
        let of_key = self.line.iter().filter(|asker| asker.ask.key == key);
        heads.unread.extend(of_key.map(|asker| asker.number));
        heads.by_plan = false;
        heads.woken.append(&mut heads.due);
    }

    /// Notes the time, and which plans have ended.
    fn tick(&mut self, now_us: u64) {
        self.now_us = now_us;
        for key in 0..2 {
            let plan = self.keys.plan(key, now_us).map(|(rules, _)| rules);
            let of_key = usize::from(key);
            if std::mem::replace(&mut self.plans[of_key], plan) != plan
                && self.heads[of_key].by_plan
            {
                self.happened(key, &Happened::Changed);
            }
        }
    }

    /// Notes what happened to a key, and wakes heads.
    fn happened(&mut self, key: u8, happened: &Happened) {
        let turns = self.heads(key);
        let askers: Vec<_> = turns.into_iter().map(|index| self.line[index]).collect();
        if askers.is_empty() {
            return;
        }
        let returned = match happened {
            Happened::Changed => {
                if self.heads[usize::from(key)].by_plan {
                    self.forget_rules(key);
                }
                let heads = &mut self.heads[usize::from(key)];
                heads.known.clear();
                heads.changed = true;
                let numbers = askers.iter().map(|asker| asker.number);
                heads.woken.extend(numbers.filter(|number| !heads.due.contains(number)));
                return;
            }
            Happened::Returned(states) => states.clone(),
            // A check trims the log to what its own rules need.
            Happened::Consumed(of, _) => {
                let consuming = &self.keys.rules[*of];
                let is_log = |rule: &&Rule| rule.kind() == Kind::Log;
                let unread = &self.heads[usize::from(key)].unread;
                let read = askers.iter().filter(|asker| !unread.contains(&asker.number));
                let mut logs = read.flat_map(|asker| self.rules(asker).iter().filter(is_log));
                let consumes = consuming.iter().any(|rule| is_log(&rule));
                let trims = consumes && logs.any(|rule| !consuming.contains(rule));
                if trims { vec![Identity::LOG] } else { Vec::new() }
            }
        };
        let (keys, now_us) = (&self.keys, self.now_us);
        let denied_by = |asker: &Asker, heads: &Heads, state: &Identity| {
            let denied = heads.denied.get(&asker.number);
            keys.rules_of(&asker.ask, now_us).iter().any(|rule| {
                rule.state() == *state
                    && denied.is_some_and(|(by, _)| by.contains(&rule.identity()))
            })
        };
        let heads = &mut self.heads[usize::from(key)];
        for state in &returned {
            heads.known.retain(|(rule, ..)| rule.state() != *state);
            for asker in &askers {
                if !heads.due.contains(&asker.number) && denied_by(asker, heads, state) {
                    heads.woken.insert(asker.number);
                }
            }
        }
        heads.returned.extend(returned);
    }

    /// The cost at which the head of a flow passes. If it does not pass, notes what denies it.
    fn look(&mut self, asker: &Asker, now_us: u64) -> Option<u32> {
        match self.keys.look(asker, now_us) {
            Look::Passes(cost) => Some(cost),
            Look::Later(denial) => {
                let until_us = now_us + denial.again_ms * MS_US;
                let rules = self.keys.rules_of(&asker.ask, now_us);
                let heads = &mut self.heads[usize::from(asker.ask.key)];
                for rule in rules.iter().filter(|rule| denial.by.contains(&rule.identity())) {
                    let less = asker.ask.cost.checked_sub(1);
                    if less.is_none_or(|less| heads.known_until(rule, less, now_us).is_none()) {
                        heads.known.retain(|(of, ..)| of != rule);
                        heads.known.push((*rule, asker.ask.cost, until_us));
                    }
                }
                heads.denied.insert(asker.number, (denial.by, until_us));
                None
            }
            Look::Never => unreachable!("{asker:?} cannot wait"),
        }
    }

    /// Until when the last denial of a head stands without a try.
    fn stands_until(&self, asker: &Asker, now_us: u64) -> Option<u64> {
        let heads = &self.heads[usize::from(asker.ask.key)];
        let (by, ends_us) = heads.denied.get(&asker.number)?;
        let mut ends = Vec::new();
        for identity in by {
            let rule = self.rules(asker).iter().find(|rule| rule.identity() == *identity)?;
            match heads.known_until(rule, asker.ask.cost, now_us) {
                Some(until_us) => ends.push(until_us),
                None if *ends_us <= now_us => return None,
                None if heads.changed || heads.returned.contains(&rule.state()) => return None,
                None => {}
            }
        }
        let until_us = ends.into_iter().min()?;
        Some(if *ends_us > now_us { until_us.min(*ends_us) } else { until_us })
    }

    /// The index of the first due head that passes, and its cost.
    fn passes(&mut self, key: u8, now_us: u64) -> Option<(usize, u32)> {
        let of_key = usize::from(key);
        loop {
            let turns = self.heads(key);
            for &index in &turns {
                let number = self.line[index].number;
                let heads = &mut self.heads[of_key];
                match heads.denied.get(&number) {
                    _ if heads.due.contains(&number) || heads.woken.contains(&number) => {}
                    None => drop(heads.due.insert(number)),
                    Some((_, until_us)) if *until_us <= now_us => {
                        heads.woken.insert(number);
                    }
                    Some(_) => {}
                }
            }
            let mut denials = Vec::<Box<[Identity]>>::new();
            let last = self.heads[of_key].last;
            for &index in &turns {
                let asker = self.line[index];
                let is_due = self.heads[of_key].due.contains(&asker.number);
                if is_due && Some(self.turn(index)) <= last {
                    let heads = &mut self.heads[of_key];
                    heads.by_plan |= heads.unread.remove(&asker.number) && asker.ask.by_plan;
                    let rules = identities(self.rules(&asker));
                    if denials.iter().any(|by| by.iter().all(|rule| rules.contains(rule))) {
                        continue;
                    }
                    self.heads[of_key].due.remove(&asker.number);
                    if let Some(until_us) = self.stands_until(&asker, now_us) {
                        if let Some(denied) = self.heads[of_key].denied.get_mut(&asker.number) {
                            denied.1 = until_us;
                        }
                    } else if let Some(cost) = self.look(&asker, now_us) {
                        return Some((index, cost));
                    }
                }
                let denied = self.heads[of_key].denied.get(&asker.number);
                denials.extend(denied.map(|(by, _)| by.clone()));
            }
            let due = |index: &&usize| {
                let Heads { due, woken, .. } = &self.heads[of_key];
                let number = self.line[**index].number;
                due.contains(&number) || woken.contains(&number)
            };
            let new_last = turns.iter().rfind(due).map(|&index| self.turn(index));
            let heads = &mut self.heads[of_key];
            if heads.woken.is_empty() && new_last <= last {
                heads.forget_what_is_known();
                return None;
            }
            heads.recalled.extend(heads.woken.iter().filter(|one| heads.denied.contains_key(*one)));
            heads.due.append(&mut heads.woken);
            heads.last = new_last;
        }
    }

    /// Admits a client. `cost` is `None` if the client was not in line.
    fn admit(&mut self, index: usize, now_us: u64, cost: Option<u32>) {
        let asker = self.line[index];
        let happened = self.keys.take(&asker, now_us);
        self.answers.push((asker.number, now_us, true));
        self.leave(index, cost);
        self.happened(asker.ask.key, &happened);
    }

    fn serve(&mut self, now_us: u64) {
        self.tick(now_us);
        loop {
            for key in 0..2 {
                while let Some((index, cost)) = self.passes(key, now_us) {
                    self.admit(index, now_us, Some(cost));
                }
            }
            // A waiter that leaves may let the next waiter pass, even one with the same deadline.
            let Some(index) = self.line.iter().position(|asker| asker.deadline_us <= now_us) else {
                break;
            };
            self.answers.push((self.line[index].number, now_us, false));
            self.leave(index, None);
        }
    }
}
