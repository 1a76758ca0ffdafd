//! `RL.REFUND` and `RL.RESET`: taking consumption back.

use super::scratch::{self, Scratch};
use super::words::Words;
use super::{effect, expiry};
use crate::datatype::LIMITER;
use crate::server::{Call, Details, Failure, clock};
use crate::{config, metrics, parse};

/// `RL.REFUND key units [AT unix-us] [rule [rule ...]]`
pub fn refund(call: &Call<'_>) -> Result<(), Failure> {
    scratch::with(call, |Scratch { rules, lexicon, .. }| {
        let name = call.key_name()?;
        let request = parse::refund(call.after_key().bytes(), &config::limits(), lexicon, rules)?;
        let clock_us = clock::now_us();
        let at_us = request.at_us.unwrap_or(clock_us);

        let mut key = call.open_write(name, &LIMITER)?;
        let given = key.value().map_or(0, |limiter| limiter.refund(request.units, at_us, rules));
        if given > 0 {
            let expiry = expiry::settle(&mut key, at_us, clock_us);
            let words = Words::of(call.args().last(request.rule_args), &lexicon.named);
            let details = || Details::Units { units: request.units.into(), rules: words.args() };
            effect::tell(call, name, "refund", at_us, expiry, details);
            call.signal_modified(name);
            metrics::refunded(given);
        }
        call.reply_integer(i64::try_from(given).unwrap_or(i64::MAX));
        Ok(())
    })
}

/// `RL.RESET key`
pub fn reset(call: &Call<'_>) -> Result<(), Failure> {
    let name = call.key_name()?;
    parse::nothing(call.after_key().bytes())?;

    let mut key = call.open_write(name, &LIMITER)?;
    let forgot = key.value().is_some_and(|limiter| limiter.reset());
    if forgot {
        let now_us = clock::now_us();
        let expiry = expiry::settle(&mut key, now_us, now_us);
        effect::tell(call, name, "reset", now_us, expiry, || Details::Nothing);
        call.signal_modified(name);
    }
    call.reply_integer(i64::from(forgot));
    Ok(())
}
