//! Which rules deny the heads of a line, so that no other head of these rules passes them.

use super::rules::Rules;
use super::turn::Turn;
use ratelimit_core::rule::Identity;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The rules that deny a head, sorted. A pause denies without a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Denying {
    /// The key of the index: the rarest of the rules.
    key: Option<Identity>,
    rules: Arc<[Identity]>,
    reads_log: bool,
}

impl Denying {
    /// These of a head's rules, the rarest of which has the least `count`.
    pub fn new(by: &[Identity], rules: &Rules, count: impl Fn(&Identity) -> usize) -> Self {
        let reads_log = |rule| rules.get(rule).is_some_and(|entry| entry.reads_log());
        Self {
            key: by.iter().min_by_key(|rule| count(rule)).copied(),
            rules: by.into(),
            reads_log: by.iter().any(reads_log),
        }
    }

    pub fn rules(&self) -> &[Identity] {
        &self.rules
    }

    /// The states that must get something back before the head may pass.
    pub fn states(&self) -> impl Iterator<Item = Identity> {
        let log = self.reads_log.then_some(Identity::LOG);
        self.rules.iter().copied().chain(log)
    }
}

/// The denials in effect.
#[derive(Debug)]
pub struct Denials {
    /// Sets of rules, each with the turns of the heads that exactly these deny.
    turns: BTreeMap<Denying, BTreeSet<Turn>>,
    by_state: BTreeSet<(Identity, Turn)>,
}

impl Denials {
    pub const NONE: Self = Self { turns: BTreeMap::new(), by_state: BTreeSet::new() };

    pub fn add(&mut self, denying: &Denying, turn: Turn) {
        match self.turns.get_mut(denying) {
            Some(turns) => drop(turns.insert(turn)),
            None => drop(self.turns.insert(denying.clone(), BTreeSet::from([turn]))),
        }
        self.by_state.extend(denying.states().map(|state| (state, turn)));
    }

    pub fn remove(&mut self, denying: &Denying, turn: Turn) {
        let Some(turns) = self.turns.get_mut(denying) else { return };
        if !turns.remove(&turn) {
            return;
        }
        if turns.is_empty() {
            self.turns.remove(denying);
        }
        for state in denying.states() {
            self.by_state.remove(&(state, turn));
        }
    }

    /// The turns of the heads that are denied by a rule of this state.
    pub fn by_state(&self, state: Identity) -> impl Iterator<Item = Turn> {
        self.by_state.range(all_turns(state)).map(|&(_, turn)| turn)
    }

    /// Whether the head of an earlier turn is denied, and only by rules that are among these.
    pub fn keep_back(&self, rules: &Rules, turn: Turn) -> bool {
        let found_by = |key: Option<Identity>| {
            let from = Denying { key, rules: Arc::default(), reads_log: false };
            self.turns.range(from..).take_while(move |(denying, _)| denying.key == key)
        };
        let keys = std::iter::once(None).chain(rules.iter().map(|entry| Some(entry.identity)));
        keys.flat_map(found_by).any(|(denying, turns)| {
            turns.first().is_some_and(|&first| first < turn)
                && denying.rules.iter().all(|rule| rules.get(rule).is_some())
        })
    }
}

/// The entries of one key in a set by keys and turns.
pub fn all_turns<K: Copy>(key: K) -> RangeInclusive<(K, Turn)> {
    (key, Turn::FIRST)..=(key, Turn::END)
}
