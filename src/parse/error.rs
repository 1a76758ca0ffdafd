//! What can be wrong with arguments: always what was given and what was
//! expected, in one printable line.

use crate::rule::{Kind, Rule, RuleError};
use std::fmt;

/// Arguments that make no request. Its text is what follows `ERR `.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// Too few or too many arguments; the answer adds the command's usage.
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
    NoText {
        option: &'static str,
    },
    /// An option that takes a length of time has none.
    NoSpan {
        option: &'static str,
    },
    /// What is wrong with the length of time behind an option.
    Span(RuleTextError),
    LongText {
        option: &'static str,
        bytes: usize,
        max: usize,
    },
    AtRefused,
    TooManyRules {
        given: Excerpt,
        max: usize,
    },
    SameKey {
        key: Excerpt,
    },
    /// Neither one group of rules nor one a key.
    Groups {
        groups: usize,
        keys: usize,
    },
    Rule {
        rule: Excerpt,
        fault: RuleTextError,
    },
}

/// What is wrong with one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleTextError {
    UnknownPolicy,
    PolicyInPolicy,
    NoPeriod,
    UnknownAlgorithm {
        given: Excerpt,
    },
    UnknownOption {
        given: Excerpt,
        kind: Kind,
    },
    RepeatedOption {
        option: &'static str,
    },
    NoValue {
        option: &'static str,
        expected: &'static str,
    },
    Value {
        what: &'static str,
        given: Excerpt,
        expected: &'static str,
    },
    Period {
        what: &'static str,
        given: Excerpt,
    },
    PeriodUnit {
        what: &'static str,
        given: Excerpt,
    },
    LongLog {
        limit: u32,
        max: u32,
    },
    SameIdentity {
        other: Excerpt,
        /// It is by their name that they are alike.
        named: bool,
    },
    /// It could be read, but is no rule.
    Invalid(RuleError),
}

/// What a rule's own period is called in errors. Only there months are known.
pub const THE_PERIOD: &str = "the period";

impl RuleTextError {
    /// That a rule counts where another one does.
    #[cold]
    #[must_use]
    pub fn same_identity(other: &Rule) -> Self {
        let text = other.to_string();
        Self::SameIdentity { other: Excerpt::new(text.as_bytes()), named: other.name().is_some() }
    }
}

impl From<RuleError> for RuleTextError {
    fn from(error: RuleError) -> Self {
        Self::Invalid(error)
    }
}

impl ParseError {
    /// A fault of the rule with this text.
    #[cold]
    #[must_use]
    pub fn rule(text: &[u8], fault: RuleTextError) -> Self {
        Self::Rule { rule: Excerpt::new(text), fault }
    }

    /// A fault of a rule that a policy brought.
    #[cold]
    #[must_use]
    pub fn rule_of(policy: &[u8], rule: &Rule, fault: RuleTextError) -> Self {
        Self::rule(&[policy, b" ", rule.to_string().as_bytes()].concat(), fault)
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
            Self::NoText { option } => write!(f, "{option} has no text"),
            Self::NoSpan { option } => {
                write!(f, "{option} has no period, expected one such as 1h")
            }
            Self::Span(fault) => fault.fmt(f),
            Self::LongText { option, bytes, max } => write!(
                f,
                "{option} is {bytes} bytes long, expected at most {max} (ratelimit.max-meta)"
            ),
            Self::AtRefused => {
                f.write_str("AT is refused here, expected no AT unless 'ratelimit.allow-at yes'")
            }
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
            Self::Rule { rule, fault } => write!(f, "rule {rule}: {fault}"),
        }
    }
}

