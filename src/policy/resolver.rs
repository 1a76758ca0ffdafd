//! Finds the rules of a request's arguments: names of policies, plans of keys, and texts of rules; and
//! counts the checks of the policies.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{GENERATION, NO_GENERATION, Policy, get};
use crate::config::{self, Enforcement};
use crate::metrics;
use ratelimit_engine::check::Decision;
use ratelimit_engine::key::{Check, Verdict};
use ratelimit_engine::rule::{Name, Rule, RuleError};
use ratelimit_protocol::parse::{Limits, RuleArgError, RuleCache, RuleResolver};

/// What resolvers reuse: caches, and the memory for plans.
#[derive(Debug, Default)]
pub struct Memory {
    rules: RuleCache,
    policies: PolicyCache,
    plans: Vec<KeysPlan>,
}

/// The policies of recent requests, because later requests usually name them again.
#[derive(Debug, Default)]
struct PolicyCache {
    policies: Vec<Arc<Policy>>,
    /// The [`GENERATION`] of the policies.
    generation: u64,
}

impl PolicyCache {
    /// How many policies a request leaves for the next one: enough for what an application uses
    /// regularly, few enough for a linear search.
    const CACHED: usize = 8;

    /// Drops what a request may not find: policies that may have changed, and those beyond the bound.
    fn begin(&mut self) {
        let generation = GENERATION.load(Ordering::Relaxed);
        let keep = if self.generation == generation { Self::CACHED } else { 0 };
        self.policies.truncate(keep);
        self.generation = generation;
    }
}

/// What a request asked of a key's plan.
#[derive(Debug)]
struct KeysPlan {
    /// The index of the key in the request.
    key: usize,
    /// The plan, if it is a known policy.
    known: Option<Name>,
    is_unknown: bool,
}

/// Resolves the arguments of one request: names of policies, and rules. A request sees one policy under
/// a name, even if the policy changes meanwhile.
#[derive(Debug)]
pub struct Resolver<'m> {
    rules: &'m mut RuleCache,
    /// The policies that the request has named come first.
    cache: &'m mut PolicyCache,
    /// How many policies the request has named.
    named: usize,
    /// The plans that the request has asked for, one a key.
    plans: &'m mut Vec<KeysPlan>,
    /// Whether a stand-in replaces a policy that is unknown.
    replaces_unknown: bool,
}

impl RuleResolver for Resolver<'_> {
    /// Finds the rules of a policy, and marks it as named by the request.
    fn policy(&mut self, name: &[u8]) -> Result<&[Rule], RuleArgError> {
        if self.named == 0 {
            self.cache.begin();
        }
        let policies = &mut self.cache.policies;
        let cached = policies.iter().position(|policy| policy.name.as_bytes() == name);
        let mut index = cached.unwrap_or(policies.len());
        if cached.is_none() {
            let policy = match get(name) {
                None if self.replaces_unknown => {
                    // So the next request does not find it.
                    self.cache.generation = NO_GENERATION;
                    stand_in(name)
                }
                policy => policy,
            };
            policies.push(policy.ok_or(RuleArgError::UnknownPolicy)?);
        }
        if index >= self.named {
            policies.swap(self.named, index);
            index = self.named;
            self.named = index.saturating_add(1);
        }
        Ok(policies.get(index).map_or(&[], |policy| &policy.rules))
    }

    fn named_a_policy(&self) -> bool {
        self.named > 0
    }

    #[inline(always)]
    fn rule(&mut self, text: &[u8], rules: &mut Vec<Rule>) -> Result<bool, RuleError> {
        self.rules.add(text, rules)
    }
}

impl<'m> Resolver<'m> {
    /// A resolver for a new request.
    #[inline]
    pub fn new(Memory { rules, policies, plans }: &'m mut Memory) -> Self {
        plans.clear();
        Self { rules, cache: policies, named: 0, plans, replaces_unknown: false }
    }

    /// The bounds of the request. While checks are off, its rules may count in one state, and a policy
    /// that allows everything stands in for each unknown one, so that no check fails for either.
    pub fn limits(&mut self) -> Limits {
        self.replaces_unknown = config::enforcement() == Enforcement::Off;
        let limits = config::limits();
        Limits { same_identity: self.replaces_unknown, ..limits }
    }

    /// Finds the rules of the policy that a key's plan names, or of the default.
    pub fn planned(
        &mut self,
        key: usize,
        default: &[u8],
        plan: impl FnOnce() -> Option<Name>,
    ) -> Result<&[Rule], RuleArgError> {
        if self.asked(key).is_none() {
            let plan = plan();
            let known = plan.filter(|plan| self.policy(plan.as_bytes()).is_ok());
            self.plans.push(KeysPlan { key, known, is_unknown: plan != known });
        }
        match self.asked(key).and_then(|plan| plan.known) {
            Some(plan) => self.policy(plan.as_bytes()),
            None => self.policy(default),
        }
    }

    fn asked(&self, key: usize) -> Option<&KeysPlan> {
        self.plans.iter().find(|plan| plan.key == key)
    }

    fn all_named(&self) -> &[Arc<Policy>] {
        self.cache.policies.get(..self.named).unwrap_or_default()
    }

    /// A policy that the request names directly, or as `plan:default` through the plan of a key.
    pub fn named(&self, name: &[u8], key: usize) -> Option<&Arc<Policy>> {
        let name = if self.plans.is_empty() { name } else { self.by_plan(name, key) };
        self.all_named().iter().find(|policy| policy.name.as_bytes() == name)
    }

