//! `RL.PAUSE` and `RL.RESUME`: deny every check of a key until its upstream wants requests again.

use super::effect_args::EffectArgs;
use super::opened::Opened;
use super::standing::lift;
use crate::server::{Call, CommandError};
use crate::{config, metrics};
use ratelimit_core::key::{Limiter, Pause};
use ratelimit_protocol::effect::Action;
use ratelimit_protocol::parse;
use ratelimit_protocol::waiting::Cause;

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
        opened.changed(action, Cause::Changed, EffectArgs::default);
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
    lift(call, Action::Resume, paused, Limiter::resume).map(drop)
}
