//! What denies the heads of a line, until when, and which later heads a denial keeps back: those that
//! have all of the denying rules.

use super::rules::{Entry, Rules};
use super::turn::Turn;
use ratelimit_core::rule::Identity;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The rules that deny a head, sorted. A pause denies without a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DenyingRules {
    /// The key of the index: the rarest of the rules.
    key: Option<Identity>,
    pub rules: Arc<[Identity]>,
    reads_log: bool,
}

impl DenyingRules {
    /// The rules `by`, which deny a head with these `rules`. `count` says how many heads have a rule.
    pub fn new(by: &[Identity], rules: &Rules, count: impl Fn(&Identity) -> usize) -> Self {
        let reads_log = |rule| rules.get(rule).is_some_and(Entry::reads_log);
        Self {
            key: by.iter().min_by_key(|rule| count(rule)).copied(),
            rules: by.into(),
            reads_log: by.iter().any(reads_log),
        }
    }

    /// The states that must get something back before the head may pass.
    pub fn states(&self) -> impl Iterator<Item = Identity> {
        let log = self.reads_log.then_some(Identity::LOG);
        self.rules.iter().copied().chain(log)
    }
}

/// The last denial of a head.
#[derive(Debug)]
pub struct LastDenial {
    pub by: DenyingRules,
    /// When the head may pass if nothing happens.
    pub pass_us: u64,
    /// When the head's wait is over: fewer rules may deny it then.
    pub again_us: u64,
}

/// The denials of the heads that were tried.
#[derive(Debug, Default)]
pub struct Denials {
    denied: BTreeMap<Turn, LastDenial>,
    by_state: BTreeSet<(Identity, Turn)>,
    /// The ends of the waits that are not over.
    ends: BTreeSet<(u64, Turn)>,
    /// The denials in effect, which keep later heads back. Each set of denying rules has the turns
    /// of the heads that it denies.
    in_effect: BTreeMap<DenyingRules, BTreeSet<Turn>>,
}

impl Denials {
    /// The last denial of a head.
    pub fn of(&self, turn: Turn) -> Option<&LastDenial> {
        self.denied.get(&turn)
    }

    /// Notes that a head is denied.
    pub fn add(&mut self, turn: Turn, denied: LastDenial) {
        self.forget(turn);
        self.by_state.extend(denied.by.states().map(|state| (state, turn)));
        self.ends.insert((denied.again_us, turn));
        take_effect(&mut self.in_effect, &denied.by, turn);
        self.denied.insert(turn, denied);
    }

    /// Prolongs the last denial of a head until `until_us`, and puts it into effect again.
    pub fn stands(&mut self, turn: Turn, until_us: u64) -> Option<&DenyingRules> {
        let denied = self.denied.get_mut(&turn)?;
        self.ends.remove(&(denied.again_us, turn));
        self.ends.insert((until_us, turn));
        denied.pass_us = denied.pass_us.max(until_us);
        denied.again_us = until_us;
        take_effect(&mut self.in_effect, &denied.by, turn);
        Some(&denied.by)
    }

    /// Takes the last denial of a head out of effect. Returns false if the head was not denied.
    pub fn lose_effect(&mut self, turn: Turn) -> bool {
        let Some(LastDenial { by, .. }) = self.denied.get(&turn) else { return false };
        if let Some(turns) = self.in_effect.get_mut(by) {
            turns.remove(&turn);
            if turns.is_empty() {
                self.in_effect.remove(by);
            }
        }
        true
    }

    pub fn forget(&mut self, turn: Turn) {
        self.lose_effect(turn);
        if let Some(LastDenial { by, again_us, .. }) = self.denied.remove(&turn) {
            self.ends.remove(&(again_us, turn));
            for state in by.states() {
                self.by_state.remove(&(state, turn));
            }
        }
    }

    /// When the first wait ends.
    pub fn first_end_us(&self) -> Option<u64> {
        self.ends.first().map(|&(end_us, _)| end_us)
    }

    /// The turn of a head whose wait has ended.
    pub fn pop_ended(&mut self, now_us: u64) -> Option<Turn> {
        self.ends.first().filter(|&&(end_us, _)| end_us <= now_us)?;
        self.ends.pop_first().map(|(_, turn)| turn)
    }

    /// The turns of the heads that are denied by a rule of this state.
    pub fn by_state(&self, state: Identity) -> impl Iterator<Item = Turn> {
        self.by_state.range(all_turns(state)).map(|&(_, turn)| turn)
    }

    /// Whether an earlier head is denied only by rules that are among these.
    pub fn keep_back(&self, rules: &Rules, turn: Turn) -> bool {
        let found_by = |key: Option<Identity>| {
            let from = DenyingRules { key, rules: Arc::default(), reads_log: false };
            self.in_effect.range(from..).take_while(move |(denying, _)| denying.key == key)
        };
        let keys = std::iter::once(None).chain(rules.iter().map(|entry| Some(entry.identity)));
        keys.flat_map(found_by).any(|(denying, turns)| {
            turns.first().is_some_and(|&first| first < turn) && rules.contain_all(&denying.rules)
        })
    }
}

fn take_effect(
    in_effect: &mut BTreeMap<DenyingRules, BTreeSet<Turn>>,
    by: &DenyingRules,
    turn: Turn,
) {
    match in_effect.get_mut(by) {
        Some(turns) => drop(turns.insert(turn)),
        None => drop(in_effect.insert(by.clone(), BTreeSet::from([turn]))),
    }
}

/// The range of one key in a set of keys and turns.
pub fn all_turns<K: Copy>(key: K) -> RangeInclusive<(K, Turn)> {
    (key, Turn::FIRST)..=(key, Turn::END)
}
