//! `RL.REFUND`: gives units back.

use super::changed::Changed;
use super::rule_args::RuleArgs;
use super::scratch::{self, Scratch};
use crate::datatype::LIMITER;
use crate::server::{Call, CommandError, clock};
use crate::{config, metrics};
use ratelimit_core::effect::Action;
use ratelimit_core::parse;

/// `RL.REFUND key units [AT unix-us] [rule [rule ...]]`
pub fn refund(call: &Call<'_>) -> Result<(), CommandError> {
    scratch::with(call, |Scratch { rules, resolver, .. }| {
        let name = call.key_name()?;
        let request = parse::refund(call.after_key().bytes(), &config::limits(), resolver, rules)?;
        let clock_us = clock::now_us();
        let at_us = request.at_us.unwrap_or(clock_us);
        let units = request.units;

        let mut key = call.open_write(name, &LIMITER)?;
        let changed = Changed { call, name, at_us, clock_us };
        changed.lapse(&mut key);
        let refunded = key.value().map_or(0, |limiter| limiter.refund(units, at_us, rules));
        if refunded > 0 {
            let rule_args = RuleArgs::of(call.args().last(request.rule_args), &resolver.named);
            changed.finish(&mut key, || (Action::Refund { units }, rule_args.args()));
            metrics::refunded(refunded);
        }
        call.reply_integer(i64::try_from(refunded).unwrap_or(i64::MAX));
        Ok(())
    })
}
