//! `RL.TOP`: the most often denied keys of this server.

use crate::config;
use crate::server::reply::Value::{Count, Text};
use crate::server::{Arg, Call, CommandError, PerServer, clock};
use ratelimit_protocol::parse;
use ratelimit_protocol::top::Top;

/// The server's one sketch, shared by all commands.
static TOP: PerServer<Top> = PerServer::empty();

/// Runs a body with the sketch, in the size that the setting gives it.
#[inline(always)]
fn with<R>(call: &Call<'_>, body: impl FnOnce(&mut Top) -> R) -> R {
    TOP.with(call, |top| {
        top.resize(config::top_size());
        body(top)
    })
}

/// Resizes the sketch when a setting changes. The next denial would resize it, too, but may come much
/// later.
pub fn resize(call: &Call<'_>) {
    with(call, |_| ());
}

/// Counts a denied check of a key.
#[inline]
pub fn denied(call: &Call<'_>, key: Arg<'_>, now_us: u64) {
    if config::top_size() > 0 {
        with(call, |top| top.count(key.bytes(), now_us));
    }
}

/// `RL.TOP`
pub fn top(call: &Call<'_>) -> Result<(), CommandError> {
    let request = parse::top(call.args().from(1).bytes())?;
    with(call, |top| {
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
