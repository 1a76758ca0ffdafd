//! `RL.CHECK` and `RL.PEEK`: may this request pass?

use std::ffi::CStr;

use super::expiry;
use super::scratch::{self, Scratch};
use crate::config;
use crate::datatype::LIMITER;
use crate::limit::{self, Change, Check, Expiry, Limiter, OverrideKind, Rule, Ruling};
use crate::parse;
use crate::server::{Arg, Args, Call, Effect, Event, Failure, WriteKey, clock};

/// `RL.CHECK key [COST n] [AT unix-us] [FULL] rule [rule ...]`
pub fn check(call: &Call<'_>) -> Result<(), Failure> {
    scratch::with(|Scratch { rules, rulings }| {
        let name = call.key_name()?;
        let request = parse::check(call.after_key().bytes(), &config::limits(), rules)?;
        let clock_us = clock::now_us();
        let check = Check { rules, cost: request.cost, now_us: request.at_us.unwrap_or(clock_us) };

        let mut key = call.open_write(name, &LIMITER)?;
        let outcome = match key.value() {
            Some(limiter) => limiter.check(&check, rulings),
            None => {
                let mut limiter = Limiter::default();
                let outcome = limiter.check(&check, rulings);
                if !limiter.is_empty() {
                    key.set(&LIMITER, limiter)?;
                }
                outcome
            }
        };

        if outcome.change != Change::Nothing || outcome.ban.is_some() {
            let expiry = expiry::settle(&mut key, check.now_us, clock_us);
            if outcome.ban.is_some() {
                replicate_value(call, name, &mut key, expiry);
            } else {
                replicate_consumption(call, name, &check, outcome.change, expiry);
            }
            call.signal_modified(name);
        }

        if request.full {
            let limiter = key.value().map(|limiter| &*limiter);
            reply_in_full(call, outcome.summary, &check, rulings, limiter);
        } else {
            reply(call, outcome.summary);
        }
        if outcome.ban.is_some() {
            drop(key);
            call.notify(Event::Own(c"rl.ban"), name);
        }
        Ok(())
    })
}

/// `RL.PEEK key [COST n] [AT unix-us] [FULL] rule [rule ...]`
pub fn peek(call: &Call<'_>) -> Result<(), Failure> {
    scratch::with(|Scratch { rules, rulings }| {
        let name = call.key_name()?;
        let request = parse::check(call.after_key().bytes(), &config::limits(), rules)?;
        let now_us = request.at_us.unwrap_or_else(clock::now_us);
        let check = Check { rules, cost: request.cost, now_us };

        let key = call.open_read(name, &LIMITER)?;
        let limiter = key.as_ref().and_then(|key| key.value());
        let outcome = match limiter {
            Some(limiter) => limiter.peek(&check, rulings),
            None => Limiter::default().peek(&check, rulings),
        };

        if request.full {
            reply_in_full(call, outcome.summary, &check, rulings, limiter);
        } else {
            reply(call, outcome.summary);
        }
        Ok(())
    })
}

fn replicate_consumption(
    call: &Call<'_>,
    name: Arg<'_>,
    check: &Check<'_>,
    change: Change,
    expiry: Expiry,
) {
    let kind = match change {
        Change::Nothing => return,
        Change::Admitted => c"admit",
        Change::Charged => c"charge",
    };
    let rules = rules_as_written(call, check.rules);
    replicate_effect(call, name, check.now_us, kind, check.cost.into(), expiry, rules);
}

/// The arguments that are rules: the last ones.
pub fn rules_as_written<'a>(call: &Call<'a>, rules: &[Rule]) -> Args<'a> {
    call.args().last(rules.len())
}

pub fn replicate_effect(
    call: &Call<'_>,
    name: Arg<'_>,
    at_us: u64,
    kind: &'static CStr,
    units: u64,
    expiry: Expiry,
    rules: Args<'_>,
) {
    let expire_at_ms = expiry::in_effect(expiry);
    call.replicate_effect(name, &Effect { at_us, kind, units, expire_at_ms, rules });
}

/// A ban, rare as it is, is replicated as the whole value it left.
fn replicate_value(
    call: &Call<'_>,
    name: Arg<'_>,
    key: &mut WriteKey<'_, Limiter>,
    expiry: Expiry,
) {
    if let Some(limiter) = key.value() {
        call.replicate_value(name, &limit::encode(limiter));
    }
    replicate_expiry(call, name, expiry);
}

/// An expiry that moved without an effect to carry it.
pub fn replicate_expiry(call: &Call<'_>, name: Arg<'_>, expiry: Expiry) {
    match expiry {
        Expiry::Keep => {}
        Expiry::At(at_ms) => call.replicate_expiry(name, Some(at_ms)),
        Expiry::Never => call.replicate_expiry(name, None),
    }
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
