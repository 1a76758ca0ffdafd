//! What a client asks of a line, and what a line knows of the rules of a request.

use ratelimit_engine::check::Decision;
use ratelimit_engine::key::{Check, Limiter};
use ratelimit_engine::rule::{Identity, Rule, identities};
use std::collections::BTreeSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::Arc;

/// Identifies a waiter. Later arrivals have greater tickets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(super) u64);

/// Clients of a line that are served in order of arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// A flow of a higher priority goes first.
    pub priority: u8,
    /// Empty for clients that name none.
    pub name: Box<[u8]>,
}

/// What a client asks of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The flow that it joins.
    pub flow: Flow,
    /// The flow's new weight; at least 1.
    pub weight: u16,
    /// Its rules.
    pub rules: Rules,
    /// When the plan ends by which the rules were read; `None` if they do not depend on the key's plan.
    pub plan_end: Option<PlanEnd>,
    /// The hold that it asks for.
    pub hold: Option<HoldId>,
}

/// When a key's plan ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlanEnd {
    /// At this time.
    At(u64),
    /// The key has no plan, or its plan has no end.
    Never,
}

impl PlanEnd {
    /// The time of the end, if there is one.
    pub const fn at_us(self) -> Option<u64> {
        match self {
            Self::At(at_us) => Some(at_us),
            Self::Never => None,
        }
    }
}

/// What a line knows of a client.
#[derive(Debug)]
pub(super) struct Client {
    pub rules: Arc<Rules>,
    /// The generation of policies and plans from which the rules come.
    pub generation: u64,
    pub hold: Option<HoldId>,
}

/// A hash of the id of a hold. Clients with equal hashes are woken together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HoldId(u64);

impl HoldId {
    /// The hash of an id.
    pub fn of(id: &[u8]) -> Self {
        Self(hash_of(id))
    }
}

/// A hash, equal for equal values.
pub(super) fn hash_of(value: impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

/// Why clients in line may pass.
#[derive(Clone, Copy, Debug)]
pub enum Cause<'a> {
    /// A check consumed. A rule with the same text as a rule of that check admits no more than before.
    Consumed {
        /// The rules of the check.
        rules: &'a [Rule],
        /// The id of the hold that the check took.
        hold: Option<&'a [u8]>,
    },
    /// These states got something back, or will get it back earlier.
    Returned(&'a [Identity]),
    /// Anything else.
    Changed,
}

/// The denial of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Milliseconds until the request may pass, unless its key changes earlier.
    pub wait_ms: u64,
    /// Milliseconds until fewer rules may deny the request.
    pub again_ms: u64,
    /// The [`identities`] of the rules that deny the request; empty while its key is paused.
    pub by: Box<[Identity]>,
}

impl Denial {
    /// The denial of a check that has to wait this long.
    pub fn of(
        wait_ms: u64,
        check: &Check<'_>,
        decisions: &[Decision],
        key: Option<&Limiter>,
    ) -> Self {
        let pause = key.and_then(|key| key.pause_at(check.now_us));
        let ends = check.denials(decisions).map(|(_, decision)| decision.wait_ms);
        let ends = ends.chain(pause.map(|pause| pause.left_ms(check.now_us)));
        let again_ms = ends.filter_map(|ms| u64::try_from(ms).ok()).min().unwrap_or(wait_ms);
        let by = check.denials(decisions).map(|(rule, _)| rule).filter(|_| pause.is_none());
        Self { wait_ms, again_ms, by: identities(by) }
    }
}

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
