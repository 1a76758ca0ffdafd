//! `RL.BLOCK`, `RL.EXEMPT`, `RL.UNBLOCK` and `RL.UNEXEMPT`: blocks and exemptions,
//! which override all rules of a key.

use super::audit;
use super::effect_args::EffectArgs;
use super::opened::Opened;
use crate::config;
use crate::datatype::LIMITER;
use crate::server::{Call, CommandError, clock};
use ratelimit_core::key::{Author, Limiter, Standing, StandingEntry};
use ratelimit_protocol::effect::Action;
use ratelimit_protocol::parse;
use ratelimit_protocol::waiting::Cause;

/// `RL.BLOCK`
pub fn block(call: &Call<'_>) -> Result<(), CommandError> {
    set(call, Standing::Block)
}

/// `RL.EXEMPT`
pub fn exempt(call: &Call<'_>) -> Result<(), CommandError> {
    set(call, Standing::Exempt)
}

/// `RL.UNBLOCK`
pub fn unblock(call: &Call<'_>) -> Result<(), CommandError> {
    if lift(call, Action::Unblock, Limiter::can_unblock, Limiter::unblock)? {
        audit::key_changed(call);
    }
    Ok(())
}

/// `RL.UNEXEMPT`
pub fn unexempt(call: &Call<'_>) -> Result<(), CommandError> {
    let exempts = |standing: &StandingEntry| standing.kind == Standing::Exempt;
    let is_exempt = |limiter: &Limiter, now_us| limiter.standing_at(now_us).is_some_and(exempts);
    if lift(call, Action::Unexempt, is_exempt, |limiter| limiter.set_standing(None))? {
        audit::key_changed(call);
    }
    Ok(())
}

/// Sets a block or an exemption, which replaces any earlier one. Consumption stays.
fn set(call: &Call<'_>, kind: Standing) -> Result<(), CommandError> {
    let request = parse::standing(call.after_key().bytes(), &config::limits())?;
    let now_us = clock::now_us();
    let until_us = request.ends.at(now_us)?;
    let user = call.user().unwrap_or_default();
    let mut standing = StandingEntry::new(kind, until_us, request.reason);
    standing.author = Some(Author::new(now_us, &user));
    let key = call.open_write(call.key_name()?, &LIMITER)?;
    let mut opened = Opened { key, at_us: now_us, clock_us: now_us };
    opened.change(|limiter| limiter.set_standing(Some(standing.clone())))?;
    let action = Action::set(&standing, None);
    opened.changed(action, Cause::Changed, EffectArgs::default);
    audit::key_changed(call);
    call.reply_ok();
    opened.close(action.event());
    Ok(())
}

/// Calls `lift` and replies 1 if `in_effect` is true of the key now. Otherwise replies 0. Returns whether
/// it called `lift`.
pub fn lift(
    call: &Call<'_>,
    action: Action<'_>,
    in_effect: impl Fn(&Limiter, u64) -> bool,
    lift: impl FnOnce(&mut Limiter),
) -> Result<bool, CommandError> {
    parse::no_arguments(call.after_key().bytes())?;
    let mut opened = Opened::first(call, None)?;
    let Some(limiter) = opened.key.value_mut().filter(|limiter| in_effect(limiter, opened.at_us))
    else {
        call.reply_integer(0);
        return Ok(false);
    };
    lift(limiter);
    opened.changed(action, Cause::Changed, EffectArgs::default);
    call.reply_integer(1);
    opened.close(action.event());
    Ok(true)
}

/// The name of a block or an exemption in replies.
pub const fn kind_name(kind: Standing) -> &'static str {
    match kind {
        Standing::Block => "blocked",
        Standing::Exempt => "exempt",
    }
}
