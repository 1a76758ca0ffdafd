//! A request's rules as arguments of its effect. A rule stays as the caller wrote it, and a policy
//! becomes its rules, so a replica can read them without the policy. A rule named in `COST name=n`
//! gets that cost in its text.

use std::borrow::Cow;

use crate::policy::UsedPolicies;
use crate::server::{Args, JoinedArgs, Texts};
use ratelimit_core::rule::Rule;

/// The rules, one argument each.
#[derive(Debug)]
pub enum RuleArgs<'a> {
    /// Consecutive arguments of the request, or the rules of one policy.
    Borrowed(Args<'a>),
    /// Arguments of the request and rules of policies, joined.
    Joined(JoinedArgs<'a>),
    /// Copies, some with a named cost.
    Copied(Texts),
}

impl<'a> RuleArgs<'a> {
    /// `written` are the arguments that are rules or names of policies; `named` holds these
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

    /// The arguments for a check of these rules, given in the same order.
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
            true => Cow::Owned(format!("{rule:#}").into_bytes()),
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
