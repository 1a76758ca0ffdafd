//! Reading an effect; `mod.rs` describes them.

use super::{Action, Effect, Recorded, VERSION, VERSION_FIELD, Word};
use crate::limit::{BanCount, Expiry, HoldRequest, MAX_FORGOTTEN_US, MAX_SPAN_US, Meta, Verdict};
use crate::parse::cursor::Cursor;
use crate::parse::hold::MAX_END_US;
use crate::parse::options::{TIME_US, UNITS};
use crate::parse::rules::{A_RULE, require_rule, take_rules};
use crate::parse::settle::settled;
use crate::parse::{Limits, NoPolicies, ParseError, Settled};
use crate::rule::{Excerpt, MAX_PERIOD_US, NamedCost, Rule, digits};
use std::fmt;
use std::ops::RangeInclusive;

/// The absolute expiry that Redis can take, in milliseconds.
const EXPIRY_MS: RangeInclusive<u64> = 0..=i64::MAX.unsigned_abs();
/// When a block or a hold can end.
const END_US: RangeInclusive<u64> = 0..=MAX_END_US;
/// Whether the charges of a hold come back when it lapses.
const REFUND: RangeInclusive<u64> = 0..=1;
/// How many checks a history can keep.
const KEEP: RangeInclusive<u64> = 1..=u32::MAX as u64;
/// How long a ban can be.
const LENGTH_US: RangeInclusive<u64> = 0..=MAX_PERIOD_US;
/// How many bans a key can have had.
const BANS: RangeInclusive<u64> = 1..=u32::MAX as u64;
/// When bans are forgotten.
const FORGOTTEN_US: RangeInclusive<u64> = 0..=MAX_FORGOTTEN_US;
/// The time from a ban until the key's bans are forgotten.
const SPAN_US: RangeInclusive<u64> = 0..=MAX_SPAN_US;
/// What errors expect where an effect ends too early.
const FIELDS: &str = "time:expiry:word and the word's numbers";
/// What errors expect in place of a superfluous field.
const NO_FIELD: &str = "the effect to end before it";

/// Why an effect cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EffectError {
    /// It has a version newer than [`VERSION`].
    Newer {
        /// The version that was given.
        version: u64,
    },
    /// The head's word names no action.
    UnknownWord {
        /// That word.
        given: Excerpt,
    },
    /// The word is known, but a number or an argument that belongs to it is wrong.
    Parse(ParseError),
}

impl From<ParseError> for EffectError {
    fn from(error: ParseError) -> Self {
        Self::Parse(error)
    }
}

impl fmt::Display for EffectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newer { version } => write!(
                f,
                "an effect of version {version} was written by a newer version of the module, \
                 expected version {VERSION} or older; upgrade this server first"
            ),
            Self::UnknownWord { given } => {
                write!(f, "effect is {given}, expected ")?;
                let [first, middle @ .., last] = Word::ALL.map(Word::name);
                f.write_str(first)?;
                for word in middle {
                    write!(f, ", {word}")?;
                }
                write!(f, " or {last}")
            }
            Self::Parse(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for EffectError {}

/// Reads the arguments of an `RL.APPLY` after its key. Puts the rules of a check, at least one,
/// or of a refund into `rules`, and a settlement's costs by name into `named`. Tests only the
/// text: the primary has tested the effect against its settings.
///
/// # Errors
/// Whatever is wrong first, from left to right.
pub fn read<'a>(
    args: impl Iterator<Item = &'a [u8]>,
    rules: &mut Vec<Rule>,
    named: &mut Vec<NamedCost>,
) -> Result<Effect<'a>, EffectError> {
    let mut args = Cursor::new(args);
    rules.clear();
    named.clear();
    let mut effect = head(args.required()?)?;
    match &mut effect.action {
        Action::Check { meta, .. } => rest_of_check(&mut args, meta, rules)?,
        Action::Hold { hold, meta, .. } => {
            hold.id = args.id()?;
            rest_of_check(&mut args, meta, rules)?;
        }
        Action::Settle { id: hold, settled: how } => {
            *hold = args.id()?;
            (*how, *named) = settled(&mut args)?;
        }
        Action::Renew { id: hold, .. } => *hold = args.id()?,
        Action::Refund { .. } => {
            take_rules(&mut args, &Limits::ANY, &mut NoPolicies, rules)?;
        }
        Action::Block { reason, .. }
        | Action::Exempt { reason, .. }
        | Action::Ban { reason, .. } => *reason = args.required()?,
        Action::Lapse | Action::Reset | Action::Unblock | Action::Unexempt => {}
    }
    args.finish(A_RULE)?;
    Ok(effect)
}

/// Reads what follows the head of a check.
fn rest_of_check<'a, I: Iterator<Item = &'a [u8]>>(
    args: &mut Cursor<'a, I>,
    meta: &mut Option<Meta<'a>>,
    rules: &mut Vec<Rule>,
) -> Result<(), ParseError> {
    if let Some(meta) = meta {
        meta.text = args.required()?;
    }
    take_rules(args, &Limits::ANY, &mut NoPolicies, rules)?;
    if args.peek().is_some() { Ok(()) } else { require_rule(rules) }
}

