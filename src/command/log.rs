//! `RL.LOG`: the last checks of a key.

use crate::datatype::LIMITER;
use crate::server::reply::Value::{Count, Integer, Null, Text};
use crate::server::{Call, CommandError, clock};
use crate::unreadable;
use ratelimit_core::key::{Entry, Limiter};
use ratelimit_protocol::parse;

/// `RL.LOG`
pub fn log(call: &Call<'_>) -> Result<(), CommandError> {
    unreadable::require_nothing_skipped(call)?;
    let name = call.key_name()?;
    let count = parse::log(call.after_key().bytes())?;
    let key = call.open_shown(name, &LIMITER)?;
    let limiter = key.as_ref().and_then(|key| key.value());
    let limiter = limiter.map(|limiter| limiter.as_of(clock::now_us()));
    let last_checks = limiter.as_deref().into_iter().flat_map(Limiter::last_checks);
    let entries: Vec<Entry> = last_checks.take(count).collect();
    call.reply(|to| {
        to.list(&entries, |to, entry| {
            to.row(&[
                Count(entry.time_us / 1_000),
                Count(entry.cost.into()),
                Integer(entry.verdict.code()),
                entry.meta.as_deref().map_or(Null, Text),
            ]);
        });
    });
    Ok(())
}
