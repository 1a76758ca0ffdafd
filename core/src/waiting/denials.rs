//! Which rules deny the first of some flows, so that others of these rules may not pass them.

use super::turn::Turn;
use crate::rule::Identity;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Sets of rules that deny, each with the turns of those whom exactly these deny. Rules are sorted.
#[derive(Debug)]
pub struct Denials(BTreeMap<Box<[Identity]>, BTreeSet<Turn>>);

impl Denials {
    pub const NONE: Self = Self(BTreeMap::new());

    pub fn add(&mut self, by: &[Identity], turn: Turn) {
        match self.0.get_mut(by) {
            Some(turns) => drop(turns.insert(turn)),
            None => drop(self.0.insert(by.into(), BTreeSet::from([turn]))),
        }
    }

    pub fn remove(&mut self, by: &[Identity], turn: Turn) {
        let Some(turns) = self.0.get_mut(by) else { return };
        turns.remove(&turn);
        if turns.is_empty() {
            self.0.remove(by);
        }
    }

    /// Whether a request of these rules, at this turn, has all rules that deny one before it.
    pub fn keep_back(&self, rules: &[Identity], turn: Turn) -> bool {
        let before = |turns: &BTreeSet<Turn>| turns.first().is_some_and(|&first| first < turn);
        // Without a rule that denies, it is a pause, which denies all.
        self.0.get(&[][..]).is_some_and(before)
            || rules.iter().any(|rule| {
                let from = Bound::Included(std::slice::from_ref(rule));
                let with = self.0.range::<[Identity], _>((from, Bound::Unbounded));
                with.take_while(|(by, _)| by.first() == Some(rule))
                    .any(|(by, turns)| before(turns) && by.iter().all(|one| rules.contains(one)))
            })
    }
}
