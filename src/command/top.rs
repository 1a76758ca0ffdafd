//! `RL.TOP`: the most often denied keys of this server.

use crate::config;
use crate::server::reply::Value::{Count, Text};
use crate::server::{Arg, Call, CommandError, clock};
use crate::top;
use ratelimit_protocol::parse;

/// Counts a denied check of a key.
#[inline]
pub fn denied(call: &Call<'_>, key: Arg<'_>, now_us: u64) {
    let size = config::top_size();
    if size > 0 {
        top::with(call, size, |top| top.count(key.bytes(), now_us));
    }
}

/// `RL.TOP`
pub fn top(call: &Call<'_>) -> Result<(), CommandError> {
    let request = parse::top(call.args().from(1).bytes())?;
    top::with(call, config::top_size(), |top| {
        let rows = top.largest(clock::now_us(), request.count);
        call.reply(|to| {
            to.list(rows, |to, row| {
                to.row(&[Text(&row.shown()), Count(row.count), Count(row.since_us / 1_000)]);
            });
        });
        if request.reset {
            top.clear();
        }
    });
    Ok(())
}
