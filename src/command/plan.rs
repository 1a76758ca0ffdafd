//! `RL.PLAN` and `RL.UNPLAN`: bind a policy to a key, for the checks that ask for the key's plan.

use super::audit;
use super::effect_args::EffectArgs;
use super::opened::Opened;
use super::standing::lift;
use crate::server::{Call, CommandError};
use ratelimit_core::key::{Limiter, Plan};
use ratelimit_protocol::effect::Action;
use ratelimit_protocol::parse::{self, PlanRequest};
use ratelimit_protocol::waiting::Cause;

/// `RL.PLAN`
pub fn plan(call: &Call<'_>) -> Result<(), CommandError> {
    let PlanRequest { name, ends } = parse::plan(call.after_key().bytes())?;
    let mut opened = Opened::first(call, None)?;
    let until_us = ends.at(opened.at_us)?;
    opened.change(|limiter| limiter.set_plan(Some(Plan { name, until_us })))?;
    let action = Action::Plan { until_us, name: name.as_bytes() };
    opened.changed(action, Cause::Changed, EffectArgs::default);
    audit::key_changed(call);
    call.reply_ok();
    opened.close(action.event());
    Ok(())
}

/// `RL.UNPLAN`
pub fn unplan(call: &Call<'_>) -> Result<(), CommandError> {
    let has_plan = |limiter: &Limiter, now_us| limiter.plan_at(now_us).is_some();
    if lift(call, Action::Unplan, has_plan, |limiter| limiter.set_plan(None))? {
        audit::key_changed(call);
    }
    Ok(())
}
