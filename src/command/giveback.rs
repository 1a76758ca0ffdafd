//! `RL.REFUND` and `RL.RESET`: taking consumption back.

use super::effect;
use super::rule_args::RuleArgs;
use super::scratch::{self, Scratch};
use crate::datatype::LIMITER;
use crate::server::{Call, CommandError, Details, clock};
use crate::{config, metrics, parse};

/// `RL.REFUND key units [AT unix-us] [rule [rule ...]]`
pub fn refund(call: &Call<'_>) -> Result<(), CommandError> {
    scratch::with(call, |Scratch { rules, resolver, .. }| {
        let name = call.key_name()?;
        let request = parse::refund(call.after_key().bytes(), &config::limits(), resolver, rules)?;
        let clock_us = clock::now_us();
        let at_us = request.at_us.unwrap_or(clock_us);

        let mut key = call.open_write(name, &LIMITER)?;
        let given = key.value().map_or(0, |limiter| limiter.refund(request.units, at_us, rules));
        if given > 0 {
            let words = RuleArgs::of(call.args().last(request.rule_args), &resolver.named);
            let refund = Details::Units { units: request.units.into(), rules: words.args() };
            effect::settle(call, &mut key, name, at_us, clock_us, || ("refund", refund));
            metrics::refunded(given);
        }
        call.reply_integer(i64::try_from(given).unwrap_or(i64::MAX));
        Ok(())
    })
}

/// `RL.RESET key`
pub fn reset(call: &Call<'_>) -> Result<(), CommandError> {
    let name = call.key_name()?;
    parse::no_arguments(call.after_key().bytes())?;

    let now_us = clock::now_us();
    let mut key = call.open_write(name, &LIMITER)?;
    let forgot = key.value().is_some_and(|limiter| limiter.reset(now_us));
    if forgot {
        effect::settle(call, &mut key, name, now_us, now_us, || ("reset", Details::Nothing));
    }
    call.reply_integer(i64::from(forgot));
    Ok(())
}
