//! The rules of a request as arguments of its effect: a rule as the caller wrote it,
//! a policy as its rules, so that a replica needs no policy to read them.

use crate::policy::UsedPolicies;
use crate::server::{Args, Joined};

/// The rules, an argument each.
#[derive(Debug)]
pub enum RuleArgs<'a> {
    /// Consecutive arguments of the request, or the rules of one policy.
    Borrowed(Args<'a>),
    /// Both, put together.
    Joined(Joined<'a>),
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
        let mut joined = Joined::default();
        for arg in written.iter() {
            match rules_of(arg.bytes()) {
                Some(rules) => joined.extend(rules),
                None => joined.push(arg),
            }
        }
        Self::Joined(joined)
    }

    pub fn args(&self) -> Args<'_> {
        match self {
            Self::Borrowed(args) => *args,
            Self::Joined(joined) => joined.args(),
        }
    }
}
