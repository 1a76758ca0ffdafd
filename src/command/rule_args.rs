//! The rules of a request as arguments of its effect: a rule as the caller wrote it,
//! a policy as its rules, so that a replica needs no policy to read them. A rule that
//! `COST name=n` names has that cost in its text.

use std::borrow::Cow;

use crate::policy::UsedPolicies;
use crate::server::{Args, JoinedArgs, Texts};
use ratelimit_core::rule::{Rule, WithCost};

/// The rules, an argument each.
#[derive(Debug)]
pub enum RuleArgs<'a> {
    /// Consecutive arguments of the request, or the rules of one policy.
    Borrowed(Args<'a>),
    /// Both, put together.
    Joined(JoinedArgs<'a>),
    /// Copies, some of them with a named cost.
    Copied(Texts),
}

impl<'a> RuleArgs<'a> {
    /// `written` are the arguments that are rules or name policies; `named` holds these
    /// policies.
    pub fn of(written: Args<'a>, named: &'a UsedPolicies) -> Self {
        if named.is_empty() {
            return Self::Borrowed(written);
        }
        let rules_of = |text: &[u8]| Some(named.get(text.strip_prefix(b"@")?)?.texts().args());
        let only = written.get(0).filter(|_| written.len() == 1);
        if let Some(rules) = only.and_then(|only| rules_of(only.bytes())) {
            return Self::Borrowed(rules);
        }
        let mut joined = JoinedArgs::default();
        for arg in written.iter() {
            match rules_of(arg.bytes()) {
                Some(rules) => joined.extend(rules),
                None => joined.push(arg),
            }
        }
        Self::Joined(joined)
    }

    /// The arguments of a check of these rules, which are in the same order.
    #[inline]
    pub fn of_check(written: Args<'a>, named: &'a UsedPolicies, rules: &[Rule]) -> Self {
        match rules.iter().any(|rule| rule.cost().is_named()) {
            true => Self::with_costs(written, named, rules),
            false => Self::of(written, named),
        }
    }

    #[cold]
    fn with_costs(written: Args<'a>, named: &'a UsedPolicies, rules: &[Rule]) -> Self {
        let args = Self::of(written, named);
        let texts = args.args().iter().zip(rules).map(|(arg, rule)| match rule.cost().is_named() {
            true => Cow::Owned(WithCost(rule).to_string().into_bytes()),
            false => Cow::Borrowed(arg.bytes()),
        });
        Self::Copied(Texts::new(texts))
    }

    pub fn args(&self) -> Args<'_> {
        match self {
            Self::Borrowed(args) => *args,
            Self::Joined(joined) => joined.args(),
            Self::Copied(texts) => texts.args(),
        }
    }
}
