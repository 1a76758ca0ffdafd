//! `RL.CHECK`: may this request pass?

use super::answer;
use super::effect_args::EffectArgs;
use super::opened::{Opened, event, refused};
use super::scratch::{self, Scratch};
use crate::datatype::LIMITER;
use crate::policy::Resolver;
use crate::server::{Call, CommandError, clock};
use crate::{config, metrics};
use ratelimit_core::check::{Decision, Outcome};
use ratelimit_core::key::{Check, Limiter};
use ratelimit_core::rule::Rule;
use ratelimit_protocol::parse::{self, CheckRequest, ParseError};

/// `RL.CHECK`
pub fn check(call: &Call<'_>) -> Result<(), CommandError> {
    scratch::with(call, |scratch| {
        decide(call, scratch, |resolver, rules| {
            parse::check(call.after_key().bytes(), &config::limits(), resolver, rules)
        })
    })
}

/// Decides a request. `parse` adds its rules to the buffers unless they are there already.
#[inline(always)]
pub fn decide<'a>(
    call: &Call<'_>,
    scratch: &mut Scratch,
    parse: impl FnOnce(&mut Resolver, &mut Vec<Rule>) -> Result<CheckRequest<'a>, ParseError>,
) -> Result<(), CommandError> {
    let Scratch { rules, decisions, resolver, .. } = scratch;
    let clock_us = clock::now_us();
    let key = call.open_write(call.key_name()?, &LIMITER);
    // The prefetch of the key's value runs while the request is parsed.
    let request = parse(resolver, rules)?;
    let now_us = request.at_us.unwrap_or(clock_us);
    let mut opened = Opened { key: key?, at_us: now_us, clock_us };
    let options = request.options_at(now_us);
    let mut check = Check { rules, cost: request.cost, now_us, options: options.as_ref() };

    let fast = opened.key.value_mut().and_then(|limiter| limiter.check_fast(&check, decisions));
    let outcome = match fast {
        Some(outcome) => outcome,
        None => check_any(call, &mut opened, &check, decisions)?,
    };

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

/// Decides for any key. Ends lapsed holds before anything is consumed, as replicas do; a key on the
/// fast path has no holds.
#[inline(never)]
fn check_any(
    call: &Call<'_>,
    opened: &mut Opened<'_>,
    check: &Check<'_>,
    decisions: &mut Vec<Decision>,
) -> Result<Outcome, CommandError> {
    opened.lapse();
    let mut new = Limiter::default();
    let decided = match opened.key.value_mut() {
        // The fast path has declined.
        Some(limiter) => limiter.check_general(config::bounds(), check, decisions),
        None => new.check_within(config::bounds(), check, decisions),
    };
    let outcome = decided.map_err(|error| refused(call.args().from(1), &error))?;
    opened.store(new)?;
    Ok(outcome)
}
