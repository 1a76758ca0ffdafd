//! The rules of a request: resolved one by one, and tested against the settings
//! and each other.

use super::cursor::Cursor;
use super::error::{ParseError, Parsed, RuleArgError};
use super::limits::Limits;
use super::resolver::{PlanOf, RuleResolver};
use ratelimit_engine::rule::{Clash, Kind, Rule};

/// How errors describe a rule.
pub(crate) const A_RULE: &str = "a rule such as 20/1m";
/// What errors say after 'expected' about an argument that follows a rule.
pub(super) const RULES_COME_LAST: &str = "a rule such as 20/1m; options come before the rules";

/// Takes arguments up to the first that does not look like a rule, and returns how many it took. `at_us`
/// is the time of the request, if it gives one.
pub(crate) fn take_rules<'a, I: Iterator<Item = &'a [u8]>>(
    at_us: Option<u64>,
    args: &mut Cursor<'a, I>,
    limits: &Limits,
    resolver: &mut impl RuleResolver,
    rules: &mut Vec<Rule>,
) -> Parsed<usize> {
    rules.clear();
    take_rules_of(PlanOf { key: 0, at_us }, args, limits, resolver, rules)
}

/// Does what [`take_rules`] does, but keeps the rules of earlier keys. Inlined for the common
/// check: one rule, found in the resolver's cache.
#[inline(always)]
pub(super) fn take_rules_of<'a, I: Iterator<Item = &'a [u8]>>(
    plan: PlanOf,
    args: &mut Cursor<'a, I>,
    limits: &Limits,
    resolver: &mut impl RuleResolver,
    rules: &mut Vec<Rule>,
) -> Parsed<usize> {
    let start = rules.len();
    let mut taken: usize = 0;
    while let Some(text) = args.peek() {
        let first_found = rules.len();
        if let Some(name) = text.strip_prefix(b"@") {
            let found = match name.strip_prefix(b"plan:") {
                Some(default) => resolver.plan(plan, default),
                None => resolver.policy(name),
            };
            rules.extend_from_slice(found.map_err(|error| ParseError::rule(text, error))?);
        } else if !resolver.rule(text, rules).map_err(|error| ParseError::rule(text, error))? {
            break;
        }
        let (before, found) = rules.split_at_checked(first_found).unwrap_or_default();
        test_bounds(text, found, limits, before.get(start..).unwrap_or_default())?;
        args.take();
        taken = taken.saturating_add(1);
    }
    Ok(taken)
}

/// Tests the rules of one argument against the settings and the rules before them.
#[inline(always)]
fn test_bounds(text: &[u8], found: &[Rule], limits: &Limits, before: &[Rule]) -> Parsed<()> {
    if before.len().saturating_add(found.len()) > limits.max_rules {
        return Err(ParseError::rule(text, RuleArgError::TooMany { max: limits.max_rules }));
    }
    for rule in found {
        // Skips the comparison for the first rule, usually the only one.
        let is_repeated = !before.is_empty()
            && !limits.same_identity
            && before.iter().any(|other| other.same_identity(rule));
        if is_repeated || is_too_long(rule, limits) {
            return Err(out_of_bounds(text, rule, limits, before));
        }
    }
    Ok(())
}

fn is_too_long(rule: &Rule, limits: &Limits) -> bool {
    rule.kind() == Kind::Log && u64::from(rule.limit()) > limits.max_log_entries
}

#[cold]
fn out_of_bounds(text: &[u8], rule: &Rule, limits: &Limits, before: &[Rule]) -> ParseError {
    let clash = Clash::of_identity(rule, before).filter(|_| !is_too_long(rule, limits));
    let long = RuleArgError::LongLog { limit: rule.limit(), max: limits.max_log_entries };
    let error = clash.map_or(long, RuleArgError::Clash);
    if text.starts_with(b"@") {
        return ParseError::rule(&[text, b" ", rule.to_string().as_bytes()].concat(), error);
    }
    ParseError::rule(text, error)
}

pub(crate) fn require_rule(rules: &[Rule]) -> Parsed<()> {
    if rules.is_empty() { Err(ParseError::Arity) } else { Ok(()) }
}
