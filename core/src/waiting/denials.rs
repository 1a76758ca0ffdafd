//! Which rules deny the first of some flows, so that others of these rules may not pass them.

use super::turn::Turn;
use crate::rule::Identity;
use std::collections::{BTreeMap, BTreeSet};

/// The rules that deny somebody, sorted. Without a rule it is a pause, which denies all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Denying {
    /// The one by which they are found, best a rare one.
    by: Option<Identity>,
    rules: Box<[Identity]>,
}

impl Denying {
    /// These rules, the first of which in the order of `count` is the rarest.
    pub fn new(rules: Box<[Identity]>, count: impl Fn(&Identity) -> usize) -> Self {
        Self { by: rules.iter().min_by_key(|rule| count(rule)).copied(), rules }
    }

    pub const fn rules(&self) -> &[Identity] {
        &self.rules
    }
}

/// Sets of rules that deny, each with the turns of those whom exactly these deny.
#[derive(Debug)]
pub struct Denials(BTreeMap<Denying, BTreeSet<Turn>>);

impl Denials {
    pub const NONE: Self = Self(BTreeMap::new());

    pub fn add(&mut self, denying: &Denying, turn: Turn) {
        match self.0.get_mut(denying) {
            Some(turns) => drop(turns.insert(turn)),
            None => drop(self.0.insert(denying.clone(), BTreeSet::from([turn]))),
        }
    }

    pub fn remove(&mut self, denying: &Denying, turn: Turn) {
        let Some(turns) = self.0.get_mut(denying) else { return };
        turns.remove(&turn);
        if turns.is_empty() {
            self.0.remove(denying);
        }
    }

    /// Whether a request of these rules, at this turn, has all rules that deny one before it.
    /// `compared` counts the rules that it is compared with.
    pub fn keep_back(&self, rules: &[Identity], turn: Turn, compared: &mut u32) -> bool {
        let found_by = |by: Option<Identity>| {
            let from = Denying { by, rules: Box::default() };
            self.0.range(from..).take_while(move |(denying, _)| denying.by == by)
        };
        let by = std::iter::once(None).chain(rules.iter().copied().map(Some));
        by.flat_map(found_by).any(|(denying, turns)| {
            let mut has = |one| {
                *compared = compared.saturating_add(1);
                rules.binary_search(one).is_ok()
            };
            turns.first().is_some_and(|&first| first < turn) && denying.rules.iter().all(&mut has)
        })
    }
}
