//! `RL.BLOCK`, `RL.EXEMPT` and their ends: what stands above every rule.

use super::{effect, expiry};
use crate::config;
use crate::datatype::{self, LIMITER};
use crate::limit::{Access, AccessEntry, Limiter};
use crate::parse::{self, Ends};
use crate::rule::MAX_TIME_US;
use crate::server::{Call, CommandError, Details, KeyspaceEvent, clock};

/// `RL.BLOCK key [EX s | PX ms | EXAT unix-s | PXAT unix-ms | FOR period] [REASON text]`
pub fn block(call: &Call<'_>) -> Result<(), CommandError> {
    set(call, Access::Block)
}

/// `RL.EXEMPT key [EX s | PX ms | EXAT unix-s | PXAT unix-ms | FOR period] [REASON text]`
pub fn exempt(call: &Call<'_>) -> Result<(), CommandError> {
    set(call, Access::Exempt)
}

/// `RL.UNBLOCK key`
pub fn unblock(call: &Call<'_>) -> Result<(), CommandError> {
    lift(call, Access::Block)
}

/// `RL.UNEXEMPT key`
pub fn unexempt(call: &Call<'_>) -> Result<(), CommandError> {
    lift(call, Access::Exempt)
}

/// Replaces whatever block or exemption there is, and keeps the counts.
fn set(call: &Call<'_>, kind: Access) -> Result<(), CommandError> {
    let name = call.key_name()?;
    let request = parse::access(call.after_key().bytes(), &config::limits())?;
    let now_us = clock::now_us();
    let until_us = match request.ends {
        Ends::Never => None,
        Ends::In(us) => Some(now_us.saturating_add(us).min(MAX_TIME_US)),
        Ends::At(us) if us > now_us => Some(us),
        Ends::At(us) => {
            let (end_ms, now_ms) = (us / 1_000, now_us / 1_000);
            let why = format!("the end is {end_ms} ms, expected a Unix time after {now_ms} ms");
            return Err(CommandError::Because(why.into()));
        }
    };
    let access = AccessEntry { kind, until_us, ban_us: None, reason: request.reason.into() };

    let mut key = call.open_write(name, &LIMITER)?;
    datatype::update(&mut key, |limiter| limiter.set_access(Some(access.clone())))?;
    let expiry = expiry::settle(&mut key, now_us, now_us);
    let word = match kind {
        Access::Block => "block",
        Access::Exempt => "exempt",
    };
    effect::propagate_access(call, name, word, &access, now_us, expiry);
    call.signal_modified(name);
    call.reply_ok();
    drop(key);
    call.notify(KeyspaceEvent::Own(effect::set_event(kind)), name);
    Ok(())
}

/// Ends a block or an exemption that is in force, and nothing else.
fn lift(call: &Call<'_>, kind: Access) -> Result<(), CommandError> {
    let name = call.key_name()?;
    parse::no_arguments(call.after_key().bytes())?;
    let now_us = clock::now_us();

    let mut key = call.open_write(name, &LIMITER)?;
    let in_force = |limiter: &&mut Limiter| {
        limiter.access_at(now_us).is_some_and(|access| access.kind == kind)
    };
    let Some(limiter) = key.value().filter(in_force) else {
        call.reply_integer(0);
        return Ok(());
    };
    limiter.set_access(None);
    let word = match kind {
        Access::Block => "unblock",
        Access::Exempt => "unexempt",
    };
    effect::settle(call, &mut key, name, now_us, now_us, || (word, Details::Nothing));
    call.reply_integer(1);
    drop(key);
    call.notify(KeyspaceEvent::Own(effect::lift_event(kind)), name);
    Ok(())
}
