//! Buffers and caches that calls reuse, so a check does not allocate them.
//!
//! A call within a call (from a module that reacts to a keyspace event) gets new ones.

use super::bucket_cache::BucketCache;
use crate::policy::UsedPolicies;
use crate::server::{Call, PerServer};
use ratelimit_core::limit::Decision;
use ratelimit_core::parse::{RuleArgError, RuleCache, RuleResolver};
use ratelimit_core::rule::{NamedCost, Rule, RuleError};

#[derive(Debug, Default)]
pub struct Scratch {
    pub rules: Vec<Rule>,
    pub named_costs: Vec<NamedCost>,
    pub decisions: Vec<Decision>,
    pub resolver: Resolver,
    pub buckets: BucketCache,
}

/// Resolves the arguments that are rules or names of policies.
#[derive(Debug, Default)]
pub struct Resolver {
    /// The policies that the call named.
    pub named: UsedPolicies,
    cache: RuleCache,
}

impl RuleResolver for Resolver {
    fn policy(&mut self, name: &[u8]) -> Result<&[Rule], RuleArgError> {
        self.named.find(name)
    }

    fn named_a_policy(&self) -> bool {
        !self.named.is_empty()
    }

    #[inline(always)]
    fn rule(&mut self, text: &[u8], rules: &mut Vec<Rule>) -> Result<bool, RuleError> {
        self.cache.rule(text, rules)
    }
}

static SCRATCH: PerServer<Scratch> = PerServer::empty();

/// Runs a call with the buffers, which still have the content of the last call.
#[inline]
pub fn with<T>(call: &Call<'_>, body: impl FnOnce(&mut Scratch) -> T) -> T {
    SCRATCH.with(call, |scratch| {
        let result = body(scratch);
        scratch.resolver.named.clear();
        result
    })
}
