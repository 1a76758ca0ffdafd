//! What a primary did to a key, in the words of `RL.APPLY`.
//!
//! ```text
//! RL.APPLY key v2:at-us:expiry:WORD...    ...
//!
//! admit, charge           :units[:keep]           [text] rule [rule ...]    consumed
//! pass, deny, refuse      :units[:keep]           [text] rule [rule ...]    only remembered
//! refund                  :units                  [rule [rule ...]]
//! block, exempt           :until-us               reason                    -1: for good
//! ban                     :until-us:length-us     reason
//! reset, unblock, unexempt
//! ```
//!
//! The expiry is in Unix milliseconds; -1 is never, 0 leaves it as it was. A
//! text comes with how many checks the history is to keep.
//!
//! Most of it is one argument, since the server makes, sends and frees each on
//! its own.
//!
//! # Versions
//!
//! Append-only files and replication streams outlive the module that wrote them,
//! so every version is read for good; `tests/fixtures/effects` holds a file of
//! each. A change of this text, and every addition to the text of rules, is a new
//! version: an older module must stop at it, not misread it. `server/head.rs`
//! writes the newest.
//!
//! ```text
//! 2   v2:at-us:expiry:WORD...                                   a ban has its length
//! 1   at-us:expiry:WORD...                                      without it
//!     at-us expiry WORD units [META keep text] rule ...         an argument each
//!     at-us admit|charge|refund units expiry [rule ...]
//! ```
//!
//! Version 1 names no version and has three forms, told apart by the colon in the
//! first argument and the word in the second.

use super::cursor::Cursor;
use super::error::ParseError;
use super::options::{TIME_US, UNITS};
use super::resolver::NoPolicies;
use super::rules::{A_RULE, require_rule, take_rules as rules_of};
use crate::limit::{Access, Change, Expiry, Meta, Verdict};
use crate::rule::{Excerpt, MAX_PERIOD_US, MAX_TIME_US, Rule, digits};
use std::ops::RangeInclusive;

/// What Redis can take as an absolute expiry in milliseconds.
const EXPIRY_MS: RangeInclusive<u64> = 0..=i64::MAX.unsigned_abs();
/// When a block can end: a ban set at the latest time lasts a period more.
const END_US: RangeInclusive<u64> = 0..=MAX_TIME_US.saturating_add(MAX_PERIOD_US);
/// How many checks a history can keep.
const KEEP: RangeInclusive<u64> = 1..=u32::MAX as u64;
/// How long a ban can be.
const LENGTH_US: RangeInclusive<u64> = 0..=MAX_PERIOD_US;
/// What an effect that ends too early lacks, and one that does not end has.
const FIELDS: &str = "time:expiry:word and the word's numbers";
const NO_FIELD: &str = "the effect to end before it";

/// The newest version of effects, which is the one that is written.
pub const EFFECT_VERSION: u64 = 2;
/// The version of effects that name none.
const UNVERSIONED: u64 = 1;

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
    SetAccess(SetAccess<'a>),
    LiftAccess(Access),
}

/// A block, a ban or an exemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetAccess<'a> {
    pub kind: Access,
    /// It is a ban.
    pub by_rule: bool,
    pub until_us: Option<u64>,
    /// How long a ban lasts; `None` in version 1.
    pub ban_us: Option<u64>,
    pub reason: &'a [u8],
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
    let mut effect = match args.peek() {
        Some(first) if first.contains(&b':') || first.starts_with(b"v") => head(args.required()?)?,
        _ => separate(&mut args)?,
    };
    match &mut effect.action {
        Action::Check { meta, .. } => {
            if let Some(meta) = meta {
                meta.text = args.required()?;
            }
            rules_of(&mut args, None, &mut NoPolicies, rules)?;
            if args.peek().is_none() {
                require_rule(rules)?;
            }
        }
        Action::Refund { .. } => {
            rules_of(&mut args, None, &mut NoPolicies, rules)?;
        }
        Action::SetAccess(access) => access.reason = args.required()?,
        Action::Reset | Action::LiftAccess(_) => {}
    }
    args.finish(A_RULE)?;
    Ok(effect)
}

/// An effect whose numbers and word are the first argument. Its texts are yet to
/// come.
fn head<'a>(given: &'a [u8]) -> Result<Effect<'a>, ParseError> {
    let mut fields = Cursor::new(given.split(|&byte| byte == b':'));
    let effect = version(&mut fields)
        .and_then(|version| {
            let at_us = fields.integer("time", TIME_US)?;
            let expiry = expiry(&mut fields)?;
            let action = action(&mut fields, version, |fields| fields.peek().is_some())?;
            Ok(Effect { at_us, expiry, action })
        })
        .map_err(|error| match error {
            ParseError::Arity => {
                ParseError::Word { what: "effect", given: Excerpt::new(given), expected: FIELDS }
            }
            error => error,
        })?;
    fields.finish(NO_FIELD)?;
    Ok(effect)
}

