//! The naive model: one list in order of arrival. At each tick of the clock it tries all clients that
//! are due, in the order that docs/guide/waiting.md promises, and looks at all deadlines.

use super::world::{Answer, Asker, Happened, Keys, Look, MS_US, START_US, Step};
use crate::waiting::{Flow, Rules};
use ratelimit_engine::rule::{Identity, Kind, Rule, identities};
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
    /// The clients whose rules have not been read since policies or the key's plan may have changed.
    unread: BTreeSet<u64>,
    /// Whether rules that were read since then depend on the key's plan.
    by_plan: bool,
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
        if matches!(happened, Happened::Changed) {
            if self.heads[usize::from(key)].by_plan {
                self.forget_rules(key);
            }
            let heads = &mut self.heads[usize::from(key)];
            let numbers = askers.iter().map(|asker| asker.number);
            heads.woken.extend(numbers.filter(|number| !heads.due.contains(number)));
            return;
        }
        let (keys, now_us) = (&self.keys, self.now_us);
        let heads = &mut self.heads[usize::from(key)];
        let may_admit = |rule: &Rule| match happened {
            Happened::Changed => true,
            Happened::Returned(states) => states.contains(&rule.state()),
            // A check trims the log to what its own rules need.
            Happened::Consumed(of, _) => {
                let is_log = |rule: &Rule| rule.kind() == Kind::Log;
                is_log(rule)
                    && keys.rules[*of].iter().any(is_log)
                    && !keys.rules[*of].contains(rule)
            }
        };
        for asker in &askers {
            let Some((by, _)) = heads.denied.get(&asker.number) else { continue };
            let rules = keys.rules_of(&asker.ask, now_us).iter();
            let mut denying = rules.filter(|rule| by.contains(&rule.identity()));
            if denying.any(may_admit) && !heads.due.contains(&asker.number) {
                heads.woken.insert(asker.number);
            }
        }
    }

    /// The cost at which the head of a flow passes. If it does not pass, notes what denies it.
    fn look(&mut self, asker: &Asker, now_us: u64) -> Option<u32> {
        match self.keys.look(asker, now_us) {
            Look::Passes(cost) => Some(cost),
            Look::Later(denial) => {
                let until_us = now_us + denial.again_ms * MS_US;
                let heads = &mut self.heads[usize::from(asker.ask.key)];
                heads.denied.insert(asker.number, (denial.by, until_us));
                None
            }
            Look::Never => unreachable!("{asker:?} cannot wait"),
        }
    }

    /// Whether no earlier head of these has the rules of the head at an index.
    fn is_first_with_its_rules(&self, turns: &[usize], index: usize) -> bool {
        let rules = |index: usize| Rules::of(self.rules(&self.line[index]));
        let mut earlier = turns.iter().take_while(|&&other| other != index);
        !earlier.any(|&other| rules(other) == rules(index))
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
                    if let Some(cost) = self.look(&asker, now_us) {
                        return Some((index, cost));
                    }
                }
                let denied = self.heads[of_key].denied.get(&asker.number);
                denials.extend(denied.map(|(by, _)| by.clone()));
            }
            let due = |index: &&usize| {
                let Heads { due, woken, .. } = &self.heads[of_key];
                let number = self.line[**index].number;
                let is_first = || self.is_first_with_its_rules(&turns, **index);
                woken.contains(&number) || due.contains(&number) && is_first()
            };
            let new_last = turns.iter().rfind(due).map(|&index| self.turn(index));
            let heads = &mut self.heads[of_key];
            if heads.woken.is_empty() && new_last <= last {
                return None;
            }
            heads.denied.retain(|number, _| !heads.woken.contains(number));
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
