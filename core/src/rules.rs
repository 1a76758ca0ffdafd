//! Rules that fit together.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use ratelimit_engine::rule::{Excerpt, Kind, Rule, RuleError};
use thiserror::Error;

/// One or more rules for one check: no two count in the same state, all log rules cost the same,
/// and none has slots.
///
/// They are parsed from words separated by blanks, and printed as a text that parses to the same
/// rules:
///
/// ```
/// use ratelimit_core::Rules;
///
/// let rules: Rules = "2/s bucket:100/h,burst=200".parse()?;
/// assert_eq!(rules.to_string(), "log:2/1s bucket:100/1h,burst=200");
/// assert_eq!(rules.to_string().parse(), Ok(rules));
///
/// let error = "2/s 5/1000ms".parse::<Rules>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "rule 'log:5/1s': same identity as rule 'log:2/1s', both count in the same state; give one of \
///      them name="
/// );
/// # Ok::<(), ratelimit_core::RulesError>(())
/// ```
///
/// [`HeldRules`] may have slots.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rules<const HELD: bool = false>(Box<[Rule]>);

/// Rules that may have slots, for [`Limiter::hold`](crate::Limiter::hold). Only a hold takes slots;
/// they come back when it ends.
pub type HeldRules = Rules<true>;

impl<const HELD: bool> Rules<HELD> {
    /// The rules in the order given. The `rule` of [`Answer::Denied`](crate::Answer::Denied) is an
    /// index into them.
    pub fn iter(&self) -> core::slice::Iter<'_, Rule> {
        self.0.iter()
    }

    /// The rules, for the engine's own [`Check`](ratelimit_engine::key::Check).
    #[must_use]
    pub const fn as_slice(&self) -> &[Rule] {
        &self.0
    }
}

impl<'a, const HELD: bool> IntoIterator for &'a Rules<HELD> {
    type Item = &'a Rule;
    type IntoIter = core::slice::Iter<'a, Rule>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<const HELD: bool> FromStr for Rules<HELD> {
    type Err = RulesError;

    fn from_str(text: &str) -> Result<Self, RulesError> {
        let rule = |(index, word): (usize, &str)| {
            Rule::from_text(word.as_bytes()).map_err(|error| RulesError::Rule {
                index,
                given: Excerpt::new(word.as_bytes()),
                why: RuleFault::Text(error),
            })
        };
        let rules: Result<Vec<_>, _> =
            text.split_ascii_whitespace().enumerate().map(rule).collect();
        rules?.try_into()
    }
}

impl<const HELD: bool> TryFrom<Vec<Rule>> for Rules<HELD> {
    type Error = RulesError;

    fn try_from(rules: Vec<Rule>) -> Result<Self, RulesError> {
        if rules.is_empty() {
            return Err(RulesError::Empty);
        }
        for (index, rule) in rules.iter().enumerate() {
            let before = rules.get(..index).unwrap_or_default();
            if let Some(why) = fault::<HELD>(rule, before) {
                return Err(RulesError::Rule { index, given: excerpt(rule), why });
            }
        }
        Ok(Self(rules.into()))
    }
}

/// Why a rule cannot join the rules before it; `None` if it can.
fn fault<const HELD: bool>(rule: &Rule, before: &[Rule]) -> Option<RuleFault> {
    if rule.kind() == Kind::Slots && !HELD {
        return Some(RuleFault::Unheld);
    }
    if rule.cost().is_named() {
        return Some(RuleFault::NamedCost);
    }
    if let Some(other) = before.iter().find(|other| other.same_identity(rule)) {
        let name = if other.name().is_some() { "another name=" } else { "name=" };
        return Some(RuleFault::SameIdentity { other: excerpt(other), name });
    }
    let other = before.iter().find(|other| other.kind() == Kind::Log)?;
    let unlike = rule.kind() == Kind::Log && rule.cost() != other.cost();
    unlike.then(|| RuleFault::UnlikeCosts {
        cost: rule.cost().own(),
        other: excerpt(other),
        other_cost: other.cost().own(),
    })
}

fn excerpt(rule: &Rule) -> Excerpt {
    Excerpt::new(rule.to_string().as_bytes())
}

/// The rules' canonical texts, separated by blanks.
impl<const HELD: bool> fmt::Display for Rules<HELD> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, rule) in self.iter().enumerate() {
            write!(f, "{}{rule}", if index == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

/// Why a text or a list of rules cannot become [`Rules`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RulesError {
    /// There is no rule.
    #[error("no rule, expected one or more such as 20/1m")]
    Empty,
    /// A rule cannot be read, or does not fit those before it.
    #[error("rule {given}: {why}")]
    Rule {
        /// Its index, from 0.
        index: usize,
        /// Its text.
        given: Excerpt,
        /// What is wrong with it.
        why: RuleFault,
    },
}

/// What is wrong with one of several rules.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RuleFault {
    /// The text is no valid rule.
    #[error(transparent)]
    Text(RuleError),
    /// An earlier rule counts in the same state.
    #[error("same identity as rule {other}, both count in the same state; give one of them {name}")]
    SameIdentity {
        /// The text of the earlier rule.
        other: Excerpt,
        /// The option that would tell them apart: `name=` or `another name=`.
        name: &'static str,
    },
    /// A log rule has a different cost from an earlier log rule.
    #[error(
        "costs {}, but rule {other} costs {}: log rules share one log; use bucket, window or fixed",
        text_of(*cost), text_of(*other_cost)
    )]
    UnlikeCosts {
        /// The rule's `cost=`, in units.
        cost: Option<u32>,
        /// The text of the earlier log rule.
        other: Excerpt,
        /// The earlier rule's `cost=`, in units.
        other_cost: Option<u32>,
    },
    /// The rule has slots, which only [`HeldRules`] may have.
    #[error("slots are held, expected HeldRules and a hold")]
    Unheld,
    /// [`Rule::set_named_cost`] gave the rule a cost that its text does not show.
    #[error("has a cost by name, expected cost= in its text")]
    NamedCost,
}

fn text_of(cost: Option<u32>) -> String {
    cost.map_or_else(|| "as much as the check".into(), |cost| cost.to_string())
}
