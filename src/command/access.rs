//! `RL.BLOCK`, `RL.EXEMPT`, `RL.PAUSE`, `RL.PLAN` and the commands that end them: what overrides or
//! chooses the rules of a key.

use super::audit;
use super::opened::{EffectArgs, Opened};
use crate::datatype::LIMITER;
use crate::server::{Call, CommandError, clock};
use crate::{config, metrics};
use ratelimit_engine::key::{Access, AccessEntry, Author, Limiter, Pause, Plan};
use ratelimit_protocol::effect::Action;
use ratelimit_protocol::parse::{self, PlanRequest};
use ratelimit_protocol::waiting::Cause;

/// `RL.BLOCK`
pub fn block(call: &Call<'_>) -> Result<(), CommandError> {
    set(call, Access::Block)
}

/// `RL.EXEMPT`
pub fn exempt(call: &Call<'_>) -> Result<(), CommandError> {
    set(call, Access::Exempt)
}

/// `RL.UNBLOCK`
pub fn unblock(call: &Call<'_>) -> Result<(), CommandError> {
    lift(call, Action::Unblock, Limiter::can_unblock, Limiter::unblock)
}

/// `RL.UNEXEMPT`
pub fn unexempt(call: &Call<'_>) -> Result<(), CommandError> {
    let exempts = |access: &AccessEntry| access.kind == Access::Exempt;
    let is_exempt = |limiter: &Limiter, now_us| limiter.access_at(now_us).is_some_and(exempts);
    lift(call, Action::Unexempt, is_exempt, |limiter| limiter.set_access(None))
}

/// Sets a block or an exemption, which replaces any earlier one. Consumption stays.
fn set(call: &Call<'_>, kind: Access) -> Result<(), CommandError> {
    let request = parse::access(call.after_key().bytes(), &config::limits())?;
    let now_us = clock::now_us();
    let until_us = request.ends.at(now_us)?;
    let user = call.user().unwrap_or_default();
    let mut access = AccessEntry::new(kind, until_us, request.reason);
    access.author = Some(Author::new(now_us, &user));
    let key = call.open_write(call.key_name()?, &LIMITER)?;
    let mut opened = Opened { key, at_us: now_us, clock_us: now_us };
    opened.change(|limiter| limiter.set_access(Some(access.clone())))?;
    let action = Action::set(&access, None);
    opened.after_change(action, Cause::Changed, EffectArgs::default);
    audit::key_changed(call);
    call.reply_ok();
    opened.close(action.event());
    Ok(())
}

/// Calls `lift` and replies 1 if `in_effect` is true of the key now. Otherwise replies 0. Workers end pauses,
/// so only other changes are an administrator's.
fn lift(
    call: &Call<'_>,
    action: Action<'_>,
    in_effect: impl Fn(&Limiter, u64) -> bool,
    lift: impl FnOnce(&mut Limiter),
) -> Result<(), CommandError> {
    parse::no_arguments(call.after_key().bytes())?;
    let mut opened = Opened::first(call, None)?;
    let Some(limiter) = opened.key.value_mut().filter(|limiter| in_effect(limiter, opened.at_us))
    else {
        call.reply_integer(0);
        return Ok(());
    };
    lift(limiter);
    opened.after_change(action, Cause::Changed, EffectArgs::default);
    if action != Action::Resume {
        audit::key_changed(call);
    }
    call.reply_integer(1);
    opened.close(action.event());
    Ok(())
}

/// The name of a block or an exemption in replies.
pub const fn kind_name(kind: Access) -> &'static str {
    match kind {
        Access::Block => "blocked",
        Access::Exempt => "exempt",
    }
}

/// `RL.PLAN`
pub fn plan(call: &Call<'_>) -> Result<(), CommandError> {
    let PlanRequest { name, ends } = parse::plan(call.after_key().bytes())?;
    let mut opened = Opened::first(call, None)?;
    let until_us = ends.at(opened.at_us)?;
    opened.change(|limiter| limiter.set_plan(Some(Plan { name, until_us })))?;
    let action = Action::Plan { until_us, name: name.as_bytes() };
    opened.after_change(action, Cause::Changed, EffectArgs::default);
    audit::key_changed(call);
    call.reply_ok();
    opened.close(action.event());
    Ok(())
}

/// `RL.UNPLAN`
pub fn unplan(call: &Call<'_>) -> Result<(), CommandError> {
    let has_plan = |limiter: &Limiter, now_us| limiter.plan_at(now_us).is_some();
    lift(call, Action::Unplan, has_plan, |limiter| limiter.set_plan(None))
}

/// `RL.PAUSE`
pub fn pause(call: &Call<'_>) -> Result<(), CommandError> {
    call.require_args(["RL.PAUSE", "key", "EX", "s"].len())?;
    let request = parse::pause(call.after_key().bytes(), &config::limits())?;
    let mut opened = Opened::first(call, None)?;
    let (now_us, reason) = (opened.at_us, request.reason);
    let until_us = request.until_us(now_us)?;
    let (mut grew, mut left_ms) = (false, 0);
    opened.change(|limiter| {
        grew = limiter.pause_until(until_us, now_us, reason);
        left_ms = limiter.pause().map_or(0, |pause: &Pause| pause.left_ms(now_us));
    })?;
    let action = Action::Pause { until_us, reason };
    if grew {
        metrics::PAUSES.add(1);
    }
    // The reply says how long the pause lasts, so the key must live that long.
    if grew || opened.expires_wrongly() {
        opened.after_change(action, Cause::Changed, EffectArgs::default);
    }
    call.reply_integer(left_ms);
    opened.close(action.event().filter(|_| grew));
    Ok(())
}

/// `RL.RESUME`
pub fn resume(call: &Call<'_>) -> Result<(), CommandError> {
    // A pause can be out of effect because the clock stepped back. It would take effect again when the
    // clock catches up, so this ends it, too.
    let paused =
        |limiter: &Limiter, now_us| limiter.pause().is_some_and(|pause| pause.until_us > now_us);
    lift(call, Action::Resume, paused, Limiter::resume)
}
