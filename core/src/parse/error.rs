//! What can be wrong with arguments: what was given and what was expected, in
//! one printable line.

use crate::limit::MAX_ID;
use crate::rule::{Excerpt, Name, Rule, RuleTextError};
use std::fmt;

/// Why arguments are not a request. The text follows `ERR ` in the reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// Too few or too many arguments; the reply adds the command's usage.
    Arity,
    Unexpected {
        given: Excerpt,
        expected: &'static str,
    },
    Repeated {
        option: &'static str,
    },
    NoValue {
        option: &'static str,
        min: u64,
        max: u64,
    },
    Number {
        what: &'static str,
        given: Excerpt,
        min: u64,
        max: u64,
    },
    Word {
        what: &'static str,
        given: Excerpt,
        expected: &'static str,
    },
    /// The arguments end at an option whose value is no plain integer.
    Missing {
        option: &'static str,
        expected: &'static str,
    },
    NoText {
        option: &'static str,
    },
    /// The arguments end at an option that takes a period.
    NoPeriod {
        option: &'static str,
    },
    /// The period of an option cannot be read.
    Period(RuleTextError),
    LongText {
        option: &'static str,
        bytes: usize,
        max: usize,
    },
    AtRefused,
    /// Two `COST`s name the same rule.
    RepeatedCost {
        name: Name,
    },
    /// A `COST` names a rule that the request does not have.
    UnknownCost {
        name: Name,
    },
    TooManyCosts {
        name: Name,
        max: usize,
    },
    /// The arguments end at `HOLD`.
    NoHoldId,
    HoldId {
        bytes: usize,
    },
    /// The arguments end at the id of a hold.
    NoHoldTime {
        expected: &'static str,
    },
    HoldInPeek,
    AtInWait,
    RefundWithCost,
    TooManyRules {
        given: Excerpt,
        max: usize,
    },
    SameKey {
        key: Excerpt,
    },
    /// The number of groups of rules is neither 1 nor the number of keys.
    Groups {
        groups: usize,
        keys: usize,
    },
    Rule {
        rule: Excerpt,
        error: RuleArgError,
    },
}

/// What is wrong with one argument that stands for a rule or a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleArgError {
    UnknownPolicy,
    PolicyInPolicy,
    LongLog {
        limit: u32,
        max: u64,
    },
    SameIdentity {
        other: Excerpt,
        by_name: bool,
    },
    /// Log rules of one key with different costs.
    UnlikeCosts {
        cost: String,
        other: Excerpt,
        other_cost: String,
    },
    /// Slots in a check that takes no hold.
    Unheld,
    Text(RuleTextError),
}

impl RuleArgError {
    /// The error that a rule has the identity of another one.
    #[cold]
    #[must_use]
    pub fn same_identity(other: &Rule) -> Self {
        let text = other.to_string();
        Self::SameIdentity { other: Excerpt::new(text.as_bytes()), by_name: other.name().is_some() }
    }
}

impl From<RuleTextError> for RuleArgError {
    fn from(error: RuleTextError) -> Self {
        Self::Text(error)
    }
}

impl ParseError {
    /// An error of the rule with this text.
    #[cold]
    #[must_use]
    pub fn rule(text: &[u8], error: impl Into<RuleArgError>) -> Self {
        Self::Rule { rule: Excerpt::new(text), error: error.into() }
    }

    /// An error of a rule that belongs to a policy.
    #[cold]
    #[must_use]
    pub fn rule_of(policy: &[u8], rule: &Rule, error: RuleArgError) -> Self {
        Self::rule(&[policy, b" ", rule.to_string().as_bytes()].concat(), error)
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arity => f.write_str("wrong number of arguments"),
            Self::Unexpected { given, expected } => {
                write!(f, "unexpected {given}, expected {expected}")
            }
            Self::Repeated { option } => write!(f, "{option} is given twice, expected once"),
            Self::NoValue { option, min, max } => {
                write!(f, "{option} has no value, expected an integer {min}..{max}")
            }
            Self::Number { what, given, min, max } => {
                write!(f, "{what} is {given}, expected an integer {min}..{max}")
            }
            Self::Word { what, given, expected } => {
                write!(f, "{what} is {given}, expected {expected}")
            }
            Self::Missing { option, expected } => {
                write!(f, "{option} has no value, expected {expected}")
            }
            Self::NoText { option } => write!(f, "{option} has no text"),
            Self::NoPeriod { option } => {
                write!(f, "{option} has no period, expected one such as 1h")
            }
            Self::Period(error) => error.fmt(f),
            Self::LongText { option, bytes, max } => write!(
                f,
                "{option} is {bytes} bytes long, expected at most {max} (ratelimit.max-meta)"
            ),
            Self::AtRefused => {
                f.write_str("AT is refused here, expected no AT unless 'ratelimit.allow-at yes'")
            }
            Self::RepeatedCost { name } => {
                write!(f, "COST {}= is given twice, expected once", name.as_str())
            }
            Self::UnknownCost { name } => {
                let name = name.as_str();
                write!(f, "COST {name}= is for no rule here, expected a rule with name={name}")
            }
            Self::TooManyCosts { name, max } => write!(
                f,
                "COST {}=: too many names, expected at most {max} (ratelimit.max-rules)",
                name.as_str()
            ),
            Self::NoHoldId => write!(f, "HOLD has no id, expected one of 1..{MAX_ID} bytes"),
            Self::HoldId { bytes } => {
                write!(f, "the id of the hold is {bytes} bytes long, expected 1..{MAX_ID}")
            }
            Self::NoHoldTime { expected } => {
                write!(f, "the hold has no time, expected {expected}")
            }
            Self::HoldInPeek => f.write_str(
                "HOLD is refused here, expected it in RL.CHECK or RL.MCHECK: RL.PEEK takes no hold",
            ),
            Self::AtInWait => f.write_str(
                "AT is refused here, expected it in RL.CHECK or RL.PEEK: RL.WAIT decides at the \
                 time of its answer",
            ),
            Self::RefundWithCost => f.write_str("REFUND and COST are given, expected one of them"),
            Self::TooManyRules { given, max } => {
                write!(
                    f,
                    "rule {given}: too many rules, expected at most {max} (ratelimit.max-rules)"
                )
            }
            Self::SameKey { key } => {
                write!(f, "key {key} is given twice, expected each key once")
            }
            Self::Groups { groups, keys } => write!(
                f,
                "{groups} groups of rules, expected one for all keys or one a key \
                 (numkeys is {keys})"
            ),
            Self::Rule { rule, error } => write!(f, "rule {rule}: {error}"),
        }
    }
}

impl fmt::Display for RuleArgError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPolicy => {
                f.write_str("unknown policy, expected one that RL.POLICY LIST shows")
            }
            Self::PolicyInPolicy => f.write_str("a policy may not name another"),
            Self::LongLog { limit, max } => write!(
                f,
                "a log of {limit} entries, expected at most {max} (ratelimit.max-log-entries); \
                 use window or bucket instead"
            ),
            Self::SameIdentity { other, by_name } => {
                let name = if *by_name { "another name=" } else { "name=" };
                write!(
                    f,
                    "same identity as rule {other}, both count in the same state; \
                     give one of them {name}"
                )
            }
            Self::UnlikeCosts { cost, other, other_cost } => write!(
                f,
                "costs {cost}, but rule {other} costs {other_cost}: log rules share one log; \
                 use bucket, window or fixed"
            ),
            Self::Unheld => f.write_str("slots are held, give HOLD id EX seconds"),
            Self::Text(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ParseError {}
