//! What the commands ask for, one function a command. Each takes the arguments
//! after the key and fills the caller's `rules`, which are cleared first and
//! only mean something if the answer is `Ok`.
//!
//! ```text
//! RL.CHECK     [COST n] [META text] [AT unix-us] [FULL] rule [rule ...]
//! RL.PEEK      [COST n] [AT unix-us] [FULL] rule [rule ...]
//! RL.MCHECK    as RL.CHECK, after its keys: [NEXT rule [rule ...]] ...
//! RL.REFUND    units [AT unix-us] [rule [rule ...]]
//! RL.EXPLAIN   rule [rule ...]
//! ```
//!
//! Options stand before the rules, in any order. No option can be taken for a
//! rule, since a rule has a `/` or starts with `@`.

use super::cursor::Cursor;
use super::error::{ParseError, RuleArgError};
use super::resolver::RuleResolver;
use crate::limit::Meta;
use crate::rule::{Excerpt, Kind, MAX_TIME_US, MAX_UNITS, Rule};
use std::ops::RangeInclusive;

pub(crate) const UNITS: RangeInclusive<u64> = 0..=MAX_UNITS as u64;
pub(crate) const TIME_US: RangeInclusive<u64> = 0..=MAX_TIME_US;
pub(crate) const A_RULE: &str = "a rule such as 20/1m";

/// What the configuration lets a request ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rules of one key in a request.
    pub max_rules: usize,
    /// Entries in a key's log, so the largest limit of a `log` rule.
    pub max_log_entries: u32,
    /// Whether a request may say what time it is.
    pub allow_at: bool,
    /// Bytes kept of a `META`, and the most that a `REASON` can have.
    pub max_meta: usize,
    /// Checks with `META` that a key keeps; 0: none.
    pub log_entries: u32,
}

impl Limits {
    /// Whatever the parsers can read.
    #[cfg(test)]
    pub const ANY: Self = Self {
        max_rules: usize::MAX,
        max_log_entries: MAX_UNITS,
        allow_at: true,
        max_meta: usize::MAX,
        log_entries: 128,
    };
}

/// `RL.CHECK`, `RL.PEEK` and `RL.MCHECK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckRequest<'a> {
    /// 0 ..= [`MAX_UNITS`].
    pub cost: u32,
    /// The time to decide as of, 0 ..= [`MAX_TIME_US`]; without one, the server's.
    pub at_us: Option<u64>,
    /// Whether the reply says something about each rule.
    pub full: bool,
    /// What the history is to tell of it.
    pub meta: Option<Meta<'a>>,
    /// How many arguments the rules are: the last ones.
    pub rule_args: usize,
}

/// The request of an `RL.CHECK`.
///
/// # Errors
/// Whatever is wrong first, from left to right.
pub fn check<'a>(
    args: impl Iterator<Item = &'a [u8]>,
    limits: &Limits,
    known: &mut impl RuleResolver,
    rules: &mut Vec<Rule>,
) -> Result<CheckRequest<'a>, ParseError> {
    options_then_rules(args, limits, known, rules, true)
}

/// The request of an `RL.PEEK`: an `RL.CHECK` that leaves no entry.
///
/// # Errors
/// Whatever is wrong first, from left to right.
pub fn peek<'a>(
    args: impl Iterator<Item = &'a [u8]>,
    limits: &Limits,
    known: &mut impl RuleResolver,
    rules: &mut Vec<Rule>,
) -> Result<CheckRequest<'a>, ParseError> {
    options_then_rules(args, limits, known, rules, false)
}

#[inline(always)]
fn options_then_rules<'a>(
    args: impl Iterator<Item = &'a [u8]>,
    limits: &Limits,
    known: &mut impl RuleResolver,
    rules: &mut Vec<Rule>,
    takes_meta: bool,
) -> Result<CheckRequest<'a>, ParseError> {
    let mut args = Cursor::new(args);
    let request = options(&mut args, limits, takes_meta)?;
    let rule_args = rules_of(&mut args, Some(limits), known, rules)?;
    args.finish(expected(rules, takes_meta))?;
    require_rule(rules)?;
    Ok(CheckRequest { rule_args, ..request })
}

/// The options of a check, up to its rules.
///
/// # Errors
/// Whatever is wrong first, from left to right.
#[inline]
pub(super) fn options<'a, I: Iterator<Item = &'a [u8]>>(
    args: &mut Cursor<'a, I>,
    limits: &Limits,
    takes_meta: bool,
) -> Result<CheckRequest<'a>, ParseError> {
    if args.peek().is_some_and(may_be_option) {
        return some_options(args, limits, takes_meta);
    }
    Ok(CheckRequest { cost: 1, at_us: None, full: false, meta: None, rule_args: 0 })
}

