//! What a primary did to a key, in the words of `RL.APPLY`.
//!
//! ```text
//! RL.APPLY key at-us expiry EFFECT
//!
//! admit, charge            units   [META keep text] rule [rule ...]    consumed
//! pass, deny, refuse       units   [META keep text] rule [rule ...]    only marked
//! refund                   units   [rule [rule ...]]
//! block, ban, exempt       until-us or -1   reason
//! reset, unblock, unexempt
//! ```
//!
//! The expiry is in Unix milliseconds; -1 is never, 0 leaves it as it was.

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
    let at_us = args.integer("time", TIME_US)?;
    let expiry = expiry(&mut args)?;
    let word = args.required()?;
    let action = match word {
        b"admit" => check(&mut args, Change::Admitted, rules)?,
        b"charge" => check(&mut args, Change::Charged, rules)?,
        b"pass" => check(&mut args, Change::Marked(Verdict::Allowed), rules)?,
        b"deny" => check(&mut args, Change::Marked(Verdict::Limited), rules)?,
        b"refuse" => check(&mut args, Change::Marked(Verdict::Blocked), rules)?,
        b"refund" => {
            let units = args.integer("units", UNITS)?;
            rules_of(&mut args, None, &mut Nothing, rules)?;
            Action::Refund { units }
        }
        b"reset" => Action::Reset,
        b"block" => overrule(&mut args, OverrideKind::Block, false)?,
        b"ban" => overrule(&mut args, OverrideKind::Block, true)?,
        b"exempt" => overrule(&mut args, OverrideKind::Exempt, false)?,
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
    args.finish(A_RULE)?;
    Ok(Effect { at_us, expiry, action })
}

fn expiry<'a, I: Iterator<Item = &'a [u8]>>(
    args: &mut Cursor<'a, I>,
) -> Result<Expiry, ParseError> {
    if args.keyword("-1") {
        return Ok(Expiry::Never);
    }
    Ok(match args.integer("expiry", EXPIRY_MS)? {
        0 => Expiry::Keep,
        unix_ms => Expiry::At(unix_ms),
    })
}

fn check<'a, I: Iterator<Item = &'a [u8]>>(
    args: &mut Cursor<'a, I>,
    change: Change,
    rules: &mut Vec<Rule>,
) -> Result<Action<'a>, ParseError> {
    let cost = args.integer("units", UNITS)?;
    let meta = if args.keyword("META") {
        Some(Meta { keep: args.integer("META", KEEP)?, text: args.required()? })
    } else {
        None
    };
    rules_of(args, None, &mut Nothing, rules)?;
    if args.peek().is_none() {
        require_rule(rules)?;
    }
    Ok(Action::Check { change, cost, meta })
}

fn overrule<'a, I: Iterator<Item = &'a [u8]>>(
    args: &mut Cursor<'a, I>,
    kind: OverrideKind,
    by_rule: bool,
) -> Result<Action<'a>, ParseError> {
    let until_us = if args.keyword("-1") { None } else { Some(args.integer("the end", END_US)?) };
    Ok(Action::Overrule { kind, by_rule, until_us, reason: args.required()? })
}

#[cfg(test)]
mod tests;
