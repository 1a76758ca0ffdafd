//! `RL.CHECK` and `RL.PEEK`.
//!
//! ```text
//! RL.CHECK     [COST n] [META text] [AT unix-us] [FULL] rule [rule ...]
//! RL.PEEK      [COST n] [AT unix-us] [FULL] rule [rule ...]
//! ```
//!
//! Options stand before the rules, in any order. No option can be taken for a
//! rule, since a rule has a `/` or starts with `@`.

use super::cursor::Cursor;
use super::error::ParseError;
use super::limits::Limits;
use super::options::{UNITS, at, once, text};
use super::resolver::RuleResolver;
use super::rules::{RULES_COME_LAST, require_rule, take_rules};
use crate::limit::Meta;
use crate::rule::Rule;

/// An `RL.CHECK`, `RL.PEEK` or `RL.MCHECK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckRequest<'a> {
    /// 0 ..= [`MAX_UNITS`](crate::rule::MAX_UNITS).
    pub cost: u32,
    /// The time of the decision, 0 ..= [`MAX_TIME_US`](crate::rule::MAX_TIME_US);
    /// `None`: the server's time.
    pub at_us: Option<u64>,
    /// Whether the reply describes each rule.
    pub full: bool,
    /// What the history keeps of the check.
    pub meta: Option<Meta<'a>>,
    /// How many of the arguments, the last ones, are rules.
    pub rule_args: usize,
}

/// The request of an `RL.CHECK`.
pub fn check<'a>(
    args: impl Iterator<Item = &'a [u8]>,
    limits: &Limits,
    resolver: &mut impl RuleResolver,
    rules: &mut Vec<Rule>,
) -> Result<CheckRequest<'a>, ParseError> {
    options_then_rules(args, limits, resolver, rules, true)
}

/// The request of an `RL.PEEK`, which has no `META`: it adds no history.
pub fn peek<'a>(
    args: impl Iterator<Item = &'a [u8]>,
    limits: &Limits,
    resolver: &mut impl RuleResolver,
    rules: &mut Vec<Rule>,
) -> Result<CheckRequest<'a>, ParseError> {
    options_then_rules(args, limits, resolver, rules, false)
}

#[inline(always)]
fn options_then_rules<'a>(
    args: impl Iterator<Item = &'a [u8]>,
    limits: &Limits,
    resolver: &mut impl RuleResolver,
    rules: &mut Vec<Rule>,
    takes_meta: bool,
) -> Result<CheckRequest<'a>, ParseError> {
    let mut args = Cursor::new(args);
    let request = options(&mut args, limits, takes_meta)?;
    let rule_args = take_rules(&mut args, Some(limits), resolver, rules)?;
    args.finish(expected(rules, takes_meta))?;
    require_rule(rules)?;
    Ok(CheckRequest { rule_args, ..request })
}

/// The options of a check, up to its rules.
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

/// A quick test, since most checks have no options: a rule that begins with a letter is
/// longer than any option's name.
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
            once(&mut meta, "META", || Ok(cut(text(args, "META")?, limits.max_meta)))?;
        } else {
            break;
        }
    }
    let keep = limits.log_entries;
    let meta = meta.filter(|_| keep > 0).map(|text| Meta { text, keep });
    Ok(CheckRequest { cost: cost.unwrap_or(1), at_us, full: full.is_some(), meta, rule_args: 0 })
}

/// What an error expects in place of an argument that follows these rules.
pub(super) const fn expected(rules: &[Rule], takes_meta: bool) -> &'static str {
    match (rules.is_empty(), takes_meta) {
        (true, true) => "COST, META, AT, FULL or a rule such as 20/1m",
        (true, false) => "COST, AT, FULL or a rule such as 20/1m",
        (false, _) => RULES_COME_LAST,
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

#[cfg(test)]
mod tests;
