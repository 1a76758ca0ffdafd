//! Tests that each error that a handler can reply has a row in docs/reference/errors.md.
//!
//! A new variant does not compile until one of the `place_of_*` functions below has it. Give the
//! variant the next number and an example, and add a row to the document.

use super::opened::reason;
use ratelimit_engine::check::Refusal;
use ratelimit_engine::rule::{Clash, Excerpt, Kind, Name, RuleError, RuleOption};
use ratelimit_protocol::parse::{ParseError, RuleArgError};
use std::collections::BTreeSet;

const ERRORS: &str = include_str!("../../docs/reference/errors.md");

/// The texts in the first column of the tables.
fn documented() -> Vec<&'static str> {
    let cells = ERRORS.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    cells.map(|(text, _)| text).collect()
}

/// Whether a text matches a form, in which `…` stands for any text.
fn fits(form: &str, text: &str) -> bool {
    let mut parts = form.split('…');
    let Some(mut rest) = parts.next().and_then(|start| text.strip_prefix(start)) else {
        return false;
    };
    let parts: Vec<_> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[track_caller]
fn assert_documented(error: &impl ToString) {
    let text = format!("ERR {}", error.to_string());
    assert!(documented().iter().any(|form| fits(form, &text)), "errors.md lacks «{text}»");
}

/// Asserts that each variant has an example, and that the document lists each example.
fn assert_all_documented<E: ToString>(examples: &[E], place: impl Fn(&E) -> u8, variants: u8) {
    examples.iter().for_each(assert_documented);
    let places: BTreeSet<u8> = examples.iter().map(place).collect();
    assert_eq!(places, (0..variants).collect(), "an example for each variant");
}

fn text() -> Excerpt {
    Excerpt::new(b"text")
}

fn name() -> Name {
    Name::new(b"name").unwrap()
}

const fn place_of_parse_error(error: &ParseError) -> u8 {
    match error {
        ParseError::Arity => 0,
        ParseError::Unexpected { .. } => 1,
        ParseError::Repeated { .. } => 2,
        ParseError::Missing { .. } => 3,
        ParseError::Value { .. } => 4,
        ParseError::Period(_) => 5,
        ParseError::LongText { .. } => 6,
        ParseError::AtRefused => 7,
        ParseError::RepeatedCost { .. } => 8,
        ParseError::UnknownCost { .. } => 9,
        ParseError::TooManyCosts { .. } => 10,
        ParseError::HoldId { .. } => 11,
        ParseError::HoldInPeek => 12,
        ParseError::AtInWait => 13,
        ParseError::RefundWithCost => 14,
        ParseError::SameKey { .. } => 15,
        ParseError::Groups { .. } => 16,
        ParseError::Rule { .. } => 17,
        ParseError::EndPassed { .. } => 18,
        ParseError::LongPause { .. } => 19,
        ParseError::ManyRules { .. } => 20,
        ParseError::Flow { .. } => 21,
    }
}

#[test]
fn each_error_of_arguments_is_documented() {
    let (option, expected) = ("COST", "an integer");
    let missing = |after, what: &'static str| ParseError::Missing { after, what: what.into() };
    let (of, units) = ("FOR", "ms");
    let examples = [
        ParseError::Unexpected { given: text(), expected },
        ParseError::Repeated { option },
        missing(option, "value, expected an integer 0..9"),
        missing("META", "text"),
        missing("FOR", "period, expected one such as 1h"),
        missing("HOLD", "id, expected one of 1..64 bytes"),
        missing("the pause", "end, expected EX, PX, EXAT, PXAT or FOR"),
        missing("the hold", "time, expected EX seconds or PX milliseconds"),
        ParseError::Value { what: option, given: text(), expected: expected.into() },
        ParseError::Period(RuleError::PeriodUnit { of, given: text(), units }),
        ParseError::Period(RuleError::Period { of, given: text() }),
        ParseError::LongText { option, bytes: 9, max: 5 },
        ParseError::AtRefused,
        ParseError::RepeatedCost { name: name() },
        ParseError::UnknownCost { name: name() },
        ParseError::TooManyCosts { name: name(), max: 5 },
        ParseError::HoldId { bytes: 65 },
        ParseError::HoldInPeek,
        ParseError::AtInWait,
        ParseError::RefundWithCost,
        ParseError::SameKey { key: text() },
        ParseError::Groups { groups: 2, keys: 3 },
        ParseError::EndPassed { end_ms: 5, now_ms: 9 },
        ParseError::LongPause { ms: 5 },
        ParseError::ManyRules { rules: 2 },
        ParseError::Flow { bytes: 65 },
        ParseError::rule(b"5/m", RuleArgError::Unheld),
    ];
    // The reply to `Arity` also has the usage.
    assert_documented(&format!("{}, usage: RL.RESET key", ParseError::Arity));
    let places: BTreeSet<u8> = examples.iter().map(place_of_parse_error).collect();
    assert_eq!(places, (1..22).collect(), "an example for each variant");
    examples.iter().for_each(assert_documented);
}

const fn place_of_rule_arg_error(error: &RuleArgError) -> u8 {
    match error {
        RuleArgError::UnknownPolicy => 0,
        RuleArgError::PolicyInPolicy => 1,
        RuleArgError::TooMany { .. } => 2,
        RuleArgError::LongLog { .. } => 3,
        RuleArgError::Clash(Clash::SameIdentity { .. }) => 4,
        RuleArgError::Clash(Clash::UnlikeCosts { .. }) => 5,
        RuleArgError::Unheld => 6,
        RuleArgError::Uncounted => 7,
        RuleArgError::Text(_) => 8,
    }
}

const fn place_of_rule_error(error: &RuleError) -> u8 {
    match error {
        RuleError::NoPeriod => 0,
        RuleError::UnknownAlgorithm { .. } => 1,
        RuleError::UnknownOption { .. } => 2,
        RuleError::RepeatedOption(_) => 3,
        RuleError::NoValue(_) => 4,
        RuleError::Value { .. } => 5,
        RuleError::Period { .. } => 6,
        RuleError::PeriodUnit { .. } => 7,
        RuleError::OutOfRange { .. } => 8,
        RuleError::PeriodOutOfRange => 9,
        RuleError::SlotsPeriod => 10,
        RuleError::SlotsCountAll => 11,
        RuleError::MonthNeedsFixed => 12,
        RuleError::SeveralMonths => 13,
        RuleError::MonthAlignFirst => 14,
        RuleError::TimeZone => 15,
        RuleError::ForeignOption { .. } => 16,
        RuleError::PeriodInWords { .. } => 17,
    }
}

/// True if the document has a row for this rule error. The row for all faults in a rule's text does
/// not count.
fn has_its_own_row(error: &RuleArgError) -> bool {
    let text = format!("ERR {}", ParseError::rule(b"5/m", error.clone()));
    documented().iter().any(|form| *form != "ERR rule '…': …" && fits(form, &text))
}

#[test]
fn each_error_of_a_rule_is_documented() {
    let (other, cost) = (text(), "1".to_string());
    let examples = [
        RuleArgError::UnknownPolicy,
        RuleArgError::PolicyInPolicy,
        RuleArgError::TooMany { max: 5 },
        RuleArgError::LongLog { limit: 9, max: 5 },
        Clash::SameIdentity { other: other.clone(), name: "name=" }.into(),
        Clash::UnlikeCosts { cost: cost.clone(), other, other_cost: cost }.into(),
        RuleArgError::Unheld,
        RuleArgError::Uncounted,
        RuleArgError::Text(RuleError::NoPeriod),
    ];
    for error in &examples {
        let is_of_text = matches!(error, RuleArgError::Text(_));
        assert!(is_of_text || has_its_own_row(error), "{error}");
    }
    let places: BTreeSet<u8> = examples.iter().map(place_of_rule_arg_error).collect();
    assert_eq!(places, (0..9).collect(), "an example for each variant");

    let (option, kind, of) =
        (RuleOption::of_name(b"burst").expect("an option"), Kind::Log, "the period");
    let of_texts = [
        RuleError::NoPeriod,
        RuleError::UnknownAlgorithm { given: text(), meant: None },
        RuleError::UnknownOption { given: text(), kind },
        RuleError::RepeatedOption(option),
        RuleError::NoValue(option),
        RuleError::Value { what: "limit", given: text(), expected: "an integer" },
        RuleError::Period { of, given: text() },
        RuleError::PeriodUnit { of, given: text(), units: "ms" },
        RuleError::OutOfRange { what: "limit", given: 9, min: 0, max: 5 },
        RuleError::PeriodOutOfRange,
        RuleError::SlotsPeriod,
        RuleError::SlotsCountAll,
        RuleError::MonthNeedsFixed,
        RuleError::SeveralMonths,
        RuleError::MonthAlignFirst,
        RuleError::TimeZone,
        RuleError::ForeignOption { option, owner: Kind::Bucket, kind },
        RuleError::PeriodInWords { kind: None, limit: 5, unit: "m" },
    ];
    assert_all_documented(&of_texts.map(Shown), |shown| place_of_rule_error(&shown.0), 18);
}

/// A fault in a rule's text, as the reply shows it.
struct Shown(RuleError);

impl std::fmt::Display for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", ParseError::rule(b"5/m", self.0.clone()))
    }
}

