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
use crate::limit::{self, Access, AccessEntry, Change, Check, Expiry, Limiter, Verdict};
use crate::newer;
use crate::parse::{self, Action, ParseError, SetAccess};
use crate::rule::Rule;
use crate::server::{Arg, Args, Call, CommandError, Details, Effect, KeyspaceEvent, WriteKey};

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
        propagate(call, name, now_us, expiry, || (word, details(&done.check, rules())));
    }
    if done.banned {
        propagate_ban(call, key, name, now_us, expiry);
    }
    call.signal_modified(name);
}

/// After a ban that now ends earlier.
pub fn settle_ban(call: &Call<'_>, key: &mut WriteKey<'_, Limiter>, name: Arg<'_>, now_us: u64) {
    let expiry = expiry::settle(key, now_us, now_us);
    propagate_ban(call, key, name, now_us, expiry);
    call.signal_modified(name);
}

fn propagate_ban(
    call: &Call<'_>,
    key: &mut WriteKey<'_, Limiter>,
    name: Arg<'_>,
    now_us: u64,
    expiry: Expiry,
) {
    if let Some(ban) = key.value().and_then(|limiter| limiter.access()) {
        propagate_access(call, name, "ban", ban, now_us, expiry);
    }
}

/// What a check did, if it did anything.
const fn word(change: Change) -> Option<&'static str> {
    match change {
        Change::Nothing => None,
        Change::Admitted => Some("admit"),
        Change::Charged => Some("charge"),
        Change::HistoryOnly(Verdict::Allowed) => Some("pass"),
        Change::HistoryOnly(Verdict::Limited) => Some("deny"),
        Change::HistoryOnly(Verdict::Blocked) => Some("refuse"),
    }
}

fn details<'d>(check: &Check<'d>, rules: Args<'d>) -> Details<'d> {
    let units = u64::from(check.cost);
    match check.meta {
        None => Details::Units { units, rules },
        Some(meta) => Details::HistoryOnly { units, keep: meta.keep, meta: meta.text, rules },
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
    propagate(call, name, at_us, expiry, done);
    call.signal_modified(name);
}

/// Tells of a block, a ban or an exemption.
pub fn propagate_access(
    call: &Call<'_>,
    name: Arg<'_>,
    word: &'static str,
    access: &AccessEntry,
    at_us: u64,
    expiry: Expiry,
) {
    let until_us = access.until_us.map_or(-1, |us| i64::try_from(us).unwrap_or(i64::MAX));
    let details = Details::Access { until_us, ban_us: access.ban_us, reason: &access.reason };
    propagate(call, name, at_us, expiry, || (word, details));
}

#[inline]
fn propagate<'d>(
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
fn only_if_obeyed(call: &Call<'_>, refusal: &'static str) -> Result<(), CommandError> {
    if call.must_be_obeyed() { Ok(()) } else { Err(CommandError::because(refusal)) }
}

/// `RL.APPLY`: what a primary did is done here.
pub fn apply(call: &Call<'_>) -> Result<(), CommandError> {
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
            call.notify(KeyspaceEvent::Own(event), name);
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
        Action::SetAccess(SetAccess { kind, until_us, ban_us, reason, .. }) => {
            let reason = reason.into();
            limiter.set_access(Some(AccessEntry { kind, until_us, ban_us, reason }));
        }
        Action::LiftAccess(_) => limiter.set_access(None),
    }
}

/// The keyspace event of what was done, the same on a replica as on its primary.
const fn event(action: &Action<'_>) -> Option<&'static CStr> {
    match action {
        Action::SetAccess(SetAccess { by_rule: true, .. }) => Some(c"rl.ban"),
        Action::SetAccess(SetAccess { kind, .. }) => Some(set_event(*kind)),
        Action::LiftAccess(kind) => Some(lift_event(*kind)),
        Action::Check { .. } | Action::Refund { .. } | Action::Reset => None,
    }
}

pub const fn set_event(kind: Access) -> &'static CStr {
    match kind {
        Access::Block => c"rl.block",
        Access::Exempt => c"rl.exempt",
    }
}

pub const fn lift_event(kind: Access) -> &'static CStr {
    match kind {
        Access::Block => c"rl.unblock",
        Access::Exempt => c"rl.unexempt",
    }
}

/// `RL.LOAD`: the key holds this from now on; its expiry stays.
pub fn load(call: &Call<'_>) -> Result<(), CommandError> {
    only_if_obeyed(call, "RL.LOAD is internal: only a primary's link and the loader may use it")?;
    let name = call.key_name()?;
    let payload = call.args().get(2).ok_or(CommandError::WrongArity)?;
    if call.args().len() != 3 {
        return Err(CommandError::WrongArity);
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
