//! The state of a request, the memory that requests reuse, so that a check does not allocate, and the plans
//! of keys.
//!
//! A request's state is a value that is made for the request and dropped with it. Only memory outlives
//! it: empty vectors, and caches of what a text or a policy means, which is the same for every request.
//! A call within a call (from a module that reacts to a keyspace event) gets other memory.
//!
//! A plan is a policy that is bound to a key:
//!
//! ```text
//! RL.PLAN user:42 pro                 the key stores the name
//! RL.CHECK user:42 @plan:free         checks the policy that the key stores, or @free without one
//! ```
//!
//! The module reads the key's plan while it parses the rules, and only if a rule asks for the plan. If
//! the plan names an unknown policy, the default decides: an operator's mistake must not stop a
//! customer.

use crate::datatype::LIMITER;
use crate::policy::{self, Resolver};
use crate::server::{Arg, Call, PerServer, Texts, clock};
use ratelimit_engine::check::Decision;
use ratelimit_engine::key::Plan;
use ratelimit_engine::rule::{Name, Rule, RuleError};
use ratelimit_protocol::parse::{Bucket, DirectMapped, PlanOf, RuleArgError, RuleResolver};
use std::cell::OnceCell;

/// The bucket of an `RL.THROTTLE` as a rule, and the rule's text. Callers do not send the text, so it is
/// built when the rule is first propagated.
type Buckets = DirectMapped<Bucket, (Rule, OnceCell<Texts>)>;

/// What requests reuse.
#[derive(Debug, Default)]
struct Memory {
    rules: Vec<Rule>,
    decisions: Vec<Decision>,
    resolver: policy::Memory,
    buckets: Buckets,
}

/// The state of a request.
#[derive(Debug)]
pub struct Scratch<'m> {
    /// The rules of the request.
    pub rules: &'m mut Vec<Rule>,
    /// What each rule decided.
    pub decisions: &'m mut Vec<Decision>,
    /// The policies and plans of the request.
    pub resolver: Resolver<'m>,
    /// A cache.
    pub buckets: &'m mut Buckets,
}

static MEMORY: PerServer<Memory> = PerServer::empty();

/// Runs a call with the state of a new request.
#[inline]
pub fn with<T>(call: &Call<'_>, body: impl FnOnce(Scratch<'_>) -> T) -> T {
    MEMORY.with(call, |Memory { rules, decisions, resolver, buckets }| {
        rules.clear();
        decisions.clear();
        body(Scratch { rules, decisions, resolver: Resolver::new(resolver), buckets })
    })
}

/// Resolves rules that may ask for plans.
pub struct WithPlans<'r, 'm, F> {
    resolver: &'r mut Resolver<'m>,
    /// Returns the name of a key's plan.
    plan_of: F,
}

impl<'r, 'm, F: Fn(PlanOf) -> Option<Name>> WithPlans<'r, 'm, F> {
    #[inline(always)]
    pub const fn new(resolver: &'r mut Resolver<'m>, plan_of: F) -> Self {
        Self { resolver, plan_of }
    }
}

/// Resolves the rules of a call whose only key is not open.
pub fn plans_of_call<'r, 'm>(
    call: &'r Call<'_>,
    resolver: &'r mut Resolver<'m>,
) -> WithPlans<'r, 'm, impl Fn(PlanOf) -> Option<Name>> {
    WithPlans::new(resolver, |PlanOf { at_us, .. }| {
        Some(plan_of_key(call, call.key_name().ok()?, at_us)?.name)
    })
}

/// The plan of a key that is not open.
pub fn plan_of_key(call: &Call<'_>, name: Arg<'_>, at_us: Option<u64>) -> Option<Plan> {
    let key = call.open_read(name, &LIMITER).ok()??;
    key.value()?.plan_at(at_us.unwrap_or_else(clock::now_us)).cloned()
}

impl<F: Fn(PlanOf) -> Option<Name>> RuleResolver for WithPlans<'_, '_, F> {
    #[inline]
    fn policy(&mut self, name: &[u8]) -> Result<&[Rule], RuleArgError> {
        self.resolver.policy(name)
    }

    fn plan(&mut self, key: PlanOf, default: &[u8]) -> Result<&[Rule], RuleArgError> {
        let Self { resolver, plan_of } = self;
        resolver.planned(key.key, default, || plan_of(key))
    }

    #[inline]
    fn named_a_policy(&self) -> bool {
        self.resolver.named_a_policy()
    }

    #[inline(always)]
    fn rule(&mut self, text: &[u8], rules: &mut Vec<Rule>) -> Result<bool, RuleError> {
        self.resolver.rule(text, rules)
    }
}
