//! `RL.SETTLE`: ends a hold, and corrects its charges.

use super::changed::Changed;
use crate::datatype::LIMITER;
use crate::server::{Args, Call, CommandError, clock};
use crate::{config, metrics};
use ratelimit_core::effect::Action;
use ratelimit_core::parse;

/// `RL.SETTLE key id [REFUND | COST n|name=n ...] [AT unix-us]`
pub fn settle(call: &Call<'_>) -> Result<(), CommandError> {
    let name = call.key_name()?;
    let args = call.after_key();
    let request = parse::settle(args.bytes(), &config::limits())?;
    let clock_us = clock::now_us();
    let at_us = request.at_us.unwrap_or(clock_us);
    let (id, settled) = (request.id, request.settled);

    let mut key = call.open_write(name, &LIMITER)?;
    let settlement = settled.with(&request.named);
    let ended = key.value().is_some_and(|limiter| limiter.settle(id, settlement, at_us));
    if ended {
        let mut written = Vec::new();
        let changed = Changed { call, name, at_us, clock_us };
        changed.finish(&mut key, || {
            for range in request.written {
                written.extend(args.from(range.start).first(range.len()).iter());
            }
            (Action::Settle { id, settled }, Args::joined(&written))
        });
        metrics::HOLDS_SETTLED.add(1);
    }
    call.reply_integer(ended.into());
    Ok(())
}