/// The version that a head names.
fn version<'a, I: Iterator<Item = &'a [u8]>>(
    fields: &mut Cursor<'a, I>,
) -> Result<u64, ParseError> {
    let Some(number) = fields.peek().and_then(|field| field.strip_prefix(b"v")) else {
        return Ok(UNVERSIONED);
    };
    let given = Excerpt::new(fields.required()?);
    match digits(number) {
        Some(EFFECT_VERSION) => Ok(EFFECT_VERSION),
        Some(version) if version > EFFECT_VERSION => Err(ParseError::NewerEffect { version }),
        _ => Err(ParseError::Word { what: "the version of an effect", given, expected: "v2" }),
    }
}

/// The effect of a version 1 whose numbers and word are arguments. Its texts are
/// yet to come.
fn separate<'a, I: Iterator<Item = &'a [u8]>>(
    args: &mut Cursor<'a, I>,
) -> Result<Effect<'a>, ParseError> {
    let at_us = args.integer("time", TIME_US)?;
    let (expiry, action) = match args.peek() {
        Some(b"admit" | b"charge" | b"refund") => {
            let action = action(args, UNVERSIONED, |_| false)?;
            (expiry(args)?, action)
        }
        _ => (expiry(args)?, action(args, UNVERSIONED, |args| args.keyword("META"))?),
    };
    Ok(Effect { at_us, expiry, action })
}

/// The word and its numbers. Whether a check is remembered is for the form to say.
fn action<'a, I: Iterator<Item = &'a [u8]>>(
    fields: &mut Cursor<'a, I>,
    version: u64,
    is_marked: impl FnOnce(&mut Cursor<'a, I>) -> bool,
) -> Result<Action<'a>, ParseError> {
    let check = |fields: &mut Cursor<'a, I>, change| {
        let cost = fields.integer("units", UNITS)?;
        let meta = match is_marked(fields) {
            true => Some(Meta { keep: fields.integer("keep", KEEP)?, text: b"" }),
            false => None,
        };
        Ok(Action::Check { change, cost, meta })
    };
    let word = fields.required()?;
    match word {
        b"admit" => check(fields, Change::Admitted),
        b"charge" => check(fields, Change::Charged),
        b"pass" => check(fields, Change::HistoryOnly(Verdict::Allowed)),
        b"deny" => check(fields, Change::HistoryOnly(Verdict::Limited)),
        b"refuse" => check(fields, Change::HistoryOnly(Verdict::Blocked)),
        b"refund" => Ok(Action::Refund { units: fields.integer("units", UNITS)? }),
        b"reset" => Ok(Action::Reset),
        b"block" => access(fields, Access::Block),
        b"ban" => ban(fields, version),
        b"exempt" => access(fields, Access::Exempt),
        b"unblock" => Ok(Action::LiftAccess(Access::Block)),
        b"unexempt" => Ok(Action::LiftAccess(Access::Exempt)),
        _ => Err(ParseError::Word {
            what: "effect",
            given: Excerpt::new(word),
            expected: "admit, charge, pass, deny, refuse, refund, reset, \
                       block, ban, exempt, unblock or unexempt",
        }),
    }
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

fn access<'a, I: Iterator<Item = &'a [u8]>>(
    fields: &mut Cursor<'a, I>,
    kind: Access,
) -> Result<Action<'a>, ParseError> {
    let until_us = end(fields)?;
    Ok(Action::SetAccess(SetAccess { kind, by_rule: false, until_us, ban_us: None, reason: b"" }))
}

fn ban<'a, I: Iterator<Item = &'a [u8]>>(
    fields: &mut Cursor<'a, I>,
    version: u64,
) -> Result<Action<'a>, ParseError> {
    let (kind, until_us) = (Access::Block, end(fields)?);
    let ban_us = match version {
        UNVERSIONED => None,
        _ => Some(fields.integer("the length", LENGTH_US)?),
    };
    Ok(Action::SetAccess(SetAccess { kind, by_rule: true, until_us, ban_us, reason: b"" }))
}

fn end<'a, I: Iterator<Item = &'a [u8]>>(
    fields: &mut Cursor<'a, I>,
) -> Result<Option<u64>, ParseError> {
    if fields.keyword("-1") { Ok(None) } else { fields.integer("the end", END_US).map(Some) }
}

#[cfg(test)]
mod tests;
