//! What a command did, told to replicas and the append-only file; and the
//! internal commands in which they do the same.
//!
//! Replication and the AOF carry effects, not decisions. A replica decides
//! nothing and looks at no clock, so it ends up with what its primary has,
//! byte for byte.
//!
//! ```text
//! RL.APPLY key effect ...    one effect; see parse/effect.rs
//! RL.LOAD  key payload       a whole value, in a rewritten AOF
//! ```
//!
//! Nobody but the primary's link and the loader may speak them: a client could
//! forge states with them.

use std::ffi::CStr;

use super::expiry;
use super::scratch::{self, Scratch};
use crate::datatype::{self, LIMITER};
use crate::limit::{self, Change, Check, Expiry, Limiter, Override, OverrideKind, Rule, Verdict};
use crate::newer;
use crate::parse::{self, Action, Overruled, ParseError};
use crate::server::{Arg, Args, Call, Details, Effect, Event, Failure, WriteKey};

/// What a check did to a key.
#[derive(Clone, Copy, Debug)]
pub struct Done<'a> {
    pub check: Check<'a>,
    pub change: Change,
    /// It also blocked the key, or its ban ends earlier.
    pub banned: bool,
}

impl Done<'_> {
    pub fn is_something(&self) -> bool {
        self.change != Change::Nothing || self.banned
    }
}

/// After a check that did something, as [`settle`]. The rules are those of the
/// check, in words.
#[inline]
pub fn settle_check<'d>(
    call: &Call<'_>,
    key: &mut WriteKey<'_, Limiter>,
    name: Arg<'_>,
    done: &Done<'d>,
    clock_us: u64,
    rules: impl FnOnce() -> Args<'d>,
) {
    let now_us = done.check.now_us;
    let expiry = expiry::settle(key, now_us, clock_us);
    if let Some(word) = word(done.change) {
        tell(call, name, now_us, expiry, || (word, details(&done.check, rules())));
    }
    if done.banned {
        tell_ban(call, key, name, now_us, expiry);
    }
    call.signal_modified(name);
}

/// After a ban that now ends earlier.
pub fn settle_ban(call: &Call<'_>, key: &mut WriteKey<'_, Limiter>, name: Arg<'_>, now_us: u64) {
    let expiry = expiry::settle(key, now_us, now_us);
    tell_ban(call, key, name, now_us, expiry);
    call.signal_modified(name);
}

fn tell_ban(
    call: &Call<'_>,
    key: &mut WriteKey<'_, Limiter>,
    name: Arg<'_>,
    now_us: u64,
    expiry: Expiry,
) {
    if let Some(ban) = key.value().and_then(|limiter| limiter.overrule()) {
        tell_overrule(call, name, "ban", ban, now_us, expiry);
    }
}

/// What a check did, if it did anything.
const fn word(change: Change) -> Option<&'static str> {
    match change {
        Change::Nothing => None,
        Change::Admitted => Some("admit"),
        Change::Charged => Some("charge"),
        Change::Marked(Verdict::Allowed) => Some("pass"),
        Change::Marked(Verdict::Limited) => Some("deny"),
        Change::Marked(Verdict::Blocked) => Some("refuse"),
    }
}

fn details<'d>(check: &Check<'d>, rules: Args<'d>) -> Details<'d> {
    let units = u64::from(check.cost);
    match check.meta {
        None => Details::Units { units, rules },
        Some(meta) => Details::Marked { units, keep: meta.keep, meta: meta.text, rules },
    }
}

/// After a change: the key expires when it should, and who listens or watches
/// is told what was done, in a word and its details.
pub fn settle<'d>(
    call: &Call<'_>,
    key: &mut WriteKey<'_, Limiter>,
    name: Arg<'_>,
    at_us: u64,
    clock_us: u64,
    done: impl FnOnce() -> (&'static str, Details<'d>),
) {
    let expiry = expiry::settle(key, at_us, clock_us);
    tell(call, name, at_us, expiry, done);
    call.signal_modified(name);
}

/// Tells of a block, a ban or an exemption.
pub fn tell_overrule(
    call: &Call<'_>,
    name: Arg<'_>,
    word: &'static str,
    overrule: &Override,
    at_us: u64,
    expiry: Expiry,
) {
    let until_us = overrule.until_us.map_or(-1, |us| i64::try_from(us).unwrap_or(i64::MAX));
    let details = Details::Overrule { until_us, ban_us: overrule.ban_us, reason: &overrule.reason };
    tell(call, name, at_us, expiry, || (word, details));
}

