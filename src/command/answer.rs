//! The replies to a check: five integers, six if its cost is a range, or a map with `FULL`.

use crate::server::reply::Value::{Integer, Nested, Null, Text};
use crate::server::{Arg, Call, Writer};
use ratelimit_core::limit::{Access, AccessEntry, Check, Decision, Foresight, Limiter, Outlook};
use ratelimit_core::rule::Rule;

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

/// A key in the long reply. It has no decisions if a block or an exemption answered.
#[derive(Clone, Debug)]
pub struct Shown<'a> {
    /// Its name, if the command takes several keys.
    name: Option<Arg<'a>>,
    check: &'a Check<'a>,
    decisions: &'a [Decision],
    outlooks: Vec<Outlook>,
    limiter: Option<&'a Limiter>,
}

impl<'a> Shown<'a> {
    /// A key with its decisions, whose resets this fills in. All keys of a command share its
    /// `foresight`.
    pub fn new(
        name: Option<Arg<'a>>,
        check: &'a Check<'a>,
        decisions: &'a [Decision],
        limiter: Option<&'a Limiter>,
        foresight: &Foresight,
    ) -> Self {
        let untouched = Limiter::default();
        let seen = limiter.unwrap_or(&untouched);
        let outlooks = seen.outlooks(check, foresight).collect();
        Self { name, check, decisions, outlooks, limiter }
    }
}

/// The long reply for one key.
pub fn full_of_key(
    call: &Call<'_>,
    summary: Decision,
    check: &Check<'_>,
    decisions: &mut [Decision],
    limiter: Option<&Limiter>,
) {
    let foresight = &Foresight::of_command();
    if let Some(limiter) = limiter {
        limiter.fill_resets(check, decisions, foresight);
    }
    let key = Shown::new(None, check, decisions, limiter, foresight);
    full(call, summary, check.now_us, &[key], None);
}

/// The long reply: a map that contains one map per rule. For several keys, it names the deciding
/// key and the key of each rule.
pub fn full(
    call: &Call<'_>,
    summary: Decision,
    now_us: u64,
    keys: &[Shown<'_>],
    decider: Option<usize>,
) {
    let several = keys.iter().any(|key| key.name.is_some());
    let decider = decider.and_then(|decider| keys.get(decider)?.name);
    let decider = decider.map_or(Null, |name| Text(name.bytes()));
    let granted = keys.first().and_then(|key| key.check.granted(summary.verdict));
    let rules = |to: &Writer<'_>| show_rules(to, keys);
    let block = longest_block(keys, now_us);
    let block =
        block.map(|(name, block)| move |to: &Writer<'_>| show_block(to, name, block, now_us));
    call.reply(|to| {
        to.map([
            Some(("verdict", Integer(summary.verdict.code()))),
            Some(("wait_ms", Integer(summary.wait_ms))),
            granted.map(|granted| ("granted", Integer(granted.into()))),
            several.then_some(("key", decider)),
            Some(("rules", Nested(&rules))),
            block.as_ref().map(|block| ("block", Nested(block))),
        ]);
    });
}

fn show_rules(to: &Writer<'_>, keys: &[Shown<'_>]) {
    to.array(keys.iter().map(|key| key.decisions.len()).sum());
    for key in keys {
        let rules = key.check.rules.iter();
        for ((rule, decision), outlook) in rules.zip(key.decisions).zip(&key.outlooks) {
            show_rule(to, key, rule, decision, outlook);
        }
    }
}

fn show_rule(
    to: &Writer<'_>,
    key: &Shown<'_>,
    rule: &Rule,
    decision: &Decision,
    outlook: &Outlook,
) {
    let name = rule.name();
    to.map([
        key.name.map(|key| ("key", Text(key.bytes()))),
        Some(("rule", Text(rule.to_string().as_bytes()))),
        Some(("name", name.map_or(Null, |name| Text(name.as_str().as_bytes())))),
        Some(("cost", Integer(key.check.cost_of(rule).into()))),
        Some(("verdict", Integer(decision.verdict.code()))),
        Some(("limit", Integer(decision.limit))),
        Some(("quota", Integer(rule.limit().into()))),
        Some(("period_ms", Integer(outlook.period_ms))),
        Some(("remaining", Integer(decision.remaining))),
        Some(("wait_ms", Integer(decision.wait_ms))),
        Some(("next_ms", Integer(outlook.next_ms))),
        Some(("reset_ms", Integer(decision.reset_ms))),
        Some(("shadow", Integer(rule.is_shadow().into()))),
    ]);
}

fn show_block(to: &Writer<'_>, key: Option<Arg<'_>>, block: &AccessEntry, now_us: u64) {
    to.map([
        key.map(|key| ("key", Text(key.bytes()))),
        Some(("reason", Text(&block.reason))),
        Some(("ttl_ms", Integer(block.left_ms(now_us)))),
    ]);
}

/// The block in effect that ends last; the first of several equal ones.
fn longest_block<'a>(
    keys: &[Shown<'a>],
    now_us: u64,
) -> Option<(Option<Arg<'a>>, &'a AccessEntry)> {
    let block_of = |key: &Shown<'a>| {
        let access = key.limiter?.access_at(now_us)?;
        (access.kind == Access::Block).then_some((key.name, access))
    };
    let ends = |block: &AccessEntry| block.until_us.unwrap_or(u64::MAX);
    keys.iter()
        .filter_map(block_of)
        .reduce(|longest, block| if ends(block.1) > ends(longest.1) { block } else { longest })
}
