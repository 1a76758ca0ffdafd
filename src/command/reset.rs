//! `RL.RESET`: forgets what a key consumed.

use super::changed::Changed;
use crate::datatype::LIMITER;
use crate::server::{Args, Call, CommandError, clock};
use ratelimit_core::effect::Action;
use ratelimit_core::parse;

/// `RL.RESET key`
pub fn reset(call: &Call<'_>) -> Result<(), CommandError> {
    let name = call.key_name()?;
    parse::no_arguments(call.after_key().bytes())?;
    let now_us = clock::now_us();

    let mut key = call.open_write(name, &LIMITER)?;
    let reset = key.value().is_some_and(|limiter| limiter.reset(now_us));
    if reset {
        let changed = Changed { call, name, at_us: now_us, clock_us: now_us };
        changed.finish(&mut key, || (Action::Reset, Args::default()));
    }
    call.reply_integer(i64::from(reset));
    Ok(())
}