impl fmt::Display for RuleTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPolicy => {
                f.write_str("unknown policy, expected one that RL.POLICY LIST shows")
            }
            Self::PolicyInPolicy => f.write_str("a policy may not name another"),
            Self::NoPeriod => {
                f.write_str("the period is missing, expected limit/period such as 20/1m")
            }
            Self::UnknownAlgorithm { given } => {
                write!(f, "unknown algorithm {given}, expected log, window, fixed, bucket or leaky")
            }
            Self::UnknownOption { given, kind } => {
                write!(f, "unknown option {given}, expected {}", options(*kind))
            }
            Self::RepeatedOption { option } => {
                write!(f, "option '{option}' is given twice, expected once")
            }
            Self::NoValue { option, expected } => {
                write!(f, "option '{option}' has no value, expected {option}= and {expected}")
            }
            Self::Value { what, given, expected } => {
                write!(f, "{what} is {given}, expected {expected}")
            }
            Self::Period { what, given } => {
                write!(
                    f,
                    "{what} {given} cannot be read, expected an integer and a unit such as 90s"
                )
            }
            Self::PeriodUnit { what, given } => {
                let end = if *what == THE_PERIOD { ", w (week) or month" } else { " or w (week)" };
                write!(
                    f,
                    "{what} {given} has no known unit, expected ms, s (sec, second), \
                     m (min, minute), h (hour), d (day){end}"
                )
            }
            Self::LongLog { limit, max } => write!(
                f,
                "a log of {limit} entries, expected at most {max} (ratelimit.max-log-entries); \
                 use window or bucket instead"
            ),
            Self::SameIdentity { other, named } => {
                let name = if *named { "another name=" } else { "name=" };
                write!(
                    f,
                    "same identity as rule {other}, both count in the same state; \
                     give one of them {name}"
                )
            }
            Self::Invalid(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ParseError {}

/// The options a rule of this algorithm can have.
const fn options(kind: Kind) -> &'static str {
    match kind {
        Kind::Log => "name, count, ban or shadow",
        Kind::Window => "res, name, count, ban or shadow",
        Kind::Fixed => "align, tz, keep, name, count, ban or shadow",
        Kind::Bucket => "burst, refill, name, count, ban or shadow",
        Kind::Leaky => "queue, name, count, ban or shadow",
    }
}

/// Given bytes as shown in a message: quoted, escaped to printable ASCII, cut
/// to some [`Excerpt::SHOWN`] characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt(Box<str>);

impl Excerpt {
    pub const SHOWN: usize = 64;

    #[cold]
    #[must_use]
    pub fn new(given: &[u8]) -> Self {
        let mut shown = String::from("'");
        for byte in given {
            let escaped = byte.escape_ascii();
            // Room for the opening quote.
            if shown.len().saturating_add(escaped.len()) > Self::SHOWN.saturating_add(1) {
                shown.push_str("...");
                break;
            }
            shown.extend(escaped.map(char::from));
        }
        shown.push('\'');
        Self(shown.into_boxed_str())
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn excerpts_are_printable_and_short() {
        for (given, shown) in [
            (&b""[..], "''"),
            (b"5/x", "'5/x'"),
            (b"a\r\nb\0\t\x7f", "'a\\r\\nb\\x00\\t\\x7f'"),
            (b"it's", "'it\\'s'"),
            ("\u{b5}s".as_bytes(), "'\\xc2\\xb5s'"),
        ] {
            assert_eq!(Excerpt::new(given).to_string(), shown);
        }
        let (fits, long) = ("x".repeat(64), "x".repeat(65));
        assert_eq!(Excerpt::new(fits.as_bytes()).to_string(), format!("'{fits}'"));
        assert_eq!(Excerpt::new(long.as_bytes()).to_string(), format!("'{fits}...'"));
    }

    proptest! {
        #[test]
        fn any_bytes_make_an_excerpt(given: Vec<u8>) {
            let shown = Excerpt::new(&given).to_string();
            prop_assert!(shown.bytes().all(|b| (b' '..=b'~').contains(&b)));
            prop_assert!(shown.len() <= Excerpt::SHOWN + "'...'".len());
        }
    }
}