/// Whether it is worth a closer look: most checks come without options, and no
/// rule begins with a letter and is as short as these words.
fn may_be_option(text: &[u8]) -> bool {
    text.len() <= 4 && text.first().is_some_and(u8::is_ascii_alphabetic)
}

fn some_options<'a, I: Iterator<Item = &'a [u8]>>(
    args: &mut Cursor<'a, I>,
    limits: &Limits,
    takes_meta: bool,
) -> Result<CheckRequest<'a>, ParseError> {
    let (mut cost, mut at_us, mut full, mut meta) = (None, None, None, None);
    loop {
        if args.keyword("COST") {
            once(&mut cost, "COST", || args.value("COST", UNITS))?;
        } else if args.keyword("AT") {
            once(&mut at_us, "AT", || at(args, limits))?;
        } else if args.keyword("FULL") {
            once(&mut full, "FULL", || Ok(()))?;
        } else if takes_meta && args.keyword("META") {
            once(&mut meta, "META", || {
                let text = args.take().ok_or(ParseError::NoText { option: "META" })?;
                Ok(cut(text, limits.max_meta))
            })?;
        } else {
            break;
        }
    }
    let keep = limits.log_entries;
    let meta = meta.filter(|_| keep > 0).map(|text| Meta { text, keep });
    Ok(CheckRequest { cost: cost.unwrap_or(1), at_us, full: full.is_some(), meta, rule_args: 0 })
}

/// What could have stood where there is something else.
pub(super) const fn expected(rules: &[Rule], takes_meta: bool) -> &'static str {
    match (rules.is_empty(), takes_meta) {
        (true, true) => "COST, META, AT, FULL or a rule such as 20/1m",
        (true, false) => "COST, AT, FULL or a rule such as 20/1m",
        (false, _) => "a rule such as 20/1m; options come before the rules",
    }
}

/// The first `max` bytes of a text, or up to three fewer, so that no character is
/// split where the text is UTF-8.
fn cut(text: &[u8], max: usize) -> &[u8] {
    if text.len() <= max {
        return text;
    }
    // A character that begins before the cut ends within three bytes of it.
    let near = text.get(..max.saturating_add(3)).unwrap_or(text);
    let readable = near.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let whole = (0..=max).rev().find(|&end| readable.is_char_boundary(end));
    let end = whole.filter(|_| readable.len() >= max).unwrap_or(max);
    text.get(..end).unwrap_or(text)
}

/// The text that follows an option's word.
///
/// # Errors
/// [`ParseError::NoText`] or [`ParseError::LongText`].
pub(super) fn text<'a, I: Iterator<Item = &'a [u8]>>(
    args: &mut Cursor<'a, I>,
    option: &'static str,
    limits: &Limits,
) -> Result<&'a [u8], ParseError> {
    let text = args.take().ok_or(ParseError::NoText { option })?;
    if text.len() > limits.max_meta {
        return Err(ParseError::LongText { option, bytes: text.len(), max: limits.max_meta });
    }
    Ok(text)
}

/// `RL.REFUND`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefundRequest {
    /// 0 ..= [`MAX_UNITS`].
    pub units: u32,
    /// The time to refund as of, 0 ..= [`MAX_TIME_US`]; without one, the server's.
    pub at_us: Option<u64>,
    /// How many arguments the rules are: the last ones.
    pub rule_args: usize,
}

/// The request of an `RL.REFUND`; no rules are every state.
///
/// # Errors
/// Whatever is wrong first, from left to right.
pub fn refund<'a>(
    args: impl Iterator<Item = &'a [u8]>,
    limits: &Limits,
    known: &mut impl RuleResolver,
    rules: &mut Vec<Rule>,
) -> Result<RefundRequest, ParseError> {
    let mut args = Cursor::new(args);
    let units = args.integer("units", UNITS)?;
    let mut at_us = None;
    while args.keyword("AT") {
        once(&mut at_us, "AT", || at(&mut args, limits))?;
    }
    let rule_args = rules_of(&mut args, Some(limits), known, rules)?;
    args.finish(if rules.is_empty() {
        "AT or a rule such as 20/1m"
    } else {
        "a rule such as 20/1m; options come before the rules"
    })?;
    Ok(RefundRequest { units, at_us, rule_args })
}

