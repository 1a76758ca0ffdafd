//! `RL.RENEW`: moves the end of a live hold.

use super::changed::Changed;
use crate::datatype::LIMITER;
use crate::server::{Args, Call, CommandError, clock};
use crate::{config, metrics};
use ratelimit_core::effect::Action;
use ratelimit_core::limit::{Access, Limiter};
use ratelimit_core::parse::{self, hold_end_us};

/// The command, the key, the id and the time.
const LEAST_ARGUMENTS: usize = 5;

/// `RL.RENEW key id EX s|PX ms [AT unix-us]`
pub fn renew(call: &Call<'_>) -> Result<(), CommandError> {
    let name = call.key_name()?;
    if call.args().len() < LEAST_ARGUMENTS {
        return Err(CommandError::WrongArity);
    }
    let request = parse::renew(call.after_key().bytes(), &config::limits())?;
    let clock_us = clock::now_us();
    let at_us = request.at_us.unwrap_or(clock_us);
    let (id, end_us) = (request.id, hold_end_us(request.hold_us, at_us));

    let mut key = call.open_write(name, &LIMITER)?;
    let renewed = key.value().is_some_and(|limiter| limiter.renew(id, end_us, at_us));
    if renewed {
        let changed = Changed { call, name, at_us, clock_us };
        changed.finish(&mut key, || (Action::Renew { id, end_us }, Args::default()));
        metrics::HOLDS_RENEWED.add(1);
    }
    // A worker on an exempt key has no hold, and may go on.
    let exempt = |limiter: &Limiter| {
        limiter.access_at(at_us).is_some_and(|access| access.kind == Access::Exempt)
    };
    let goes_on = renewed || key.value().is_some_and(|limiter| exempt(limiter));
    call.reply_integer(goes_on.into());
    Ok(())
}
