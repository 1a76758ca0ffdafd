//! What can be wrong with a rule: what was given and what was expected, in one printable line.

use super::{Kind, RuleOption};
use alloc::{boxed::Box, string::String, vec::Vec};
use core::fmt;
use thiserror::Error;

/// Why a text or a [`RuleSpec`](super::RuleSpec) is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the messages show what the fields are")]
pub enum RuleError {
    /// There is no `/` with a period after the limit.
    #[error("the period is missing, expected limit/period such as 20/1m")]
    NoPeriod,
    /// No `/`, but words that mean a period, such as `5 per minute`.
    #[error("the period is missing, did you mean {}{limit}/{unit}?", prefix(*kind))]
    PeriodInWords { kind: Option<Kind>, limit: u32, unit: &'static str },
    /// The text before the first colon is not the name of an algorithm.
    #[error("unknown algorithm {given}, {}", known_or(*meant))]
    UnknownAlgorithm { given: Excerpt, meant: Option<Kind> },
    /// An option that no rule has.
    #[error("unknown option {given}, expected {}", any_of(&options_of(*kind)))]
    UnknownOption { given: Excerpt, kind: Kind },
    /// An option is given twice.
    #[error("option '{}' is given twice, expected once", .0.name())]
    RepeatedOption(RuleOption),
    /// An option that needs a value has none.
    #[error("option '{name}' has no value, expected {name}= and {}", .0.value(), name = .0.name())]
    NoValue(RuleOption),
    /// A limit or the value of an option cannot be read.
    #[error("{what} is {given}, expected {expected}")]
    Value { what: &'static str, given: Excerpt, expected: &'static str },
    /// A period that does not consist of an integer and letters.
    #[error("{of} {given} cannot be read, expected an integer and a unit such as 90s")]
    Period { of: &'static str, given: Excerpt },
    /// A period whose unit is missing or unknown.
    #[error("{of} {given} has no known unit, expected {units}")]
    PeriodUnit { of: &'static str, given: Excerpt, units: &'static str },
    /// A number is out of bounds.
    #[error("{what} is {given}, expected {min}..{max}")]
    OutOfRange { what: &'static str, given: u64, min: u32, max: u64 },
    /// The period is not in 1 ms ..= 366 d.
    #[error("the period is out of range, expected 1ms..366d")]
    PeriodOutOfRange,
    /// A period for slots, which end with their holds.
    #[error("slots have no period, expected slots:limit")]
    SlotsPeriod,
    /// `count=all` for slots, which a denied request cannot hold.
    #[error("slots with count=all, expected count=allowed: denied requests hold none")]
    SlotsCountAll,
    /// A month as the period of an algorithm other than `fixed`.
    #[error("the period 'month' belongs to fixed, expected ms, s, m, h, d or w")]
    MonthNeedsFixed,
    /// A period of a number of months other than one.
    #[error("a period of several months, expected 'month'")]
    SeveralMonths,
    /// A month with `align=first`: only the calendar has months.
    #[error("'month' with align=first, expected align=epoch or a period in days")]
    MonthAlignFirst,
    /// `tz=` is further than [`MAX_TZ_MIN`](super::MAX_TZ_MIN) from UTC.
    #[error("tz is out of range, expected -14:00..+14:00")]
    TimeZone,
    /// An option that only another algorithm, its owner, takes.
    #[error("option '{}' belongs to {}, not to {}", .option.name(), .owner.name(), .kind.name())]
    ForeignOption { option: RuleOption, owner: Kind, kind: Kind },
}

impl RuleError {
    /// The value of an option cannot be read.
    #[cold]
    pub fn of_value(option: RuleOption, given: &[u8]) -> Self {
        let (what, expected) = (option.name(), option.value());
        Self::Value { what, given: Excerpt::new(given), expected }
    }
}

/// The algorithm and the colon before a limit.
fn prefix(kind: Option<Kind>) -> String {
    kind.map_or_else(String::new, |kind| format!("{}:", kind.name()))
}

/// Suggests the algorithm that may be meant, or lists all algorithms.
fn known_or(meant: Option<Kind>) -> String {
    match meant {
        Some(kind) => format!("did you mean {}:limit/period?", kind.name()),
        None => format!("expected {}", any_of(&Kind::ALL.map(Kind::name))),
    }
}

fn options_of(kind: Kind) -> Vec<&'static str> {
    let suitable = RuleOption::all().filter(|option| option.suits(kind));
    suitable.map(RuleOption::name).collect()
}

/// `a, b or c`.
fn any_of(names: &[&str]) -> String {
    let (last, others) = names.split_last().unwrap_or((&"", &[]));
    format!("{} or {last}", others.join(", "))
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

#[cfg(all(test, feature = "testing"))]
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
