//! `RL.TOP`: the most often denied keys of this server, and those that shadows would have denied most
//! often.

use crate::config;
use crate::server::reply::Value::{Count, Text};
use crate::server::{Arg, Call, CommandError, PerServer, clock};
use ratelimit_engine::rule::Rule;
use ratelimit_protocol::parse;
use ratelimit_protocol::top::Top;

/// The denied keys.
static DENIED: PerServer<Top> = PerServer::empty();
/// Shadows with the keys that they would have denied: a rule's label, a line feed, a key.
static SHADOWED: PerServer<Top> = PerServer::empty();

/// Runs a body with a sketch, in the size that the setting gives it.
#[inline(always)]
fn with<R>(sketch: &PerServer<Top>, call: &Call<'_>, body: impl FnOnce(&mut Top) -> R) -> R {
    sketch.with(call, |top| {
        top.resize(config::top_size());
        body(top)
    })
}

/// Resizes the sketches when a setting changes. The next denial would resize them, too, but may come
/// much later.
pub fn resize(call: &Call<'_>) {
    [&DENIED, &SHADOWED].into_iter().for_each(|sketch| with(sketch, call, |_| ()));
}

/// Counts a denied check of a key.
#[inline]
pub fn denied(call: &Call<'_>, key: Arg<'_>, now_us: u64) {
    if config::top_size() > 0 {
        with(&DENIED, call, |top| top.count(key.bytes(), now_us));
    }
}

/// Counts a check of a key that a shadow would have denied.
pub fn shadowed(call: &Call<'_>, key: Arg<'_>, rule: &Rule, now_us: u64) {
    if config::top_size() > 0 {
        let name = [rule.label().as_bytes(), b"\n", key.bytes()].concat();
        with(&SHADOWED, call, |top| top.count(&name, now_us));
    }
}

/// `RL.TOP`
pub fn top(call: &Call<'_>) -> Result<(), CommandError> {
    let request = parse::top(call.args().from(1).bytes())?;
    let sketch = if request.shadow { &SHADOWED } else { &DENIED };
    with(sketch, call, |top| {
        let rows = top.largest(clock::now_us(), request.count);
        call.reply(|to| {
            to.list(rows, |to, row| {
                let (shown, numbers) = (row.shown(), [row.count, row.since_us / 1_000]);
                let [count, since_ms] = numbers.map(Count);
                let mut parts = shown.splitn(2, |&byte| byte == b'\n');
                match (request.shadow, parts.next(), parts.next()) {
                    (true, Some(rule), Some(key)) => {
                        to.row(&[Text(key), count, since_ms, Text(rule)]);
                    }
                    _ => to.row(&[Text(&shown), count, since_ms]),
                }
            });
        });
        if request.reset {
            top.clear();
        }
    });
    Ok(())
}
