//! `RL.TOP`: the keys of this server most often denied lately.

use crate::config;
use crate::parse;
use crate::server::{Arg, Call, Failure, PerServer, clock};
use crate::top::Top;

static TOP: PerServer<Top> = PerServer::empty();

/// A check of this key was denied.
#[inline]
pub fn denied(call: &Call<'_>, key: Arg<'_>, now_us: u64) {
    let size = config::top_size();
    if size > 0 {
        TOP.with(call, |top| {
            top.resize(size);
            top.count(key.bytes(), now_us);
        });
    }
}

/// `RL.TOP [COUNT n] [RESET]`
pub fn show(call: &Call<'_>) -> Result<(), Failure> {
    let request = parse::top(call.args().from(1).bytes())?;
    TOP.with(call, |top| {
        top.resize(config::top_size());
        let rows = top.largest(clock::now_us(), request.count);
        call.reply(|to| {
            to.array(rows.len());
            for row in rows {
                to.array(3);
                to.text(row.key);
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
