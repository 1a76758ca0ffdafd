//! `RL.REFUND` and `RL.RESET`: taking consumption back.

use super::check::{replicate_effect, replicate_expiry, rules_as_written};
use super::expiry;
use super::scratch::{self, Scratch};
use crate::config;
use crate::datatype::LIMITER;
use crate::parse;
use crate::server::{Call, Failure, clock};

/// `RL.REFUND key units [AT unix-us] [rule [rule ...]]`
pub fn refund(call: &Call<'_>) -> Result<(), Failure> {
    scratch::with(|Scratch { rules, .. }| {
        let name = call.key_name()?;
        let request = parse::refund(call.after_key().bytes(), &config::limits(), rules)?;
        let clock_us = clock::now_us();
        let at_us = request.at_us.unwrap_or(clock_us);

        let mut key = call.open_write(name, &LIMITER)?;
        let given = key.value().map_or(0, |limiter| limiter.refund(request.units, at_us, rules));
        if given > 0 {
            let expiry = expiry::settle(&mut key, at_us, clock_us);
            let units = request.units.into();
            let rules = rules_as_written(call, rules);
            replicate_effect(call, name, at_us, c"refund", units, expiry, rules);
            call.signal_modified(name);
        }
        call.reply_integer(i64::try_from(given).unwrap_or(i64::MAX));
        Ok(())
    })
}

/// `RL.RESET key`
///
/// Replicated as it came. An expiry that moved follows as a command of its
/// own, for a replica's clock must not decide it.
pub fn reset(call: &Call<'_>) -> Result<(), Failure> {
    let name = call.key_name()?;
    if !call.after_key().is_empty() {
        return Err(Failure::WrongArity);
    }
    let mut key = call.open_write(name, &LIMITER)?;
    let Some(limiter) = key.value() else {
        call.reply_integer(0);
        return Ok(());
    };
    let forgot = limiter.reset();
    if limiter.is_empty() {
        key.delete();
        call.replicate_verbatim();
        call.signal_modified(name);
    } else if forgot {
        call.replicate_verbatim();
        if !call.must_be_obeyed() {
            let now_us = clock::now_us();
            replicate_expiry(call, name, expiry::settle(&mut key, now_us, now_us));
        }
        call.signal_modified(name);
    }
    call.reply_integer(i64::from(forgot));
    Ok(())
}
