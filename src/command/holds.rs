//! `RL.SETTLE` and `RL.RENEW`: end a hold, or move its end.

use super::opened::{EffectArgs, Opened};
use crate::config::{self, Enforcement};
use crate::metrics;
use crate::server::{Arg, Call, CommandError};
use ratelimit_engine::key::{Access, hold_end_us};
use ratelimit_protocol::effect::Action;
use ratelimit_protocol::parse;
use ratelimit_protocol::waiting::Cause;

/// `RL.SETTLE`
pub fn settle(call: &Call<'_>) -> Result<(), CommandError> {
    let args = call.after_key();
    let request = parse::settle(args.bytes(), &config::limits())?;
    let (id, settled) = (request.id, request.settled);
    let mut opened = Opened::first(call, request.at_us)?;
    let settlement = settled.map(|costs| costs.with(&request.named));
    let states = opened.states(|limiter| limiter.states_settled(id, settlement));
    let ended =
        opened.key.value_mut().is_some_and(|limiter| limiter.settle(id, settlement, opened.at_us));
    if ended {
        opened.after_change(Action::Settle { id, settled }, Cause::Returned(&states), || {
            EffectArgs::Joined(parse::without_at(args.from(1).iter(), |arg: Arg<'_>| arg.bytes()))
        });
        metrics::HOLDS_SETTLED.add(1);
    }
    call.reply_integer(ended.into());
    Ok(())
}

/// `RL.RENEW`
pub fn renew(call: &Call<'_>) -> Result<(), CommandError> {
    call.require_args(["RL.RENEW", "key", "id", "EX", "s"].len())?;
    let request = parse::renew(call.after_key().bytes(), &config::limits())?;
    let mut opened = Opened::first(call, request.at_us)?;
    let (id, end_us) = (request.id, hold_end_us(request.hold_us, opened.at_us));
    let states = opened.states(|limiter| limiter.states_renewed(id, end_us));
    let renewed =
        opened.key.value_mut().is_some_and(|limiter| limiter.renew(id, end_us, opened.at_us));
    if renewed {
        let cause = Cause::Returned(&states);
        opened.after_change(Action::Renew { id, end_us }, cause, EffectArgs::default);
        metrics::HOLDS_RENEWED.add(1);
    }
    // Checks of an exempt key take no hold, nor do any checks that are off, so there may be none to
    // renew, and workers may go on.
    let access = opened.key.value().and_then(|limiter| limiter.access_at(opened.at_us));
    let is_exempt = access.is_some_and(|access| access.kind == Access::Exempt);
    call.reply_integer((renewed || is_exempt || config::enforcement() == Enforcement::Off).into());
    Ok(())
}
