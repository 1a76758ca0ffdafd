//! What a check replies: five integers, or with `FULL` a map.

use crate::limit::{Access, AccessEntry, Decision, Limiter, Outlook};
use crate::rule::Rule;
use crate::server::{Arg, Call, Writer};

/// The short reply.
pub fn short(call: &Call<'_>, decision: Decision) {
    let Decision { verdict, limit, remaining, wait_ms, reset_ms } = decision;
    call.reply_integers(&[verdict.code(), limit, remaining, wait_ms, reset_ms]);
}

/// A key, as the long reply shows it. Behind a block or an exemption no rule
/// was looked at, and there is none to show.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// Its name, where there are several.
    pub name: Option<Arg<'a>>,
    pub rules: &'a [Rule],
    pub decisions: &'a [Decision],
    pub limiter: Option<&'a Limiter>,
}

/// The long reply: a map with one map a rule. Of several keys, it names the
/// deciding one, and the one each rule belongs to.
pub fn full(
    call: &Call<'_>,
    summary: Decision,
    now_us: u64,
    keys: &[Shown<'_>],
    decider: Option<usize>,
) {
    let several = keys.iter().any(|key| key.name.is_some());
    let block = longest_block(keys, now_us);
    call.reply(|to| {
        let fields = [true, true, several, true, block.is_some()];
        to.map(fields.into_iter().filter(|&field| field).count());
        to.integer_field("verdict", summary.verdict.code());
        to.integer_field("wait_ms", summary.wait_ms);
        if several {
            to.text("key");
            match decider.and_then(|decider| keys.get(decider)?.name) {
                Some(name) => to.text(name.bytes()),
                None => to.null(),
            }
        }
        to.text("rules");
        to.array(keys.iter().map(|key| key.decisions.len()).sum());
        for key in keys {
            let untouched = Limiter::default();
            let outlooks = key.limiter.unwrap_or(&untouched).outlooks(key.rules, now_us);
            for ((rule, decision), outlook) in key.rules.iter().zip(key.decisions).zip(outlooks) {
                show_rule(to, key.name, rule, decision, outlook);
            }
        }
        if let Some((name, block)) = block {
            to.text("block");
            to.map(if name.is_some() { 3 } else { 2 });
            show_key(to, name);
            to.text_field("reason", &block.reason);
            to.integer_field("ttl_ms", block.left_ms(now_us));
        }
    });
}

fn show_rule(
    to: &Writer<'_>,
    key: Option<Arg<'_>>,
    rule: &Rule,
    decision: &Decision,
    outlook: Outlook,
) {
    to.map(if key.is_some() { 12 } else { 11 });
    show_key(to, key);
    to.text_field("rule", rule.to_string());
    to.text("name");
    match rule.name() {
        Some(name) => to.text(name.as_str()),
        None => to.null(),
    }
    to.integer_field("verdict", decision.verdict.code());
    to.integer_field("limit", decision.limit);
    to.integer_field("quota", rule.limit().into());
    to.integer_field("period_ms", outlook.period_ms);
    to.integer_field("remaining", decision.remaining);
    to.integer_field("wait_ms", decision.wait_ms);
    to.integer_field("next_ms", outlook.next_ms);
    to.integer_field("reset_ms", decision.reset_ms);
    to.integer_field("shadow", i64::from(rule.is_shadow()));
}

fn show_key(to: &Writer<'_>, name: Option<Arg<'_>>) {
    if let Some(name) = name {
        to.text_field("key", name.bytes());
    }
}

/// The block in force that ends last, the first of equals.
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
