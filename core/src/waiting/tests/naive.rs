//! The naive model: one list in order of arrival. At each tick of the clock it tries all who may be
//! tried, in the order of the contract, and looks at all deadlines.

use super::world::{Answer, Asker, Keys, Look, MS_US, START_US, Step};
use crate::rule::{Identity, Rule, identities};
use crate::waiting::Flow;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A start in 1/2520 of a unit: an integer for weights up to 10.
type Start = u64;
const UNIT: Start = 2_520;

/// What denies clients, by number, and until when it does if the key does not change.
type Denied = BTreeMap<u64, (Box<[Identity]>, u64)>;

pub struct Naive<'a> {
    keys: Keys<'a>,
    line: Vec<Asker>,
    answers: Vec<Answer>,
    /// By key, what denies the first of flows.
    denied: [Denied; 2],
    /// The start and the weight of each flow in line, by key.
    flows: BTreeMap<(u8, Flow), (Start, u16)>,
    /// The start of the flow served last, by key and priority, while there are clients of it.
    presents: BTreeMap<(u8, u8), Start>,
    /// The starts of flows that left, as long.
    left: BTreeMap<(u8, Flow), Start>,
}

/// The answers to steps, each of which comes a number of ticks after the one before.
pub fn naive(steps: &[(u64, Step)], rules: &[Vec<Rule>], tick_ms: u64) -> Vec<Answer> {
    let mut naive = Naive {
        keys: Keys::new(rules),
        line: Vec::new(),
        answers: Vec::new(),
        denied: Default::default(),
        flows: BTreeMap::new(),
        presents: BTreeMap::new(),
        left: BTreeMap::new(),
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
            Step::Policy => naive.denied = Default::default(),
            _ => {
                if let Some(key) = naive.keys.change(&step, now_us) {
                    naive.denied[usize::from(key)].clear();
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
        (asker.ask.key, self.keys.request(&asker.ask).flow)
    }

    fn ask(&mut self, asker: Asker, now_us: u64) {
        self.join(asker);
        let last = self.line.len() - 1;
        if self.heads(asker.ask.key).contains(&last) {
            self.look(&asker, now_us);
        }
        if self.passes(asker.ask.key, now_us).is_some_and(|(index, _)| index == last) {
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

    /// Removes one, who was admitted at this cost if there is one.
    fn leave(&mut self, index: usize, admitted: Option<u32>) {
        let asker = self.line.remove(index);
        let (key, flow) = self.flow(&asker);
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

    /// The first of each flow of a key, in the order in which they are served.
    fn heads(&self, key: u8) -> Vec<usize> {
        let mut heads = BTreeMap::new();
        for (index, asker) in self.line.iter().enumerate().filter(|(_, one)| one.ask.key == key) {
            heads.entry(self.flow(asker)).or_insert(index);
        }
        let turn = |index: &usize| {
            let flow = self.flow(&self.line[*index]);
            (Reverse(flow.1.priority), self.flows[&flow].0, *index)
        };
        let mut heads: Vec<_> = heads.into_values().collect();
        heads.sort_by_key(turn);
        heads
    }

    /// Whether the first of a flow passes, at which cost. If not, notes what denies it.
    fn look(&mut self, asker: &Asker, now_us: u64) -> Option<u32> {
        match self.keys.look(asker, now_us) {
            Look::Passes(cost) => Some(cost),
            Look::Later(denial) => {
                let denied = (denial.by, now_us + denial.again_ms * MS_US);
                self.denied[usize::from(asker.ask.key)].insert(asker.number, denied);
                None
            }
            Look::Never => unreachable!("{asker:?} cannot wait"),
        }
    }

    /// The first that may be tried and passes, and its cost. One who is not tried keeps nobody
    /// back.
    fn passes(&mut self, key: u8, now_us: u64) -> Option<(usize, u32)> {
        self.denied[usize::from(key)].retain(|_, (_, again_us)| *again_us > now_us);
        let mut denials = Vec::<Box<[Identity]>>::new();
        for index in self.heads(key) {
            let asker = self.line[index];
            let rules = identities(&self.keys.rules[asker.ask.rules]);
            if !self.denied[usize::from(key)].contains_key(&asker.number)
                && !denials.iter().any(|by| by.iter().all(|rule| rules.contains(rule)))
                && let Some(cost) = self.look(&asker, now_us)
            {
                return Some((index, cost));
            }
            let denied = &self.denied[usize::from(key)];
            denials.extend(denied.get(&asker.number).map(|(by, _)| by.clone()));
        }
        None
    }

    /// Admits one at a cost; without a cost it was not in line.
    fn admit(&mut self, index: usize, now_us: u64, cost: Option<u32>) {
        let asker = self.line[index];
        self.keys.take(&asker, now_us);
        self.denied[usize::from(asker.ask.key)].clear();
        self.answers.push((asker.number, now_us, true));
        self.leave(index, cost);
    }

    fn serve(&mut self, now_us: u64) {
        loop {
            for key in 0..2 {
                while let Some((index, cost)) = self.passes(key, now_us) {
                    self.admit(index, now_us, Some(cost));
                }
            }
            // A waiter that leaves may let the next one pass, even one with the same deadline.
            let Some(index) = self.line.iter().position(|asker| asker.deadline_us <= now_us) else {
                break;
            };
            self.answers.push((self.line[index].number, now_us, false));
            self.leave(index, None);
        }
    }
}
