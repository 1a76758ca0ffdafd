//! Buffers and caches that calls reuse, so a check does not allocate them.
//!
//! A call within a call (from a module that reacts to a keyspace event) gets new ones.

use super::effect_args::EffectArgs;
use crate::policy::Resolver;
use crate::server::{Call, PerServer, Texts};
use ratelimit_core::direct_mapped::DirectMapped;
use ratelimit_core::limit::Decision;
use ratelimit_core::parse::Bucket;
use ratelimit_core::rule::{NamedCost, Rule};
use std::cell::OnceCell;

#[derive(Debug, Default)]
pub struct Scratch {
    pub rules: Vec<Rule>,
    pub named_costs: Vec<NamedCost>,
    pub decisions: Vec<Decision>,
    pub resolver: Resolver,
    pub buckets: DirectMapped<Bucket, BucketRule>,
}

/// The bucket of an `RL.THROTTLE` as a rule.
#[derive(Debug)]
pub struct BucketRule {
    pub rule: Rule,
    /// The canonical text, built when it is first propagated: callers of `RL.THROTTLE` write none.
    text: OnceCell<Texts>,
}

impl From<Rule> for BucketRule {
    fn from(rule: Rule) -> Self {
        Self { rule, text: OnceCell::new() }
    }
}

impl BucketRule {
    pub fn args(&self) -> EffectArgs<'_> {
        let text = || Texts::new([self.rule.to_string()].iter());
        EffectArgs::Borrowed(self.text.get_or_init(text).args())
    }
}

static SCRATCH: PerServer<Scratch> = PerServer::empty();

/// Runs a call with the buffers, which still have the content of the last call.
#[inline]
pub fn with<T>(call: &Call<'_>, body: impl FnOnce(&mut Scratch) -> T) -> T {
    SCRATCH.with(call, |scratch| {
        let result = body(scratch);
        scratch.resolver.clear();
        result
    })
}
