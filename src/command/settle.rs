//! `RL.SETTLE`: ends a hold, and corrects its charges.

use super::changed::Changed;
use crate::datatype::LIMITER;
use crate::server::{Call, CommandError, JoinedArgs, clock};
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
        let mut written = JoinedArgs::default();
        let changed = Changed { call, name, at_us, clock_us };
        changed.finish(&mut key, || {
            written.extend(args.from(1).first(request.before_at));
            // Skips the id, `AT` and the time.
            written.extend(args.from(request.before_at.saturating_add(3)));
            (Action::Settle { id, settled }, written.args())
        });
        metrics::HOLDS_SETTLED.add(1);
    }
    call.reply_integer(ended.into());
    Ok(())
}
