//! Reads an effect; `mod.rs` describes its form.

use super::write::{BANS, END, EXPIRY, FORGOTTEN, Field, KEEP, LENGTH, REFUND, SPAN, TIME, UNITS};
use super::{Action, BanTerms, Effect, Recorded, VERSION, WITHOUT_AUTHOR, Word};
use crate::parse::cursor::Cursor;
use crate::parse::rules::{A_RULE, require_rule, take_rules};
use crate::parse::settle::settled;
use crate::parse::{Limits, NoPolicies, ParseError, policy};
use ratelimit_engine::key::{
    Access, BanCount, Expiry, HoldRequest, MAX_USER, Meta, Settlement, Verdict,
};
use ratelimit_engine::rule::{Excerpt, NamedCost, Rule, digits};

/// What errors say after 'expected' if an effect ends too early.
const FIELDS: &str = "time:expiry:word and the word's numbers";
/// What errors say after 'expected' about a user's name that is too long.
const A_USER: &str = "at most 64 bytes";
const _: () = assert!(MAX_USER == 64);
/// What errors say after 'expected' about a field that is no version.
const VERSIONS: &str = "v1 or v2";
/// What errors say after 'expected' if an effect has a field too many.
const NO_FIELD: &str = "the effect to end before it";

/// Why an effect cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EffectError {
    /// It has a version newer than [`VERSION`].
    #[error(
        "an effect of version {version} was written by a newer version of the module, \
         expected version {VERSION} or older; upgrade this server first"
    )]
    Newer {
        /// The version that was given.
        version: u64,
    },
    /// The head's word names no action.
    #[error("effect is {given}, expected {}", words())]
    UnknownWord {
        /// That word.
        given: Excerpt,
    },
    /// The word is known, but a number or an argument that belongs to it is wrong.
    #[error(transparent)]
    Parse(#[from] ParseError),
}

fn words() -> String {
    let [others @ .., last] = Word::ALL.map(Word::name);
    format!("{} or {last}", others.join(", "))
}

/// Reads the arguments of an `RL.APPLY` after its key. Puts the rules of a check (at least one) or of
/// a refund into `rules`, and a settlement's costs by name into `named`. Tests only the text: the
/// primary has tested the effect against its settings.
///
/// # Errors
/// The first fault, from left to right.
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
        Action::Check { recorded, meta, .. } => {
            if let Recorded::Held(hold) = recorded {
                hold.id = args.id()?;
            }
            if let Some(meta) = meta {
                meta.text = args.required()?;
            }
            take_rules(None, &mut args, &Limits::ANY_CHECK, &mut NoPolicies, rules)?;
            if args.peek().is_none() {
                require_rule(rules)?;
            }
        }
        Action::Settle { id: hold, settled: how } => {
            *hold = args.id()?;
            (*how, *named) = settled(&mut args)?;
        }
        Action::Renew { id: hold, .. } => *hold = args.id()?,
        Action::Refund { .. } => {
            take_rules(None, &mut args, &Limits::ANY_CHECK, &mut NoPolicies, rules)?;
        }
        Action::Set { reason, user, .. } => {
            *reason = args.required()?;
            if let Some(user) = user {
                *user = args.required()?;
                if user.len() > MAX_USER {
                    let error = ParseError::value("the user", user, A_USER);
                    return Err(EffectError::Parse(error));
                }
            }
        }
        Action::Pause { reason, .. } => *reason = args.required()?,
        Action::Plan { name, .. } => {
            *name = args.required()?;
            policy::name(name)?;
        }
        Action::Lapse
        | Action::Reset
        | Action::Unblock
        | Action::Unexempt
        | Action::Resume
        | Action::Unplan => {}
    }
    args.finish(A_RULE)?;
    Ok(effect)
}

/// Reads a head. The texts of the action come later.
fn head(given: &[u8]) -> Result<Effect<'_>, EffectError> {
    let mut fields = Cursor::new(given.split(|&byte| byte == b':'));
    let effect = fields.effect().map_err(|error| match error {
        EffectError::Parse(ParseError::Arity) => {
            EffectError::Parse(ParseError::value("effect", given, FIELDS))
        }
        error => error,
    })?;
    fields.finish(NO_FIELD)?;
    Ok(effect)
}

