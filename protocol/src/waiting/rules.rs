//! What a line knows of the rules of a request.

use ratelimit_engine::rule::{Identity, Rule};
use std::collections::BTreeSet;
use std::hash::DefaultHasher;
use std::sync::Arc;

/// A hash, equal for rules that admit and deny a cost alike.
pub fn hash_of_limit(rule: &Rule) -> u64 {
    rule.hash_of_limit(DefaultHasher::new())
}

/// The rules of a request that may deny it, sorted by identity. Clients with equal rules share them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rules(Box<[Entry]>);

/// A rule of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub identity: Identity,
    /// The state that it reads.
    pub state: Identity,
    /// A hash of its text: rules with equal hashes deny alike.
    pub text: u64,
}

impl Rules {
    /// The rules of a request.
    pub fn of(rules: &[Rule]) -> Self {
        let entry = |rule: &Rule| Entry {
            identity: rule.identity(),
            state: rule.state(),
            text: hash_of_limit(rule),
        };
        let mut entries: Vec<_> =
            rules.iter().filter(|rule| !rule.is_shadow()).map(entry).collect();
        entries.sort_unstable_by_key(|entry| entry.identity);
        Self(entries.into())
    }

    /// How many bytes the rules take.
    pub const fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter()
    }

    /// Whether each of these rules, which are sorted, has a rule of its identity here.
    pub(super) fn contain_all(&self, others: &[Entry]) -> bool {
        let mut entries = self.0.iter();
        others.iter().all(|other| {
            let found = entries.find(|entry| entry.identity >= other.identity);
            found.is_some_and(|entry| entry.identity == other.identity)
        })
    }

    /// The rule of this identity. A rule that the request has got since has no text yet.
    pub(super) fn entry(&self, identity: Identity) -> Entry {
        let place = self.0.binary_search_by_key(&identity, |entry| entry.identity).ok();
        let unread = Entry { identity, state: identity, text: 0 };
        place.and_then(|place| self.0.get(place)).copied().unwrap_or(unread)
    }
}

/// Equal rules of several clients, which take memory once.
#[derive(Debug)]
pub struct SharedRules {
    rules: BTreeSet<Arc<Rules>>,
    bytes: usize,
}

impl SharedRules {
    pub const NONE: Self = Self { rules: BTreeSet::new(), bytes: 0 };

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// How many bytes all rules take.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many more bytes these rules would take.
    pub fn bytes_of(&self, rules: &Rules) -> usize {
        if self.rules.contains(rules) { 0 } else { rules.bytes() }
    }

    /// Returns the one allocation of these rules that clients share.
    pub fn share(&mut self, rules: Rules) -> Arc<Rules> {
        if let Some(shared) = self.rules.get(&rules) {
            return Arc::clone(shared);
        }
        self.bytes = self.bytes.saturating_add(rules.bytes());
        let rules = Arc::new(rules);
        self.rules.insert(Arc::clone(&rules));
        rules
    }

    /// Drops rules that only the caller still has.
    pub fn unshare(&mut self, rules: &Arc<Rules>) {
        if Arc::strong_count(rules) == 2 && self.rules.remove(rules) {
            self.bytes = self.bytes.saturating_sub(rules.bytes());
        }
    }
}
