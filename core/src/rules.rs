//! Rules that fit together.

use crate::cost::Cost;
use crate::micros;
use crate::rule::{Fault, Rule, RuleError};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use ratelimit_engine::key::Check;
use ratelimit_engine::rule::{self as engine, Clash, Excerpt, Kind};
use thiserror::Error;

/// The most rules of one check.
pub(crate) const MAX_RULES: usize = 32;

/// 1 to 32 rules for one check: no two count in the same state, all log rules cost the same,
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
pub struct Rules<const HELD: bool = false>(Box<[engine::Rule]>);

/// Rules that may have slots. Only [`Limiter::hold`](crate::Limiter::hold) takes slots; they come back
/// when the hold ends. [`Limiter::check`](crate::Limiter::check) denies every request if one of the
/// rules has slots.
pub type HeldRules = Rules<true>;

impl<const HELD: bool> Rules<HELD> {
    /// The rules in the order given. The `rule` of [`Answer::Denied`](crate::Answer::Denied) is an
    /// index into them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Rule> + '_ {
        self.0.iter().copied().map(Rule)
    }

    /// The engine's rules.
    pub(crate) const fn engine(&self) -> &[engine::Rule] {
        &self.0
    }

    /// A check by these rules. The engine relies on the bounds of costs and times.
    pub(crate) fn check(&self, cost: Cost, now: Duration) -> Check<'_> {
        Check::new(&self.0, cost.units(), micros(now))
    }

    /// The index of the first rule that has slots.
    pub(crate) fn slots(&self) -> Option<usize> {
        self.0.iter().position(|rule| HELD && rule.kind() == Kind::Slots)
    }
}

impl<const HELD: bool> FromStr for Rules<HELD> {
    type Err = RulesError;

    fn from_str(text: &str) -> Result<Self, RulesError> {
        let rule = |(index, word): (usize, &str)| {
            word.parse().map_err(|why| RulesError::Rule { index, given: excerpt(word), why })
        };
        let words = text.split_ascii_whitespace().enumerate();
        words.map(rule).collect::<Result<Vec<Rule>, _>>()?.try_into()
    }
}

impl<const HELD: bool> TryFrom<Vec<Rule>> for Rules<HELD> {
    type Error = RulesError;

    fn try_from(rules: Vec<Rule>) -> Result<Self, RulesError> {
        match rules.len() {
            0 => return Err(RulesError::Empty),
            1..=MAX_RULES => {}
            _ => return Err(RulesError::TooMany),
        }
        let rules = Self(rules.into_iter().map(|Rule(rule)| rule).collect());
        let Some((index, why)) = rules.fault() else { return Ok(rules) };
        let given = rules.0.get(index).map(|rule| excerpt(&rule.to_string()));
        Err(RulesError::Rule { index, given: given.unwrap_or_default(), why: RuleError(why) })
    }
}

impl<const HELD: bool> Rules<HELD> {
    /// Why one of the rules cannot stand beside the others, and its index.
    fn fault(&self) -> Option<(usize, Fault)> {
        let unheld = self.0.iter().position(|rule| rule.kind() == Kind::Slots && !HELD);
        if let Some(index) = unheld {
            return Some((index, Fault::Unheld));
        }
        let same = self.0.iter().enumerate().find_map(|(index, rule)| {
            Some((index, Clash::of_identity(rule, self.0.get(..index)?)?))
        });
        let clash = same.or_else(|| Clash::of_costs(&self.0, |rule| OwnCost(rule.cost().own())));
        clash.map(|(index, clash)| (index, Fault::Clash(clash)))
    }
}

/// The `cost=` of a rule.
#[derive(PartialEq)]
struct OwnCost(Option<u32>);

impl fmt::Display for OwnCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(units) => units.fmt(f),
            None => f.write_str("as much as the check"),
        }
    }
}

/// A text as errors show it.
fn excerpt(text: &str) -> String {
    Excerpt::new(text.as_bytes()).to_string()
}

/// The rules' canonical texts, separated by blanks.
impl<const HELD: bool> fmt::Display for Rules<HELD> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, rule) in self.0.iter().enumerate() {
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
    /// There are more than 32 rules.
    #[error("too many rules, expected at most {MAX_RULES}")]
    TooMany,
    /// A rule cannot be read, or cannot stand beside the others.
    #[error("rule {given}: {why}")]
    #[non_exhaustive]
    Rule {
        /// Its index, from 0.
        index: usize,
        /// Its text in quotes, cut at 64 characters.
        given: String,
        /// What is wrong with it.
        #[source]
        why: RuleError,
    },
}