const fn place_of_refusal(refusal: &Refusal) -> u8 {
    match refusal {
        Refusal::TooManyStates { .. } => 0,
        Refusal::TooManyHolds { .. } => 1,
        Refusal::TooManyRulesOfHolds { .. } => 2,
        Refusal::OtherCost { .. } => 3,
    }
}

#[test]
fn each_refusal_of_a_check_is_documented() {
    let refusals = [
        Refusal::TooManyStates { states: 9, max: 5 },
        Refusal::TooManyHolds { max: 5 },
        Refusal::TooManyRulesOfHolds { max: 20 },
        Refusal::OtherCost {
            id: text(),
            rule: "log:5/1m".to_string(),
            held: 5,
            given: 9,
            up_to: None,
        },
    ];
    for refusal in &refusals {
        assert_documented(&reason(&Excerpt::new(b"k"), refusal));
    }
    let places: BTreeSet<u8> = refusals.iter().map(place_of_refusal).collect();
    assert_eq!(places, (0..4).collect(), "an example for each variant");
}

#[test]
fn an_error_that_is_not_documented_is_noticed() {
    for (form, text, expected) in [
        ("ERR … has no …", "ERR COST has no value", true),
        ("ERR … has no …", "ERR COST is 5", false),
        ("ERR rule '…': slots", "ERR rule 'x': slots", true),
        ("ERR rule '…': slots", "ERR rule 'x': slots are", false),
        ("LOADING …", "OOM x", false),
    ] {
        assert_eq!(fits(form, text), expected, "{form}: {text}");
    }
}
