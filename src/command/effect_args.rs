//! The rules or costs of a request as arguments of its effect. A rule stays as the caller wrote it,
//! and a policy becomes its rules, so a replica can read them without the policy. A rule named in
//! `COST name=n` gets that cost in its text, and an observed rule the option `shadow`.

use std::borrow::Cow;

use crate::policy::Resolver;
use crate::server::{Arg, Args, Texts};
use ratelimit_engine::rule::Rule;
use ratelimit_protocol::parse::RuleResolver;

/// The arguments of an effect after its texts.
#[derive(Debug, Default)]
pub enum EffectArgs<'a> {
    #[default]
    None,
    /// Consecutive arguments of the request, or the rules of one policy.
    Borrowed(Args<'a>),
    /// Arguments of the request and rules of policies, joined.
    Joined(Vec<Arg<'a>>),
    /// Copies, some with a named cost or as shadows.
    Copied(Texts),
}

impl<'a> EffectArgs<'a> {
    /// `written` are the arguments that are rules or names of policies. `resolver` found these policies
    /// for the key with this index.
    pub fn of_rules(written: Args<'a>, resolver: &'a Resolver<'_>, key: usize) -> Self {
        if !resolver.named_a_policy() {
            return Self::Borrowed(written);
        }
        let rules_of =
            |text: &[u8]| Some(resolver.named(text.strip_prefix(b"@")?, key)?.texts.args());
        let only = written.get(0).filter(|_| written.len() == 1);
        if let Some(rules) = only.and_then(|only| rules_of(only.bytes())) {
            return Self::Borrowed(rules);
        }
        let mut joined = Vec::new();
        for arg in written.iter() {
            match rules_of(arg.bytes()) {
                Some(rules) => joined.extend(rules.iter()),
                None => joined.push(arg),
            }
        }
        Self::Joined(joined)
    }

    /// The arguments for a check of these rules, given in the same order.
    #[inline]
    pub fn of_check(
        written: Args<'a>,
        resolver: &'a Resolver<'_>,
        key: usize,
        rules: &[Rule],
    ) -> Self {
        let args = Self::of_rules(written, resolver, key);
        if rules.iter().any(Rule::differs_from_text) { args.rewritten(rules) } else { args }
    }

    #[cold]
    fn rewritten(self, rules: &[Rule]) -> Self {
        let texts =
            self.args().iter().zip(rules).map(|(arg, rule)| match rule.differs_from_text() {
                true => Cow::Owned(format!("{rule:#}").into_bytes()),
                false => Cow::Borrowed(arg.bytes()),
            });
        Self::Copied(Texts::new(texts))
    }

    pub fn args(&self) -> Args<'_> {
        match self {
            Self::None => Args::default(),
            Self::Borrowed(args) => *args,
            Self::Joined(joined) => Args::joined(joined),
            Self::Copied(texts) => texts.args(),
        }
    }
}
