//! What a line knows of the rules of a request.

use ratelimit_core::rule::{Identity, Kind, Rule};
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
    /// Its cost, if it differs from the request's.
    cost: Option<u32>,
}

impl Entry {
    pub fn cost_or(&self, of_request: u32) -> u32 {
        self.cost.unwrap_or(of_request)
    }

    pub fn reads_log(&self) -> bool {
        self.state == Identity::LOG
    }
}

impl Rules {
    /// The rules of a request.
    pub fn of(rules: &[Rule]) -> Self {
        let entry = |rule: &Rule| Entry {
            identity: rule.identity(),
            state: rule.state(),
            text: hash_of_limit(rule),
            cost: rule.cost().own(),
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

    /// Whether each of these identities, which are sorted, has a rule.
    pub(super) fn contain_all(&self, identities: &[Identity]) -> bool {
        let mut entries = self.0.iter();
        identities.iter().all(|identity| {
            let found = entries.find(|entry| entry.identity >= *identity);
            found.is_some_and(|entry| entry.identity == *identity)
        })
    }

    pub(super) fn get(&self, identity: &Identity) -> Option<&Entry> {
        let place = self.0.binary_search_by_key(identity, |entry| entry.identity).ok()?;
        self.0.get(place)
    }
}

/// Whether a rule reads the log of its key.
pub(super) fn reads_log(rule: &Rule) -> bool {
    rule.kind() == Kind::Log
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
