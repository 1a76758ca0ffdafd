//! What a line knows of the rules of a request.

use ratelimit_core::rule::{Identity, Kind, Rule};
use std::hash::DefaultHasher;

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
