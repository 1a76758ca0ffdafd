//! Errors in arguments. Each says what was given and what was expected, in one
//! printable line.

use super::limits::MAX_FLOW;
use ratelimit_engine::key::MAX_ID;
use ratelimit_engine::rule::{Clash, Excerpt, Name, Rule, RuleError};
use std::borrow::Cow;
use thiserror::Error;

/// A request or a part of it, or the error in the arguments.
pub type Parsed<T> = Result<T, ParseError>;

/// Why arguments are not a request. The text follows `ERR ` in the reply.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the messages show what the fields are")]
pub enum ParseError {
    /// Too few or too many arguments; the reply adds the command's usage.
    #[error("wrong number of arguments")]
    Arity,
    /// An argument in a wrong place.
    #[error("unexpected {given}, expected {expected}")]
    Unexpected { given: Excerpt, expected: &'static str },
    /// An option is given twice, or two options exclude each other.
    #[error("{option} is given twice, expected once")]
    Repeated { option: &'static str },
    /// The arguments end where something must follow an option or an id.
    #[error("{after} has no {what}")]
    Missing { after: &'static str, what: Cow<'static, str> },
    /// An argument is not an integer within bounds, or not of the form expected.
    #[error("{what} is {given}, expected {expected}")]
    Value { what: &'static str, given: Excerpt, expected: Cow<'static, str> },
    /// The period of an option cannot be read.
    #[error(transparent)]
    Period(RuleError),
    /// The text of an option is longer than [`Limits::max_meta`](super::Limits::max_meta).
    #[error("{option} is {bytes} bytes long, expected at most {max} (ratelimit.max-meta)")]
    LongText { option: &'static str, bytes: usize, max: usize },
    /// `AT` is given, but [`Limits::allow_at`](super::Limits::allow_at) forbids it.
    #[error("AT is refused here, expected no AT unless 'ratelimit.allow-at yes'")]
    AtRefused,
    /// Two `COST`s name the same rule.
    #[error("COST {}= is given twice, expected once", .name.as_str())]
    RepeatedCost { name: Name },
    /// A `COST` names a rule that the request does not have.
    #[error(
        "COST {name}= is for no rule here, expected a rule with name={name}",
        name = .name.as_str()
    )]
    UnknownCost { name: Name },
    /// More costs by name than a request can have rules.
    #[error(
        "COST {}=: too many names, expected at most {max} (ratelimit.max-rules)",
        .name.as_str()
    )]
    TooManyCosts { name: Name, max: usize },
    /// The id of a hold is empty or longer than [`MAX_ID`].
    #[error("the id of the hold is {bytes} bytes long, expected 1..{MAX_ID}")]
    HoldId { bytes: usize },
    /// `HOLD` in `RL.PEEK`, which changes nothing.
    #[error("HOLD is refused here, expected it in RL.CHECK or RL.MCHECK: RL.PEEK takes no hold")]
    HoldInPeek,
    /// `AT` in `RL.WAIT`, which decides later.
    #[error(
        "AT is refused here, expected it in RL.CHECK or RL.PEEK: RL.WAIT decides at the time of \
         its answer"
    )]
    AtInWait,
    /// The name of a flow is empty or longer than [`MAX_FLOW`].
    #[error("the name of the flow is {bytes} bytes long, expected 1..{MAX_FLOW}")]
    Flow { bytes: usize },
    /// `REFUND` and `COST` in one `RL.SETTLE`.
    #[error("REFUND and COST are given, expected one of them")]
    RefundWithCost,
    /// The end that was given lies in the past.
    #[error("the end is {end_ms} ms, expected a Unix time after {now_ms} ms")]
    EndPassed { end_ms: u64, now_ms: u64 },
    /// A pause lasts longer than any period.
    #[error("the pause lasts {ms} ms, expected at most 366d")]
    LongPause { ms: u64 },
    /// More than one rule in `RL.SYNC`.
    #[error("{rules} rules are given, expected one")]
    ManyRules { rules: usize },
    /// `RL.MCHECK` names a key twice.
    #[error("key {key} is given twice, expected each key once")]
    SameKey { key: Excerpt },
    /// The number of groups of rules, which `NEXT` separates, is neither 1 nor the number of keys.
    #[error("{groups} groups of rules, expected one for all keys or one a key (numkeys is {keys})")]
    Groups { groups: usize, keys: usize },
    /// A rule, or a rule of the policy that an argument names, cannot be used here.
    #[error("rule {rule}: {error}")]
    Rule { rule: Excerpt, error: RuleArgError },
}

/// What is wrong with one argument that stands for a rule or a policy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the messages show what the fields are")]
pub enum RuleArgError {
    /// No policy has this name.
    #[error("unknown policy, expected one that RL.POLICY LIST shows")]
    UnknownPolicy,
    /// A policy names a policy where only rules may stand.
    #[error("a policy may not name another")]
    PolicyInPolicy,
    /// With this rule or policy, there are too many rules.
    #[error("too many rules, expected at most {max} (ratelimit.max-rules)")]
    TooMany { max: usize },
    /// A log rule has a greater limit than
    /// [`Limits::max_log_entries`](super::Limits::max_log_entries).
    #[error(
        "a log of {limit} entries, expected at most {max} (ratelimit.max-log-entries); use window \
         or bucket instead"
    )]
    LongLog { limit: u32, max: u64 },
    /// The rule cannot stand beside an earlier rule of its key.
    #[error(transparent)]
    Clash(#[from] Clash),
    /// Slots in a check that takes no hold.
    #[error("slots are held, give HOLD id EX seconds")]
    Unheld,
    /// Slots in `RL.SYNC`.
    #[error("slots count no requests, expected another rule")]
    Uncounted,
    /// The text is no valid rule.
    #[error(transparent)]
    Text(#[from] RuleError),
}

impl ParseError {
    /// An argument that is not what was expected.
    #[cold]
    pub(crate) fn unexpected(given: &[u8], expected: &'static str) -> Self {
        Self::Unexpected { given: Excerpt::new(given), expected }
    }

    /// Something that must follow an option or an id.
    #[cold]
    pub(super) fn missing(after: &'static str, what: impl Into<Cow<'static, str>>) -> Self {
        Self::Missing { after, what: what.into() }
    }

    /// A wrong value of an option, or of a positional argument.
    #[cold]
    pub(crate) fn value(
        what: &'static str,
        given: &[u8],
        expected: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::Value { what, given: Excerpt::new(given), expected: expected.into() }
    }

    /// An error of the rule with this text.
    #[cold]
    pub fn rule(text: &[u8], error: impl Into<RuleArgError>) -> Self {
        Self::Rule { rule: Excerpt::new(text), error: error.into() }
    }

    /// An error of a rule, which the error shows in canonical text.
    #[cold]
    pub(crate) fn of_rule(rule: &Rule, error: impl Into<RuleArgError>) -> Self {
        Self::rule(rule.to_string().as_bytes(), error)
    }
}
