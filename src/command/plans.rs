//! Plans: policies that are bound to keys.
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
use crate::policy::Resolver;
use crate::server::{Arg, Call, clock};
use ratelimit_engine::key::Plan;
use ratelimit_engine::rule::{Name, Rule};
use ratelimit_protocol::parse::{PlanOf, RuleArgError, RuleCache, RuleResolver};

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
pub fn of_call<'r, 'm>(
    call: &'r Call<'_>,
    resolver: &'r mut Resolver<'m>,
) -> WithPlans<'r, 'm, impl Fn(PlanOf) -> Option<Name>> {
    WithPlans::new(resolver, |PlanOf { at_us, .. }| {
        Some(of_key(call, call.key_name().ok()?, at_us)?.name)
    })
}

/// The plan of a key that is not open.
pub fn of_key(call: &Call<'_>, name: Arg<'_>, at_us: Option<u64>) -> Option<Plan> {
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

    fn asked_for_plan(&self) -> bool {
        self.resolver.asked_for_plan()
    }

    #[inline]
    fn cache(&mut self) -> Option<&mut RuleCache> {
        self.resolver.cache()
    }
}
