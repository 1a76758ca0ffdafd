//! What can be wrong with arguments: what was given and what was expected, in
//! one printable line.

use crate::limit::MAX_ID;
use crate::rule::{Excerpt, Name, Rule, RuleError};
use std::fmt;

/// Why arguments are not a request. The text follows `ERR ` in the reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// Too few or too many arguments; the reply adds the command's usage.
    Arity,
    /// An argument stands where none or another one may.
    Unexpected {
        /// The first such argument.
        given: Excerpt,
        /// What may stand there.
        expected: &'static str,
    },
    /// An option that may be given once is given twice.
    Repeated {
        /// Its name, or what a group of options sets.
        option: &'static str,
    },
    /// The arguments end at an option that takes an integer.
    NoValue {
        /// Its name.
        option: &'static str,
        /// The least value it takes.
        min: u64,
        /// The greatest value it takes.
        max: u64,
    },
    /// An argument is not an integer within bounds.
    Number {
        /// The option or the position it stands for.
        what: &'static str,
        /// The argument.
        given: Excerpt,
        /// The least value allowed.
        min: u64,
        /// The greatest value allowed.
        max: u64,
    },
    /// An argument is neither of the words nor of the form expected.
    Word {
        /// The option or the position it stands for.
        what: &'static str,
        /// The argument.
        given: Excerpt,
        /// The words or the form.
        expected: &'static str,
    },
    /// The arguments end at an option whose value is no plain integer.
    Missing {
        /// Its name.
        option: &'static str,
        /// The form of its value.
        expected: &'static str,
    },
    /// The arguments end at an option that takes a text.
    NoText {
        /// Its name.
        option: &'static str,
    },
    /// The arguments end at an option that takes a period.
    NoPeriod {
        /// Its name.
        option: &'static str,
    },
    /// The period of an option cannot be read.
    Period(RuleError),
    /// The text of an option is longer than the settings allow.
    LongText {
        /// Its name.
        option: &'static str,
        /// The length of the given text.
        bytes: usize,
        /// The most bytes, [`Limits::max_meta`](super::Limits::max_meta).
        max: usize,
    },
    /// `AT` is given, but [`Limits::allow_at`](super::Limits::allow_at) forbids it.
    AtRefused,
    /// Two `COST`s name the same rule.
    RepeatedCost {
        /// That rule.
        name: Name,
    },
    /// A `COST` names a rule that the request does not have.
    UnknownCost {
        /// That rule.
        name: Name,
    },
    /// More rules have a cost by name than a request can have rules.
    TooManyCosts {
        /// The first name too many.
        name: Name,
        /// The most names, [`Limits::max_rules`](super::Limits::max_rules).
        max: usize,
    },
    /// The arguments end at `HOLD`.
    NoHoldId,
    /// The id of a hold is empty or longer than [`MAX_ID`].
    HoldId {
        /// The length of the given id.
        bytes: usize,
    },
    /// The arguments end at the id of a hold.
    NoHoldTime {
        /// The options of which one gives the time.
        expected: &'static str,
    },
    /// `HOLD` in `RL.PEEK`, which changes nothing.
    HoldInPeek,
    /// `AT` in `RL.WAIT`, which decides later.
    AtInWait,
    /// `REFUND` and `COST` in one `RL.SETTLE`.
    RefundWithCost,
    /// A key has more rules than the settings allow.
    TooManyRules {
        /// The first rule or policy too many.
        given: Excerpt,
        /// The most rules, [`Limits::max_rules`](super::Limits::max_rules).
        max: usize,
    },
    /// `RL.MCHECK` names a key twice.
    SameKey {
        /// That key.
        key: Excerpt,
    },
    /// The number of groups of rules is neither 1 nor the number of keys.
    Groups {
        /// The number of groups, which `NEXT` separates.
        groups: usize,
        /// The number of keys, `numkeys`.
        keys: usize,
    },
    /// One argument is no rule or policy, or one that cannot be used here.
    Rule {
        /// The argument, or a policy and the text of its rule.
        rule: Excerpt,
        /// What is wrong with it.
        error: RuleArgError,
    },
}

/// What is wrong with one argument that stands for a rule or a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleArgError {
    /// No policy has this name.
    UnknownPolicy,
    /// A policy names a policy where only rules may stand.
    PolicyInPolicy,
    /// A log rule has a greater limit than the settings allow.
    LongLog {
        /// The rule's limit.
        limit: u32,
        /// The greatest limit, [`Limits::max_log_entries`](super::Limits::max_log_entries).
        max: u64,
    },
    /// An earlier rule of the request reads the same state.
    SameIdentity {
        /// The earlier rule.
        other: Excerpt,
        /// Whether that one has a name, so that both have it.
        by_name: bool,
    },
    /// Log rules of one key with different costs.
    UnlikeCosts {
        /// What the rule costs, as a number or a range.
        cost: String,
        /// An earlier log rule.
        other: Excerpt,
        /// What that one costs.
        other_cost: String,
    },
    /// Slots in a check that takes no hold.
    Unheld,
    /// The text is no valid rule.
    Text(RuleError),
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

impl From<RuleError> for RuleArgError {
    fn from(error: RuleError) -> Self {
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
