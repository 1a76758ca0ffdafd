//! Which rules one check may have: no two read the same state, and all log rules cost the same.

use super::{Excerpt, Kind, Rule};
use alloc::string::{String, ToString};
use thiserror::Error;

/// Why a rule cannot stand beside an earlier rule of its check.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the messages show what the fields are")]
pub enum Clash {
    /// Both read the same state. The message asks for a `name`.
    #[error("same identity as rule {other}, both count in the same state; give one of them {name}")]
    SameIdentity { other: Excerpt, name: &'static str },
    /// Both are log rules, and their costs differ.
    #[error(
        "costs {cost}, but rule {other} costs {other_cost}: log rules share one log; use bucket, \
         window or fixed"
    )]
    UnlikeCosts { cost: String, other: Excerpt, other_cost: String },
}

impl Clash {
    /// The clash with the first rule that reads the same state.
    #[cold]
    pub fn of_identity(rule: &Rule, before: &[Rule]) -> Option<Self> {
        let other = before.iter().find(|other| other.same_identity(rule))?;
        let name = if other.name().is_some() { "another name=" } else { "name=" };
        Some(Self::SameIdentity { other: excerpt(other), name })
    }

    /// The first log rule that does not cost what the log rules before it cost, by its index. Log rules
    /// share one log, in which a check is one entry.
    pub fn of_costs<C: PartialEq + ToString>(
        rules: &[Rule],
        cost_of: impl Fn(&Rule) -> C,
    ) -> Option<(usize, Self)> {
        let mut logs = rules.iter().enumerate().filter(|(_, rule)| rule.kind() == Kind::Log);
        let (_, first) = logs.next()?;
        let other_cost = cost_of(first);
        let (index, rule) = logs.find(|(_, rule)| cost_of(rule) != other_cost)?;
        let (cost, other_cost) = (cost_of(rule).to_string(), other_cost.to_string());
        Some((index, Self::UnlikeCosts { cost, other: excerpt(first), other_cost }))
    }
}

fn excerpt(rule: &Rule) -> Excerpt {
    Excerpt::new(rule.to_string().as_bytes())
}
