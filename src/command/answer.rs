//! The replies to a check: five integers, one more if its cost is a range, one more with `ANY`; or a
//! map with `FULL`.

use crate::server::reply::Value::{self, Integer, Nested, Null, Text};
use crate::server::{Arg, Call, Writer};
use ratelimit_engine::check::{Budget, Decision, Field};
use ratelimit_engine::key::{Check, Limiter, Standing, StandingEntry};
use std::iter;
use std::ops::Range;

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
#[derive(Clone, Debug)]
pub struct Shown<'a> {
    /// Its name, if the command takes several keys.
    pub name: Option<Arg<'a>>,
    pub check: Check<'a>,
    /// Where its decisions are: one per rule, or none if a block or an exemption answered.
    pub decisions: Range<usize>,
    pub limiter: Option<&'a Limiter>,
}

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
/// or -1. Shows the plan of the only key, or of the deciding key. Fills in the resets of the decisions.
pub fn full(
    call: &Call<'_>,
    summary: Decision,
    decisions: &mut [Decision],
    keys: &[Shown<'_>],
    decider: Option<usize>,
    chosen: Option<i64>,
) {
    let Some(first) = keys.first() else { return };
    let (now_us, granted) = (first.check.now_us, first.check.granted(summary.verdict));
    let budget = &Budget::of_command();
    for key in keys {
        if let Some(limiter) = key.limiter {
            let decisions = decisions.get_mut(key.decisions.clone()).unwrap_or_default();
            limiter.fill_resets(&key.check, decisions, budget);
        }
    }
    let untouched = Limiter::default();
    let mut rules = Vec::new();
    for key in keys {
        let limiter = key.limiter.unwrap_or(&untouched);
        let decisions = decisions.get(key.decisions.clone()).unwrap_or_default();
        let reports = limiter.rule_reports(&key.check, decisions, budget);
        rules.extend(reports.map(|report| (key.name, report)));
    }
    let decider = decider.and_then(|decider| keys.get(decider));
    let planned = if keys.len() == 1 { Some(first) } else { decider };
    let plan = planned.and_then(|key| key.limiter?.plan_at(now_us));
    let decider = decider.and_then(|key| key.name);
    let decider = decider.map_or(Null, |name| Text(name.bytes()));
    let show_rules = |to: &Writer<'_>| {
        to.list(&rules, |to, (key, report)| {
            let key = key.map(|key| ("key", Text(key.bytes())));
            let fields = report.fields();
            let fields = fields.iter().map(|(name, field)| Some((*name, value(field))));
            to.map(iter::once(key).chain(fields));
        });
    };
    let block = longest_block(keys, now_us).map(|(name, block)| {
        move |to: &Writer<'_>| {
            to.map([
                name.map(|name: Arg<'_>| ("key", Text(name.bytes()))),
                Some(("reason", Text(&block.reason))),
                Some(("ttl_ms", Integer(block.left_ms(now_us)))),
            ]);
        }
    });
    call.reply(|to| {
        to.map([
            Some(("verdict", Integer(summary.verdict.code()))),
            Some(("wait_ms", Integer(summary.wait_ms))),
            granted.map(|granted| ("granted", Integer(granted.into()))),
            chosen.map(|chosen| ("chosen", Integer(chosen))),
            first.name.map(|_| ("key", decider)),
            plan.map(|plan| ("plan", Text(plan.name.as_bytes()))),
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

/// The block in effect that ends last. Of several that end together, the first.
fn longest_block<'a>(
    keys: &[Shown<'a>],
    now_us: u64,
) -> Option<(Option<Arg<'a>>, &'a StandingEntry)> {
    let block_of = |key: &Shown<'a>| {
        let standing = key.limiter?.standing_at(now_us)?;
        (standing.kind == Standing::Block).then_some((key.name, standing))
    };
    let blocks = keys.iter().rev().filter_map(block_of);
    blocks.max_by_key(|(_, block)| block.until_us.unwrap_or(u64::MAX))
}
