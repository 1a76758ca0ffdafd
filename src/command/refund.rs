//! `RL.REFUND`: gives units back.

use super::effect_args::EffectArgs;
use super::opened::Opened;
use super::plans;
use super::scratch::{self, Scratch};
use crate::server::{Call, CommandError};
use crate::{config, metrics};
use ratelimit_core::rule::Rule;
use ratelimit_protocol::effect::Action;
use ratelimit_protocol::parse;
use ratelimit_protocol::waiting::Cause;

/// `RL.REFUND`
pub fn refund(call: &Call<'_>) -> Result<(), CommandError> {
    scratch::with(call, |Scratch { rules, mut resolver, .. }| {
        let request = parse::refund(
            call.after_key().bytes(),
            &config::limits(),
            &mut plans::of_call(call, &mut resolver),
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
        opened.changed(Action::Refund { units }, Cause::Returned(&states), args);
        metrics::refunded(refunded);
    }
    refunded
}
