//! What a primary did to a key, in the words of `RL.APPLY`.
//!
//! ```text
//! RL.APPLY key at-us:expiry:WORD...    ...
//!
//! admit, charge           :units[:keep]    [text] rule [rule ...]    consumed
//! pass, deny, refuse      :units[:keep]    [text] rule [rule ...]    only marked
//! refund                  :units           [rule [rule ...]]
//! block, ban, exempt      :until-us        reason                    -1: for good
//! reset, unblock, unexempt
//! ```
//!
//! The expiry is in Unix milliseconds; -1 is never, 0 leaves it as it was. A
//! text comes with how many checks the trail is to keep.
//!
//! Most of it is one argument, since the server makes, sends and frees each on
//! its own.

use super::cursor::Cursor;
use super::error::{Excerpt, ParseError};
use super::known::Nothing;
use super::request::{A_RULE, TIME_US, UNITS, require_rule, rules_of};
use crate::limit::rule::MAX_PERIOD_US;
use crate::limit::{Change, Expiry, MAX_TIME_US, Meta, OverrideKind, Rule, Verdict};
use std::ops::RangeInclusive;

/// What Redis can take as an absolute expiry in milliseconds.
const EXPIRY_MS: RangeInclusive<u64> = 0..=i64::MAX.unsigned_abs();
/// When a block can end: a ban set at the latest time lasts a period more.
const END_US: RangeInclusive<u64> = 0..=MAX_TIME_US.saturating_add(MAX_PERIOD_US);
/// How many checks a trail can keep.
const KEEP: RangeInclusive<u64> = 1..=u32::MAX as u64;
/// What an effect that ends too early lacks, and one that does not end has.
const FIELDS: &str = "time:expiry:word and the word's numbers";
const NO_FIELD: &str = "the effect to end before it";

/// An effect as it comes from a primary or the AOF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect<'a> {
    /// The time it was decided as of.
    pub at_us: u64,
    /// When the key expires from now on.
    pub expiry: Expiry,
    pub action: Action<'a>,
}

/// What an effect does. The rules of a check or a refund are beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    Check { change: Change, cost: u32, meta: Option<Meta<'a>> },
    Refund { units: u32 },
    Reset,
    Overrule { kind: OverrideKind, by_rule: bool, until_us: Option<u64>, reason: &'a [u8] },
    Lift(OverrideKind),
}

/// The effect an `RL.APPLY` carries. What the configuration allows was the
/// primary's decision, so only the text itself is tested here; the effect of a
/// check has at least one rule.
///
/// # Errors
/// Whatever is wrong first, from left to right.
pub fn apply<'a>(
    args: impl Iterator<Item = &'a [u8]>,
    rules: &mut Vec<Rule>,
) -> Result<Effect<'a>, ParseError> {
    let mut args = Cursor::new(args);
    rules.clear();
    let mut effect = head(args.required()?)?;
    match &mut effect.action {
        Action::Check { meta, .. } => {
            if let Some(meta) = meta {
                meta.text = args.required()?;
            }
            rules_of(&mut args, None, &mut Nothing, rules)?;
            if args.peek().is_none() {
                require_rule(rules)?;
            }
        }
        Action::Refund { .. } => {
            rules_of(&mut args, None, &mut Nothing, rules)?;
        }
        Action::Overrule { reason, .. } => *reason = args.required()?,
        Action::Reset | Action::Lift(_) => {}
    }
    args.finish(A_RULE)?;
    Ok(effect)
}

/// What the first argument says. Its texts are yet to come.
fn head<'a>(given: &'a [u8]) -> Result<Effect<'a>, ParseError> {
    let mut fields = Cursor::new(given.split(|&byte| byte == b':'));
    let effect = effect(&mut fields).map_err(|error| match error {
        ParseError::Arity => {
            ParseError::Word { what: "effect", given: Excerpt::new(given), expected: FIELDS }
        }
        error => error,
    })?;
    fields.finish(NO_FIELD)?;
    Ok(effect)
}

fn effect<'a, I: Iterator<Item = &'a [u8]>>(
    fields: &mut Cursor<'a, I>,
) -> Result<Effect<'a>, ParseError> {
    let at_us = fields.integer("time", TIME_US)?;
    let expiry = expiry(fields)?;
    let word = fields.required()?;
    let action = match word {
        b"admit" => check(fields, Change::Admitted)?,
        b"charge" => check(fields, Change::Charged)?,
        b"pass" => check(fields, Change::Marked(Verdict::Allowed))?,
        b"deny" => check(fields, Change::Marked(Verdict::Limited))?,
        b"refuse" => check(fields, Change::Marked(Verdict::Blocked))?,
        b"refund" => Action::Refund { units: fields.integer("units", UNITS)? },
        b"reset" => Action::Reset,
        b"block" => overrule(fields, OverrideKind::Block, false)?,
        b"ban" => overrule(fields, OverrideKind::Block, true)?,
        b"exempt" => overrule(fields, OverrideKind::Exempt, false)?,
        b"unblock" => Action::Lift(OverrideKind::Block),
        b"unexempt" => Action::Lift(OverrideKind::Exempt),
        _ => {
            return Err(ParseError::Word {
                what: "effect",
                given: Excerpt::new(word),
                expected: "admit, charge, pass, deny, refuse, refund, reset, \
                           block, ban, exempt, unblock or unexempt",
            });
        }
    };
    Ok(Effect { at_us, expiry, action })
}

fn expiry<'a, I: Iterator<Item = &'a [u8]>>(
    fields: &mut Cursor<'a, I>,
) -> Result<Expiry, ParseError> {
    if fields.keyword("-1") {
        return Ok(Expiry::Never);
    }
    Ok(match fields.integer("expiry", EXPIRY_MS)? {
        0 => Expiry::Keep,
        unix_ms => Expiry::At(unix_ms),
    })
}

fn check<'a, I: Iterator<Item = &'a [u8]>>(
    fields: &mut Cursor<'a, I>,
    change: Change,
) -> Result<Action<'a>, ParseError> {
    let cost = fields.integer("units", UNITS)?;
    let meta = match fields.peek() {
        Some(_) => Some(Meta { keep: fields.integer("keep", KEEP)?, text: b"" }),
        None => None,
    };
    Ok(Action::Check { change, cost, meta })
}

fn overrule<'a, I: Iterator<Item = &'a [u8]>>(
    fields: &mut Cursor<'a, I>,
    kind: OverrideKind,
    by_rule: bool,
) -> Result<Action<'a>, ParseError> {
    let until_us =
        if fields.keyword("-1") { None } else { Some(fields.integer("the end", END_US)?) };
    Ok(Action::Overrule { kind, by_rule, until_us, reason: b"" })
}

#[cfg(test)]
mod tests;
