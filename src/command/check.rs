//! `RL.CHECK` and `RL.PEEK`: may this request pass?

use super::scratch::{self, Scratch};
use super::{effect, expiry, top};
use crate::datatype::{self, LIMITER};
use crate::limit::{Change, Check, Limiter, Outcome, OverrideKind, Rule, Ruling, Verdict};
use crate::server::{Arg, Call, Event, Failure, clock};
use crate::{config, metrics, parse};

/// `RL.CHECK key [COST n] [META text] [AT unix-us] [FULL] rule [rule ...]`
pub fn check(call: &Call<'_>) -> Result<(), Failure> {
    scratch::with(|Scratch { rules, rulings }| {
        let name = call.key_name()?;
        let request = parse::check(call.after_key().bytes(), &config::limits(), rules)?;
        let clock_us = clock::now_us();
        let now_us = request.at_us.unwrap_or(clock_us);
        let check = Check { rules, cost: request.cost, now_us, meta: request.meta };

        let mut key = call.open_write(name, &LIMITER)?;
        let outcome = datatype::update(&mut key, |limiter| limiter.check(&check, rulings))?;

        let changed = outcome.change != Change::Nothing;
        if changed || outcome.ban.is_some() {
            let expiry = expiry::settle(&mut key, now_us, clock_us);
            if changed {
                effect::tell_check(call, name, &check, outcome.change, expiry);
            }
            if outcome.ban.is_some()
                && let Some(ban) = key.value().and_then(|limiter| limiter.overrule())
            {
                effect::tell_overrule(call, name, c"ban", ban, now_us, expiry);
            }
            call.signal_modified(name);
        }

        if request.full {
            let limiter = key.value().map(|limiter| &*limiter);
            reply_in_full(call, outcome.summary, &check, rulings, limiter);
        } else {
            reply(call, outcome.summary);
        }

        count(name, &outcome, rules, rulings, clock_us);
        if outcome.ban.is_some() {
            drop(key);
            call.notify(Event::Own(c"rl.ban"), name);
        }
        Ok(())
    })
}

/// Counts a check that was decided.
pub fn count(name: Arg<'_>, outcome: &Outcome, rules: &[Rule], rulings: &[Ruling], clock_us: u64) {
    metrics::checked(outcome, rules, rulings, clock_us);
    if outcome.summary.verdict != Verdict::Allowed {
        top::denied(name.bytes(), clock_us);
    }
}

/// `RL.PEEK key [COST n] [AT unix-us] [FULL] rule [rule ...]`
pub fn peek(call: &Call<'_>) -> Result<(), Failure> {
    scratch::with(|Scratch { rules, rulings }| {
        let name = call.key_name()?;
        let request = parse::peek(call.after_key().bytes(), &config::limits(), rules)?;
        let now_us = request.at_us.unwrap_or_else(clock::now_us);
        let check = Check { rules, cost: request.cost, now_us, meta: None };

        let key = call.open_read(name, &LIMITER)?;
        let limiter = key.as_ref().and_then(|key| key.value());
        let outcome = limiter.unwrap_or(&Limiter::default()).peek(&check, rulings);

        if request.full {
            reply_in_full(call, outcome.summary, &check, rulings, limiter);
        } else {
            reply(call, outcome.summary);
        }
        metrics::peeked();
        Ok(())
    })
}

/// The short reply.
fn reply(call: &Call<'_>, ruling: Ruling) {
    let Ruling { verdict, limit, remaining, wait_ms, reset_ms } = ruling;
    call.reply_integers(&[verdict.code(), limit, remaining, wait_ms, reset_ms]);
}

/// The reply to `FULL`: a map with one map a rule. Behind a block or an
/// exemption no rule was looked at, and there is none.
fn reply_in_full(
    call: &Call<'_>,
    summary: Ruling,
    check: &Check<'_>,
    rulings: &[Ruling],
    limiter: Option<&Limiter>,
) {
    let block = limiter
        .and_then(|limiter| limiter.override_at(check.now_us))
        .filter(|overrule| overrule.kind == OverrideKind::Block);
    call.reply(|to| {
        to.map(if block.is_some() { 4 } else { 3 });
        to.integer_field("verdict", summary.verdict.code());
        to.integer_field("wait_ms", summary.wait_ms);
        to.text("rules");
        to.array(check.rules.len().min(rulings.len()));
        for (rule, ruling) in check.rules.iter().zip(rulings) {
            to.map(8);
            to.text_field("rule", rule.to_string());
            to.text("name");
            match rule.name() {
                Some(name) => to.text(name.as_str()),
                None => to.null(),
            }
            to.integer_field("verdict", ruling.verdict.code());
            to.integer_field("limit", ruling.limit);
            to.integer_field("remaining", ruling.remaining);
            to.integer_field("wait_ms", ruling.wait_ms);
            to.integer_field("reset_ms", ruling.reset_ms);
            to.integer_field("shadow", i64::from(rule.is_shadow()));
        }
        if let Some(block) = block {
            to.text("block");
            to.map(2);
            to.text_field("reason", &block.reason);
            to.integer_field("ttl_ms", block.left_ms(check.now_us));
        }
    });
}
