//! `RL.CHECK`: may this request pass?

use super::answer;
use super::effect_args::EffectArgs;
use super::opened::{Opened, event, refused};
use super::scratch::{self, Scratch};
use crate::datatype::LIMITER;
use crate::server::{Call, CommandError, WriteKey, clock};
use crate::{config, metrics};
use ratelimit_core::key::{Check, Limiter};
use ratelimit_protocol::parse::{self, CheckRequest};

/// `RL.CHECK key [COST n|a..b|name=n ...] [META text] [HOLD id EX s|PX ms [REFUND]]
/// [AT unix-us] [FULL] rule [rule ...]`
pub fn check(call: &Call<'_>) -> Result<(), CommandError> {
    scratch::with(call, |scratch| {
        let key = call.open_write(call.key_name()?, &LIMITER);
        // The prefetch of the key's value runs while the request is parsed.
        let Scratch { rules, resolver, .. } = scratch;
        let request = parse::check(call.after_key().bytes(), &config::limits(), resolver, rules)?;
        decide(call, scratch, key?, request)
    })
}

/// Decides a request, whose rules are in the buffers.
#[inline(always)]
pub fn decide(
    call: &Call<'_>,
    scratch: &mut Scratch,
    key: WriteKey<'_, Limiter>,
    request: CheckRequest<'_>,
) -> Result<(), CommandError> {
    let Scratch { rules, decisions, resolver, .. } = scratch;
    let clock_us = clock::now_us();
    let now_us = request.at_us.unwrap_or(clock_us);
    let mut opened = Opened { key, at_us: now_us, clock_us };
    let options = request.options_at(now_us);
    let mut check = Check { rules, cost: request.cost, now_us, options: options.as_ref() };

    // Lapsed holds end before anything is consumed, as on replicas.
    opened.lapse();
    let mut new = Limiter::default();
    let limiter = opened.key.value_mut().unwrap_or(&mut new);
    let outcome = limiter
        .check_within(config::bounds(), &check, decisions)
        .map_err(|error| refused(call.args().from(1), &error))?;
    opened.store(new)?;

    check.cost = outcome.cost;
    metrics::checked(outcome.summary.verdict, clock_us);
    resolver.count(outcome.summary.verdict);
    opened.checked(&check, decisions, &outcome, || {
        EffectArgs::of_check(call.args().last(request.rule_args), resolver, check.rules)
    });
    let event = event(&outcome);
    let limiter = opened.key.value();
    answer::of_key(call, request.full, outcome.summary, &check, decisions, limiter);
    opened.close(event);
    Ok(())
}
