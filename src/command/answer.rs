//! The replies to a check: five integers, one more if its cost is a range, one more with `ANY`; or a
//! map with `FULL`.

use crate::server::reply::Value::{self, Integer, Nested, Null, Text};
use crate::server::{Arg, Call, Writer};
use ratelimit_engine::check::{self, Decision, Field, FullReport};
use ratelimit_engine::key::{Check, Limiter};
use std::iter;

/// The reply to a check of one key.
#[inline(always)]
pub fn of_key(
    call: &Call<'_>,
    in_full: bool,
    summary: Decision,
    check: &Check<'_>,
    decisions: &mut [Decision],
    limiter: Option<&Limiter>,
) {
    if in_full {
        full_of_key(call, summary, check, decisions, limiter);
    } else {
        short(call, summary, check.granted(summary.verdict));
    }
}

/// The short reply.
#[inline(always)]
pub fn short(call: &Call<'_>, decision: Decision, granted: Option<u32>) {
    let Decision { verdict, limit, remaining, wait_ms, reset_ms } = decision;
    let integers = [verdict.code(), limit, remaining, wait_ms, reset_ms];
    match granted {
        None => call.reply_integers(&integers),
        Some(granted) => short_of_range(call, integers, granted),
    }
}

/// The short reply to a check whose cost is a range.
#[inline(never)]
fn short_of_range(call: &Call<'_>, integers: [i64; 5], granted: u32) {
    let [verdict, limit, remaining, wait_ms, reset_ms] = integers;
    call.reply_integers(&[verdict, limit, remaining, wait_ms, reset_ms, granted.into()]);
}

/// The short reply to a check of any of several keys. Its last integer is the index of the key that
/// admitted the check, or -1.
pub fn of_any(call: &Call<'_>, decision: Decision, granted: Option<u32>, chosen: i64) {
    let Decision { verdict, limit, remaining, wait_ms, reset_ms } = decision;
    let verdict = verdict.code();
    match granted.map(i64::from) {
        None => call.reply_integers(&[verdict, limit, remaining, wait_ms, reset_ms, chosen]),
        Some(granted) => {
            call.reply_integers(&[verdict, limit, remaining, wait_ms, reset_ms, granted, chosen]);
        }
    }
}

/// A key in the long reply.
pub type Shown<'a> = check::Shown<'a, Arg<'a>>;

/// The long reply for one key, without the key's lapsed holds.
fn full_of_key(
    call: &Call<'_>,
    summary: Decision,
    check: &Check<'_>,
    decisions: &mut [Decision],
    limiter: Option<&Limiter>,
) {
    let limiter = limiter.map(|limiter| limiter.as_of(check.now_us));
    let (limiter, all) = (limiter.as_deref(), 0..decisions.len());
    let key = Shown { name: None, check: *check, decisions: all, limiter };
    full(call, summary, decisions, &[key], None, None);
}

/// The long reply: a map that contains one map per rule. For several keys, it names the deciding
/// key and the key of each rule. With `ANY`, `chosen` is the index of the key that admitted the check,
/// or -1.
pub fn full(
    call: &Call<'_>,
    summary: Decision,
    decisions: &mut [Decision],
    keys: &[Shown<'_>],
    decider: Option<usize>,
    chosen: Option<i64>,
) {
    let Some(first) = keys.first() else { return };
    let report = FullReport::of(summary, decisions, keys, decider);
    let show_rules = |to: &Writer<'_>| {
        to.list(&report.rules, |to, (key, rule)| {
            let key = key.map(|key| ("key", Text(key.bytes())));
            let fields = rule.fields();
            let fields = fields.iter().map(|(name, field)| Some((*name, value(field))));
            to.map(iter::once(key).chain(fields));
        });
    };
    let block = report.block.map(|(name, block)| {
        move |to: &Writer<'_>| {
            to.map([
                name.map(|name| ("key", Text(name.bytes()))),
                Some(("reason", Text(&block.reason))),
                Some(("ttl_ms", Integer(block.left_ms(first.check.now_us)))),
            ]);
        }
    });
    let decider = report.key.map_or(Null, |name| Text(name.bytes()));
    call.reply(|to| {
        to.map([
            Some(("verdict", Integer(summary.verdict.code()))),
            Some(("wait_ms", Integer(summary.wait_ms))),
            report.granted.map(|granted| ("granted", Integer(granted.into()))),
            chosen.map(|chosen| ("chosen", Integer(chosen))),
            first.name.map(|_| ("key", decider)),
            report.plan.map(|plan| ("plan", Text(plan.name.as_bytes()))),
            Some(("rules", Nested(&show_rules))),
            block.as_ref().map(|block| ("block", Nested(block))),
        ]);
    });
}

fn value<'v>(field: &'v Field<'_>) -> Value<'v> {
    match field {
        Field::Text(text) => Text(text.as_bytes()),
        Field::Integer(number) => Integer(*number),
        Field::Null => Null,
    }
}