/// The fields of a head.
impl<'a, I: Iterator<Item = &'a [u8]>> Cursor<'a, I> {
    fn number<T: TryFrom<u64>>(&mut self, field: Field) -> Result<T, ParseError> {
        self.integer(field.name, field.range())
    }

    fn effect(&mut self) -> Result<Effect<'a>, EffectError> {
        let version = self.version()?;
        let at_us = self.number(TIME)?;
        let expiry = self.expiry()?;
        let mut action = self.action()?;
        if let Action::Set { ban: None, user, .. } = &mut action {
            *user = (version > WITHOUT_AUTHOR).then_some(b"");
        }
        Ok(Effect { at_us, expiry, action })
    }

    /// Refuses versions newer than [`VERSION`].
    fn version(&mut self) -> Result<u64, EffectError> {
        let given = self.required()?;
        match given.strip_prefix(b"v").and_then(digits) {
            Some(version @ WITHOUT_AUTHOR..=VERSION) => Ok(version),
            Some(version) if version > VERSION => Err(EffectError::Newer { version }),
            _ => Err(EffectError::Parse(ParseError::value(
                "the version of an effect",
                given,
                VERSIONS,
            ))),
        }
    }

    /// Reads a time; -1 stands for never.
    fn time_or_never(&mut self, field: Field) -> Result<Option<u64>, ParseError> {
        if self.keyword("-1") { Ok(None) } else { self.number(field).map(Some) }
    }

    fn expiry(&mut self) -> Result<Expiry, ParseError> {
        Ok(match self.time_or_never(EXPIRY)? {
            None => Expiry::Never,
            Some(0) => Expiry::Keep,
            Some(unix_ms) => Expiry::At(unix_ms),
        })
    }

    /// Reads the word and its numbers.
    fn action(&mut self) -> Result<Action<'a>, EffectError> {
        let given = self.required()?;
        let word = Word::of_name(given)
            .ok_or_else(|| EffectError::UnknownWord { given: Excerpt::new(given) })?;
        Ok(match word {
            Word::Admit => self.check(Recorded::Admitted)?,
            Word::Charge => self.check(Recorded::Charged)?,
            Word::Pass => self.check(Recorded::HistoryOnly(Verdict::Allowed))?,
            Word::Deny => self.check(Recorded::HistoryOnly(Verdict::Limited))?,
            Word::Refuse => self.check(Recorded::HistoryOnly(Verdict::Blocked))?,
            Word::Hold => {
                self.check(Recorded::Held(HoldRequest { id: b"", end_us: 0, refund: false }))?
            }
            Word::Settle => Action::Settle { id: b"", settled: Settlement::AsCharged },
            Word::Renew => Action::Renew { id: b"", end_us: self.number(END)? },
            Word::Refund => Action::Refund { units: self.number(UNITS)? },
            Word::Lapse => Action::Lapse,
            Word::Reset => Action::Reset,
            Word::Block => self.set(Access::Block, None)?,
            Word::Exempt => self.set(Access::Exempt, None)?,
            Word::Ban => self.set(Access::Block, Some(BanTerms::default()))?,
            Word::Unblock => Action::Unblock,
            Word::Unexempt => Action::Unexempt,
            Word::Pause => Action::Pause { until_us: self.number(END)?, reason: b"" },
            Word::Resume => Action::Resume,
            Word::Plan => Action::Plan { until_us: self.time_or_never(END)?, name: b"" },
            Word::Unplan => Action::Unplan,
        })
    }

    /// Reads the numbers of a check, and of its hold. Only a check with `META` says how many checks
    /// the history keeps.
    fn check(&mut self, mut recorded: Recorded<'a>) -> Result<Action<'a>, ParseError> {
        let cost = self.number(UNITS)?;
        if let Recorded::Held(hold) = &mut recorded {
            hold.end_us = self.number(END)?;
            hold.refund = self.number::<u64>(REFUND)? == 1;
        }
        let mut meta = None;
        if self.peek().is_some() {
            meta = Some(Meta { keep: self.number(KEEP)?, text: b"" });
        }
        Ok(Action::Check { recorded, cost, meta })
    }

    /// Reads the numbers of a block, an exemption or a ban.
    fn set(&mut self, kind: Access, mut ban: Option<BanTerms>) -> Result<Action<'a>, ParseError> {
        let until_us = self.time_or_never(END)?;
        if let Some(ban) = &mut ban {
            ban.length_us = self.number(LENGTH)?;
            if self.peek().is_some() {
                ban.count = Some(BanCount {
                    bans: self.number(BANS)?,
                    forgotten_us: self.number(FORGOTTEN)?,
                    span_us: self.number(SPAN)?,
                });
            }
        }
        Ok(Action::Set { kind, until_us, ban, reason: b"", user: None })
    }
}
