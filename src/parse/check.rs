//! `RL.CHECK` and `RL.PEEK`.
//!
//! ```text
//! RL.CHECK     [COST n|a..b|name=n ...] [META text]
//!              [HOLD id EX s|PX ms [REFUND]] [AT unix-us] [FULL] rule [rule ...]
//! RL.PEEK      [COST n|a..b|name=n ...] [AT unix-us] [FULL] rule [rule ...]
//! ```
//!
//! Options stand before the rules, in any order. No option can be taken for a
//! rule, since a rule has a `/` or a `:`, or starts with `@`.

use super::costs::{Costs, DefaultCost, NamedCosts, Ranges, test_costs};
use super::cursor::Cursor;
use super::error::ParseError;
use super::hold::{HoldOption, hold};
use super::limits::Limits;
use super::options::{at, once, text};
use super::resolver::RuleResolver;
use super::rules::{RULES_COME_LAST, require_rule, take_rules};
use crate::limit::Meta;
use crate::rule::Rule;

/// An `RL.CHECK`, `RL.PEEK` or `RL.MCHECK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckRequest<'a> {
    /// The cost of rules that have none of their own, 0 ..=
    /// [`MAX_UNITS`](crate::rule::MAX_UNITS).
    pub cost: u32,
    /// The most that may be granted, if the cost is a range; `cost` is then the least.
    pub up_to: Option<u32>,
    /// The time of the decision, 0 ..= [`MAX_TIME_US`](crate::rule::MAX_TIME_US);
    /// `None`: the server's time.
    pub at_us: Option<u64>,
    /// Whether the reply describes each rule.
    pub full: bool,
    /// What the history keeps of the check.
    pub meta: Option<Meta<'a>>,
    /// The receipt to take.
    pub hold: Option<HoldOption<'a>>,
    /// How many of the arguments, the last ones, are rules.
    pub rule_args: usize,
}

impl CheckRequest<'_> {
    /// A request without options.
    pub(super) const fn plain() -> Self {
        Self {
            cost: 1,
            up_to: None,
            at_us: None,
            full: false,
            meta: None,
            hold: None,
            rule_args: 0,
        }
    }
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

/// The request of an `RL.PEEK`, which has no `META` and no `HOLD`: it changes nothing.
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
    may_change: bool,
) -> Result<CheckRequest<'a>, ParseError> {
    let mut args = Cursor::new(args);
    let (mut request, mut named_costs) = (CheckRequest::plain(), None);
    options(&mut args, limits, may_change, &mut request, &mut named_costs)?;
    request.rule_args = take_rules(&mut args, Some(limits), resolver, rules)?;
    args.finish(expected(rules, may_change))?;
    require_rule(rules)?;
    if let Some(costs) = named_costs {
        costs.give_to(rules, resolver.named_a_policy())?;
    }
    // A peek may look at slots without taking one.
    let default = DefaultCost { least: request.cost, up_to: request.up_to };
    test_costs(rules, default, request.hold.is_some() || !may_change)?;
    Ok(request)
}

/// Reads the options of a check, up to its rules, into a request without options. Costs by
/// name are given to the rules later.
#[inline(always)]
pub(super) fn options<'a, I: Iterator<Item = &'a [u8]>>(
    args: &mut Cursor<'a, I>,
    limits: &Limits,
    may_change: bool,
    request: &mut CheckRequest<'a>,
    named_costs: &mut Option<Box<NamedCosts>>,
) -> Result<(), ParseError> {
    if args.peek().is_some_and(may_be_option) {
        return some_options(args, limits, may_change, request, named_costs);
    }
    Ok(())
}

/// A quick test, since most checks have no options: a rule that begins with a letter is
/// longer than any option's name.
fn may_be_option(text: &[u8]) -> bool {
    text.len() <= 4 && text.first().is_some_and(u8::is_ascii_alphabetic)
}

#[inline(never)]
fn some_options<'a, I: Iterator<Item = &'a [u8]>>(
    args: &mut Cursor<'a, I>,
    limits: &Limits,
    may_change: bool,
    request: &mut CheckRequest<'a>,
    named_costs: &mut Option<Box<NamedCosts>>,
) -> Result<(), ParseError> {
    let mut costs = Costs::default();
    let (mut at_us, mut full, mut meta, mut held) = (None, None, None, None);
    loop {
        if args.keyword("COST") {
            costs.read(args, limits.max_rules, Ranges::Read)?;
        } else if args.keyword("AT") {
            once(&mut at_us, "AT", || at(args, limits))?;
        } else if args.keyword("FULL") {
            once(&mut full, "FULL", || Ok(()))?;
        } else if may_change && args.keyword("META") {
            once(&mut meta, "META", || Ok(cut(text(args, "META")?, limits.max_meta)))?;
        } else if args.keyword("HOLD") {
            if !may_change {
                return Err(ParseError::HoldInPeek);
            }
            once(&mut held, "HOLD", || hold(args))?;
        } else {
            break;
        }
    }
    let keep = limits.log_entries;
    let meta = meta.filter(|_| keep > 0).map(|text| Meta { text, keep });
    let (cost, up_to) = (costs.default_cost(), costs.up_to());
    *named_costs = costs.into_named();
    *request =
        CheckRequest { cost, up_to, at_us, full: full.is_some(), meta, hold: held, rule_args: 0 };
    Ok(())
}

/// What an error expects in place of an argument that follows these rules.
pub(super) const fn expected(rules: &[Rule], may_change: bool) -> &'static str {
    match (rules.is_empty(), may_change) {
        (true, true) => "COST, META, HOLD, AT, FULL or a rule such as 20/1m",
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