    /// The name of the policy that `plan:default` stands for; any other name stands for itself.
    fn by_plan<'n>(&'n self, name: &'n [u8], key: usize) -> &'n [u8] {
        let Some(default) = name.strip_prefix(b"plan:") else { return name };
        self.asked(key).and_then(|plan| plan.known.as_ref()).map_or(default, Name::as_bytes)
    }

    /// Counts a check for each policy that it named, and its plans that name unknown policies.
    #[inline]
    pub fn count(&self, verdict: Verdict, clock_us: u64) {
        if self.named > 0 {
            for policy in self.all_named() {
                policy.counts.used_us.set(clock_us);
                policy.counts.add(verdict);
            }
            count_unknown(self.plans.iter());
        }
    }

    /// Notes that a check named its policies, even if it counts for none of them.
    pub fn note_use(&self, clock_us: u64) {
        self.all_named().iter().for_each(|policy| policy.counts.used_us.set(clock_us));
    }

    /// Counts a check of one key for each policy whose shadows would have denied it.
    #[cold]
    pub fn count_shadowed(&self, check: &Check<'_>, decisions: &[Decision]) {
        let named = self.all_named().iter().filter(|policy| policy.shadows(check, decisions));
        named.for_each(|policy| policy.count_shadowed());
    }

    /// The policies of one key, whose rules are the texts `written`.
    pub fn of_key<'t>(
        &self,
        key: usize,
        written: impl Iterator<Item = &'t [u8]>,
    ) -> impl Iterator<Item = &Arc<Policy>> {
        written.filter_map(move |text| self.named(text.strip_prefix(b"@")?, key))
    }

    /// Counts a check of one key alone, whose rules are the texts `written`.
    pub fn count_of_key<'t>(
        &self,
        key: usize,
        written: impl Iterator<Item = &'t [u8]>,
        verdict: Verdict,
    ) {
        self.of_key(key, written).for_each(|policy| policy.counts.add(verdict));
        count_unknown(self.asked(key).into_iter());
    }
}

/// A policy that stands in for an unknown one.
#[cold]
fn stand_in(name: &[u8]) -> Option<Arc<Policy>> {
    let rule = Rule::from_text(b"bucket:0/s,shadow").ok()?;
    Some(Arc::new(Policy::new(Name::new(name)?, &[rule])))
}

/// Counts the plans that name unknown policies.
fn count_unknown<'p>(plans: impl Iterator<Item = &'p KeysPlan>) {
    let unknown = plans.filter(|plan| plan.is_unknown).count();
    if unknown > 0 {
        metrics::PLANS_UNKNOWN.add(unknown as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{delete, set};
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap()
    }

    fn rules(line: &str) -> Vec<Rule> {
        line.split(' ').map(|text| Rule::from_text(text.as_bytes()).unwrap()).collect()
    }

    #[test]
    fn cached_policies_follow_changes_between_requests_only() {
        let memory = &mut Memory::default();
        for text in ["cached", "other"] {
            let mut request = Resolver::new(memory);
            assert_eq!(request.policy(text.as_bytes()), Err(RuleArgError::UnknownPolicy));
            set(name(text), &rules("20/m"));
        }
        for line in ["20/m 800/d", "30/m", "30/m"] {
            set(name("cached"), &rules(line));
            let mut request = Resolver::new(memory);
            assert_eq!(request.policy(b"other"), Ok(&rules("20/m")[..]));
            assert_eq!(request.policy(b"cached"), Ok(&rules(line)[..]));
            // A request sees one policy under a name, even if the policy changes meanwhile.
            set(name("cached"), &rules("1/s"));
            assert_eq!(request.policy(b"cached"), Ok(&rules(line)[..]));
            assert!(request.named(b"cached", 0).is_some_and(|policy| *policy.rules == rules(line)));
            let mut next = Resolver::new(memory);
            assert!(!next.named_a_policy() && next.named(b"cached", 0).is_none());
            assert_eq!(next.policy(b"cached"), Ok(&rules("1/s")[..]));
            assert!(next.named(b"other", 0).is_none(), "only the request before named it");
        }
        delete(&name("cached"));
        assert_eq!(Resolver::new(memory).policy(b"cached"), Err(RuleArgError::UnknownPolicy));
    }

    #[test]
    fn a_failed_request_leaves_no_plan_behind() {
        let memory = &mut Memory::default();
        set(name("sold"), &rules("100/m"));
        let unknown = Resolver::new(memory).planned(0, b"nowhere", || None).map(<[_]>::to_vec);
        assert_eq!(unknown, Err(RuleArgError::UnknownPolicy));
        let mut next = Resolver::new(memory);
        assert!(next.plans.is_empty());
        assert_eq!(next.planned(0, b"nowhere", || Some(name("sold"))), Ok(&rules("100/m")[..]));
    }

    #[test]
    fn the_cache_is_bounded() {
        let memory = &mut Memory::default();
        let mut request = Resolver::new(memory);
        for n in 0..3 * PolicyCache::CACHED {
            let text = format!("few{n}");
            set(name(&text), &rules(&format!("{n}/m")));
        }
        for n in 0..3 * PolicyCache::CACHED {
            let found = request.policy(format!("few{n}").as_bytes());
            assert_eq!(found, Ok(&rules(&format!("{n}/m"))[..]));
        }
        let mut next = Resolver::new(memory);
        assert!(next.policy(b"few0").is_ok());
        // Other tests change policies meanwhile, which empties the cache.
        assert!(memory.policies.policies.len() <= PolicyCache::CACHED);
    }
}
