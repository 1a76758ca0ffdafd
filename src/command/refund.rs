//! `RL.REFUND`: gives units back. `RL.RESET`: forgets what a key consumed.

use super::audit;
use super::opened::{EffectArgs, Opened};
use super::request::{self, Scratch};
use crate::server::{Call, CommandError};
use crate::{config, metrics};
use ratelimit_engine::rule::Rule;
use ratelimit_protocol::effect::Action;
use ratelimit_protocol::parse;
use ratelimit_protocol::waiting::Cause;

/// `RL.REFUND`
pub fn refund(call: &Call<'_>) -> Result<(), CommandError> {
    request::with(call, |Scratch { rules, mut resolver, .. }| {
        let request = parse::refund(
            call.after_key().bytes(),
            &config::limits(),
            &mut request::plans_of_call(call, &mut resolver),
            rules,
        )?;
        let mut opened = Opened::first(call, request.at_us)?;
        opened.lapse();
        let refunded = give_back(&mut opened, request.units, rules, || {
            EffectArgs::of_rules(call.args().last(request.rule_args), &resolver, 0)
        });
        call.reply_integer(i64::try_from(refunded).unwrap_or(i64::MAX));
        Ok(())
    })
}

/// Gives units back to the states of the rules, or to all states if there are no rules. Returns how
/// many units came back.
pub fn give_back<'e>(
    opened: &mut Opened<'_>,
    units: u32,
    rules: &[Rule],
    args: impl FnOnce() -> EffectArgs<'e>,
) -> u64 {
    let states = opened.states(|limiter| limiter.states_refunded(rules));
    let refunded =
        opened.key.value_mut().map_or(0, |limiter| limiter.refund(units, opened.at_us, rules));
    if refunded > 0 {
        opened.after_change(Action::Refund { units }, Cause::Returned(&states), args);
        metrics::refunded(refunded);
    }
    refunded
}

/// `RL.RESET`
pub fn reset(call: &Call<'_>) -> Result<(), CommandError> {
    parse::no_arguments(call.after_key().bytes())?;
    let mut opened = Opened::first(call, None)?;
    let reset = opened.key.value_mut().is_some_and(|limiter| limiter.reset(opened.at_us));
    if reset {
        opened.after_change(Action::Reset, Cause::Changed, EffectArgs::default);
        audit::key_changed(call);
    }
    call.reply_integer(reset.into());
    Ok(())
}