/// Reads a head. The texts of the action come later.
fn head(given: &[u8]) -> Result<Effect<'_>, EffectError> {
    let mut fields = Cursor::new(given.split(|&byte| byte == b':'));
    let effect = fields_of_head(&mut fields).map_err(|error| match error {
        EffectError::Parse(ParseError::Arity) => {
            EffectError::Parse(ParseError::value("effect", given, FIELDS))
        }
        error => error,
    })?;
    fields.finish(NO_FIELD)?;
    Ok(effect)
}

fn fields_of_head<'a, I: Iterator<Item = &'a [u8]>>(
    fields: &mut Cursor<'a, I>,
) -> Result<Effect<'a>, EffectError> {
    test_version(fields)?;
    let at_us = fields.integer("time", TIME_US)?;
    let expiry = expiry(fields)?;
    Ok(Effect { at_us, expiry, action: action(fields)? })
}

/// Refuses a head of another version.
fn test_version<'a, I: Iterator<Item = &'a [u8]>>(
    fields: &mut Cursor<'a, I>,
) -> Result<(), EffectError> {
    let given = fields.required()?;
    match given.strip_prefix(b"v").and_then(digits) {
        Some(VERSION) => Ok(()),
        Some(version) if version > VERSION => Err(EffectError::Newer { version }),
        _ => Err(EffectError::Parse(ParseError::value(
            "the version of an effect",
            given,
            VERSION_FIELD,
        ))),
    }
}

/// Reads the word and its numbers.
fn action<'a, I: Iterator<Item = &'a [u8]>>(
    fields: &mut Cursor<'a, I>,
) -> Result<Action<'a>, EffectError> {
    let given = fields.required()?;
    let word = Word::of_name(given)
        .ok_or_else(|| EffectError::UnknownWord { given: Excerpt::new(given) })?;
    let reason = &b""[..];
    Ok(match word {
        Word::Admit => check(fields, Recorded::Admitted)?,
        Word::Charge => check(fields, Recorded::Charged)?,
        Word::Pass => check(fields, Recorded::HistoryOnly(Verdict::Allowed))?,
        Word::Deny => check(fields, Recorded::HistoryOnly(Verdict::Limited))?,
        Word::Refuse => check(fields, Recorded::HistoryOnly(Verdict::Blocked))?,
        Word::Hold => {
            let cost = fields.integer("units", UNITS)?;
            let end_us = fields.integer("the end", END_US)?;
            let refund = fields.integer::<u64>("refund", REFUND)? == 1;
            let hold = HoldRequest { id: b"", end_us, refund };
            Action::Hold { hold, cost, meta: meta(fields)? }
        }
        Word::Settle => Action::Settle { id: b"", settled: Settled::AsCharged },
        Word::Renew => Action::Renew { id: b"", end_us: fields.integer("the end", END_US)? },
        Word::Refund => Action::Refund { units: fields.integer("units", UNITS)? },
        Word::Lapse => Action::Lapse,
        Word::Reset => Action::Reset,
        Word::Block => Action::Block { until_us: end(fields)?, reason },
        Word::Exempt => Action::Exempt { until_us: end(fields)?, reason },
        Word::Ban => {
            let until_us = end(fields)?;
            let length_us = fields.integer("the length", LENGTH_US)?;
            let count = fields.peek().is_some().then(|| ban_count(fields)).transpose()?;
            Action::Ban { until_us, length_us, count, reason }
        }
        Word::Unblock => Action::Unblock,
        Word::Unexempt => Action::Unexempt,
    })
}

/// Reads the numbers of a check.
fn check<'a, I: Iterator<Item = &'a [u8]>>(
    fields: &mut Cursor<'a, I>,
    recorded: Recorded,
) -> Result<Action<'a>, ParseError> {
    let cost = fields.integer("units", UNITS)?;
    Ok(Action::Check { recorded, cost, meta: meta(fields)? })
}

fn ban_count<'a, I: Iterator<Item = &'a [u8]>>(
    fields: &mut Cursor<'a, I>,
) -> Result<BanCount, ParseError> {
    Ok(BanCount {
        bans: fields.integer("bans", BANS)?,
        forgotten_us: fields.integer("the time of forgetting", FORGOTTEN_US)?,
        span_us: fields.integer("the span", SPAN_US)?,
    })
}

/// Reads how many checks the history keeps. Only a check with `META` says so.
fn meta<'a, I: Iterator<Item = &'a [u8]>>(
    fields: &mut Cursor<'a, I>,
) -> Result<Option<Meta<'a>>, ParseError> {
    if fields.peek().is_none() {
        return Ok(None);
    }
    Ok(Some(Meta { keep: fields.integer("keep", KEEP)?, text: b"" }))
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

fn end<'a, I: Iterator<Item = &'a [u8]>>(
    fields: &mut Cursor<'a, I>,
) -> Result<Option<u64>, ParseError> {
    if fields.keyword("-1") { Ok(None) } else { fields.integer("the end", END_US).map(Some) }
}
