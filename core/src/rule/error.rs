//! What can be wrong with the text of a rule: what was given and what was
//! expected, in one printable line.

use super::{Kind, RuleError, RuleOption};
use std::fmt;

/// Why a text is not a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleTextError {
    /// There is no `/` with a period after the limit.
    NoPeriod,
    /// What precedes the first colon names no algorithm.
    UnknownAlgorithm {
        /// That name.
        given: Excerpt,
    },
    /// An option that no rule has.
    UnknownOption {
        /// The option's name, without its value.
        given: Excerpt,
        /// The rule's algorithm, whose options the message lists.
        kind: Kind,
    },
    /// An option is given twice.
    RepeatedOption(RuleOption),
    /// An option that needs a value has none.
    NoValue {
        /// Which one.
        option: RuleOption,
        /// Which values it takes.
        expected: &'static str,
    },
    /// A limit or the value of an option cannot be read.
    Value {
        /// The limit or the option, as messages name it.
        what: &'static str,
        /// The unreadable text.
        given: Excerpt,
        /// Which values it takes.
        expected: &'static str,
    },
    /// A period that is not an integer and letters.
    Period {
        /// Where the period is.
        of: PeriodOf,
        /// The unreadable text.
        given: Excerpt,
    },
    /// A period whose unit is missing or unknown.
    PeriodUnit {
        /// Where the period is.
        of: PeriodOf,
        /// The whole period, with its number.
        given: Excerpt,
    },
    /// The text can be read, but a bound or a combination of options is wrong.
    Invalid(RuleError),
}

/// Where the unreadable period is. Only a rule's period can be a month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeriodOf {
    /// After the `/` of a rule.
    Rule,
    /// The value of this option of a rule or a command.
    Option(&'static str),
}

impl From<RuleError> for RuleTextError {
    fn from(error: RuleError) -> Self {
        Self::Invalid(error)
    }
}

impl fmt::Display for RuleTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPeriod => {
                f.write_str("the period is missing, expected limit/period such as 20/1m")
            }
            Self::UnknownAlgorithm { given } => {
                write!(f, "unknown algorithm {given}, expected ")?;
                write_any_of(f, Kind::ALL.map(Kind::name).into_iter())
            }
            Self::UnknownOption { given, kind } => {
                write!(f, "unknown option {given}, expected ")?;
                let suitable = RuleOption::ALL.into_iter().filter(|option| option.suits(*kind));
                write_any_of(f, suitable.map(RuleOption::name))
            }
            Self::RepeatedOption(option) => {
                write!(f, "option '{}' is given twice, expected once", option.name())
            }
            Self::NoValue { option, expected } => {
                let option = option.name();
                write!(f, "option '{option}' has no value, expected {option}= and {expected}")
            }
            Self::Value { what, given, expected } => {
                write!(f, "{what} is {given}, expected {expected}")
            }
            Self::Period { of, given } => {
                write!(f, "{of} {given} cannot be read, expected an integer and a unit such as 90s")
            }
            Self::PeriodUnit { of, given } => {
                let last = match of {
                    PeriodOf::Rule => ", w (week) or month",
                    PeriodOf::Option(_) => " or w (week)",
                };
                write!(
                    f,
                    "{of} {given} has no known unit, expected ms, s (sec, second), \
                     m (min, minute), h (hour), d (day){last}"
                )
            }
            Self::Invalid(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RuleTextError {}

impl fmt::Display for PeriodOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rule => "the period",
            Self::Option(name) => name,
        })
    }
}

/// Writes `a, b or c`.
fn write_any_of(
    f: &mut fmt::Formatter<'_>,
    mut names: impl DoubleEndedIterator<Item = &'static str>,
) -> fmt::Result {
    let last = names.next_back();
    for (index, name) in names.enumerate() {
        write!(f, "{}{name}", if index == 0 { "" } else { ", " })?;
    }
    last.map_or(Ok(()), |last| write!(f, " or {last}"))
}

/// Given bytes as shown in a message: quoted, escaped to printable ASCII, cut
/// to at most [`Excerpt::SHOWN`] characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt(Box<str>);

impl Excerpt {
    /// The most characters shown between the quotes; longer text ends in `...`.
    pub const SHOWN: usize = 64;

    /// Takes bytes of any length and content.
    #[cold]
    #[must_use]
    pub fn new(given: &[u8]) -> Self {
        let mut shown = String::from("'");
        for byte in given {
            let escaped = byte.escape_ascii();
            // One more than `SHOWN`, for the opening quote.
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
