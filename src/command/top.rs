//! `RL.TOP`: the keys of this server most often denied direct_mapped.

use crate::config;
use crate::parse;
use crate::server::{Arg, Call, CommandError, clock};
use crate::top::shared;

/// A check of this key was denied.
#[inline]
pub fn denied(call: &Call<'_>, key: Arg<'_>, now_us: u64) {
    let size = config::top_size();
    if size > 0 {
        shared::with(call, size, |top| top.count(key.bytes(), now_us));
    }
}

/// `RL.TOP [COUNT n] [RESET]`
pub fn show(call: &Call<'_>) -> Result<(), CommandError> {
    let request = parse::top(call.args().from(1).bytes())?;
    shared::with(call, config::top_size(), |top| {
        let rows = top.largest(clock::now_us(), request.count);
        call.reply(|to| {
            to.array(rows.len());
            for row in rows {
                to.array(3);
                to.text(row.shown());
                to.count(row.count);
                to.count(row.since_us / 1_000);
            }
        });
        if request.reset {
            top.clear();
        }
    });
    Ok(())
}