#[inline]
fn tell<'d>(
    call: &Call<'_>,
    name: Arg<'_>,
    at_us: u64,
    expiry: Expiry,
    done: impl FnOnce() -> (&'static str, Details<'d>),
) {
    call.replicate_effect(name, || {
        let (word, details) = done();
        Effect { at_us, expire_at_ms: expiry::in_effect(expiry), word, details }
    });
}

/// Refuses a command to all but these.
fn only_if_obeyed(call: &Call<'_>, refusal: &'static str) -> Result<(), Failure> {
    if call.must_be_obeyed() { Ok(()) } else { Err(Failure::because(refusal)) }
}

/// `RL.APPLY`: what a primary did is done here.
pub fn apply(call: &Call<'_>) -> Result<(), Failure> {
    only_if_obeyed(call, "RL.APPLY is internal: only a primary's link and the loader may use it")?;
    scratch::with(call, |Scratch { rules, .. }| {
        let name = call.key_name()?;
        let effect =
            parse::apply(call.after_key().bytes(), rules).map_err(|error| match error {
                newer @ ParseError::NewerEffect { .. } => newer::refuse(call, newer.to_string()),
                error => error.into(),
            })?;

        let mut key = call.open_write(name, &LIMITER)?;
        datatype::update(&mut key, |limiter| perform(&effect, rules, limiter))?;
        if key.value().is_some_and(|limiter| limiter.is_empty()) {
            key.delete();
        }
        expiry::set(&mut key, effect.expiry);
        call.replicate_verbatim();
        call.signal_modified(name);
        call.reply_ok();
        drop(key);
        if let Some(event) = event(&effect.action) {
            call.notify(Event::Own(event), name);
        }
        Ok(())
    })
}

fn perform(effect: &parse::Effect<'_>, rules: &[Rule], limiter: &mut Limiter) {
    match effect.action {
        Action::Check { change, cost, meta } => {
            limiter.record(&Check { rules, cost, now_us: effect.at_us, meta }, change);
        }
        Action::Refund { units } => {
            limiter.refund(units, effect.at_us, rules);
        }
        Action::Reset => {
            limiter.reset(effect.at_us);
        }
        Action::Overrule(Overruled { kind, until_us, ban_us, reason, .. }) => {
            let reason = reason.into();
            limiter.set_override(Some(Override { kind, until_us, ban_us, reason }));
        }
        Action::Lift(_) => limiter.set_override(None),
    }
}

/// The keyspace event of what was done, the same on a replica as on its primary.
const fn event(action: &Action<'_>) -> Option<&'static CStr> {
    match action {
        Action::Overrule(Overruled { by_rule: true, .. }) => Some(c"rl.ban"),
        Action::Overrule(Overruled { kind, .. }) => Some(set_event(*kind)),
        Action::Lift(kind) => Some(lift_event(*kind)),
        Action::Check { .. } | Action::Refund { .. } | Action::Reset => None,
    }
}

pub const fn set_event(kind: OverrideKind) -> &'static CStr {
    match kind {
        OverrideKind::Block => c"rl.block",
        OverrideKind::Exempt => c"rl.exempt",
    }
}

pub const fn lift_event(kind: OverrideKind) -> &'static CStr {
    match kind {
        OverrideKind::Block => c"rl.unblock",
        OverrideKind::Exempt => c"rl.unexempt",
    }
}

/// `RL.LOAD`: the key holds this from now on; its expiry stays.
pub fn load(call: &Call<'_>) -> Result<(), Failure> {
    only_if_obeyed(call, "RL.LOAD is internal: only a primary's link and the loader may use it")?;
    let name = call.key_name()?;
    let payload = call.args().get(2).ok_or(Failure::WrongArity)?;
    if call.args().len() != 3 {
        return Err(Failure::WrongArity);
    }
    let loaded =
        limit::decode(payload.bytes()).map_err(|error| newer::refuse_value(call, &error))?;

    let mut key = call.open_write(name, &LIMITER)?;
    datatype::update(&mut key, |limiter| *limiter = loaded)?;
    call.replicate_verbatim();
    call.signal_modified(name);
    call.reply_ok();
    Ok(())
}