/// The rules of an `RL.EXPLAIN`, which are explained only if one check could
/// have them all.
///
/// # Errors
/// Whatever is wrong first, from left to right.
pub fn explain<'a>(
    args: impl Iterator<Item = &'a [u8]>,
    limits: &Limits,
    known: &mut impl RuleResolver,
    rules: &mut Vec<Rule>,
) -> Result<(), ParseError> {
    let mut args = Cursor::new(args);
    rules_of(&mut args, Some(limits), known, rules)?;
    args.finish(A_RULE)?;
    require_rule(rules)
}

/// Fills an option's place, which must be empty yet.
pub(super) fn once<T>(
    place: &mut Option<T>,
    option: &'static str,
    read: impl FnOnce() -> Result<T, ParseError>,
) -> Result<(), ParseError> {
    if place.is_some() {
        return Err(ParseError::Repeated { option });
    }
    *place = Some(read()?);
    Ok(())
}

/// The time that follows an `AT`.
fn at<'a, I: Iterator<Item = &'a [u8]>>(
    args: &mut Cursor<'a, I>,
    limits: &Limits,
) -> Result<u64, ParseError> {
    if !limits.allow_at {
        return Err(ParseError::AtRefused);
    }
    args.value("AT", TIME_US)
}

/// Takes arguments as long as they look like rules, and says how many it took.
/// Without limits any rules will do: they were judged elsewhere.
pub(crate) fn rules_of<'a, I: Iterator<Item = &'a [u8]>>(
    args: &mut Cursor<'a, I>,
    limits: Option<&Limits>,
    known: &mut impl RuleResolver,
    rules: &mut Vec<Rule>,
) -> Result<usize, ParseError> {
    rules.clear();
    more_rules_of(args, limits, known, rules)
}

/// The same, of rules that join none of those already there. Inlined, as most
/// checks have one rule, which was read before.
#[inline(always)]
pub(super) fn more_rules_of<'a, I: Iterator<Item = &'a [u8]>>(
    args: &mut Cursor<'a, I>,
    limits: Option<&Limits>,
    known: &mut impl RuleResolver,
    rules: &mut Vec<Rule>,
) -> Result<usize, ParseError> {
    let start = rules.len();
    let mut taken: usize = 0;
    while let Some(text) = args.peek() {
        let first_found = rules.len();
        if let Some(name) = text.strip_prefix(b"@") {
            let found = known.policy(name).map_err(|error| ParseError::rule(text, error))?;
            rules.extend_from_slice(found);
        } else if !known.rule(text, rules).map_err(|error| ParseError::rule(text, error))? {
            break;
        }
        if let Some(limits) = limits {
            let (before, found) = rules.split_at_checked(first_found).unwrap_or_default();
            admissible(text, found, limits, before.get(start..).unwrap_or_default())?;
        }
        args.take();
        taken = taken.saturating_add(1);
    }
    Ok(taken)
}

/// Whether the configuration and the rules before them let those in that a text
/// stands for.
#[inline(always)]
fn admissible(
    text: &[u8],
    found: &[Rule],
    limits: &Limits,
    before: &[Rule],
) -> Result<(), ParseError> {
    if before.len().saturating_add(found.len()) > limits.max_rules {
        return Err(too_many(text, limits));
    }
    for rule in found {
        let same = |other: &Rule| other.same_identity(rule);
        // The first rule, most often the only one, has nothing to be like.
        let is_again = !before.is_empty() && before.iter().any(same);
        if is_again || is_too_long(rule, limits) {
            return Err(inadmissible(text, rule, limits, before));
        }
    }
    Ok(())
}

fn is_too_long(rule: &Rule, limits: &Limits) -> bool {
    rule.kind() == Kind::Log && rule.limit() > limits.max_log_entries
}

#[cold]
fn too_many(text: &[u8], limits: &Limits) -> ParseError {
    ParseError::TooManyRules { given: Excerpt::new(text), max: limits.max_rules }
}

#[cold]
fn inadmissible(text: &[u8], rule: &Rule, limits: &Limits, before: &[Rule]) -> ParseError {
    let error = match before.iter().find(|other| other.same_identity(rule)) {
        Some(other) if !is_too_long(rule, limits) => RuleArgError::same_identity(other),
        _ => RuleArgError::LongLog { limit: rule.limit(), max: limits.max_log_entries },
    };
    if text.starts_with(b"@") {
        ParseError::rule_of(text, rule, error)
    } else {
        ParseError::rule(text, error)
    }
}

pub(crate) fn require_rule(rules: &[Rule]) -> Result<(), ParseError> {
    if rules.is_empty() { Err(ParseError::Arity) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
