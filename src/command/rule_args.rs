//! The rules of a request in the words of an effect: as the caller wrote them,
//! and for a policy its rules, so that whoever reads them needs no policy.

use crate::policy::UsedPolicies;
use crate::server::{Args, Joined};

/// The arguments that say the rules.
#[derive(Debug)]
pub enum RuleArgs<'a> {
    AsTheyAre(Args<'a>),
    Joined(Joined<'a>),
}

impl<'a> RuleArgs<'a> {
    /// Of the arguments that are rules, and the policies that some of them name.
    pub fn of(written: Args<'a>, named: &'a UsedPolicies) -> Self {
        if named.is_empty() {
            return Self::AsTheyAre(written);
        }
        let rules_of = |text: &[u8]| Some(named.get(text.strip_prefix(b"@")?)?.texts().args());
        let only = written.get(0).filter(|_| written.len() == 1);
        if let Some(rules) = only.and_then(|only| rules_of(only.bytes())) {
            return Self::AsTheyAre(rules);
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
            Self::AsTheyAre(args) => *args,
            Self::Joined(joined) => joined.args(),
        }
    }
}
