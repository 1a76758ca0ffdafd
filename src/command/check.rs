//! `RL.CHECK`: may this request pass?

use super::answer;
use super::changed::{self, Changed};
use super::checked::{Checked, event, refused};
use super::rule_args::RuleArgs;
use super::scratch::{self, Resolver, Scratch};
use crate::datatype::{self, LIMITER};
use crate::server::{Call, CommandError, WriteKey, clock};
use crate::{config, metrics};
use ratelimit_core::limit::{Check, Decision, Limiter, Outcome};
use ratelimit_core::parse::{self, CheckRequest, ParseError};
use ratelimit_core::rule::Rule;

/// `RL.CHECK key [COST n|a..b|name=n ...] [META text] [HOLD id EX s|PX ms [REFUND]]
/// [AT unix-us] [FULL] rule [rule ...]`
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
    let name = call.key_name()?;
    let clock_us = clock::now_us();
    let key = call.open_write(name, &LIMITER);
    // The prefetch of the key's value runs while the request is parsed.
    let request = parse(resolver, rules)?;
    let mut key = key?;
    let now_us = request.at_us.unwrap_or(clock_us);
    let options = request.options_at(now_us);
    let mut check = Check { rules, cost: request.cost, now_us, options: options.as_ref() };

    let fast = key.value().and_then(|limiter| limiter.check_fast(&check, decisions));
    let outcome = match fast {
        Some(outcome) => outcome,
        None => {
            let changed = Changed { call, name, at_us: now_us, clock_us };
            check_any(changed, &mut key, &check, decisions)?
        }
    };

    check.cost = outcome.cost;
    metrics::checked(outcome.summary.verdict, clock_us);
    resolver.named.count(outcome.summary.verdict);
    let checked = Checked { check, decisions, outcome: &outcome };
    let mut rule_args = None;
    checked.finish(call, &mut key, name, clock_us, || {
        let written = call.args().last(request.rule_args);
        rule_args.insert(RuleArgs::of_check(written, &resolver.named, check.rules)).args()
    });
    let event = event(&outcome);

    if request.full {
        let limiter = key.value().map(|limiter| &*limiter);
        answer::full_of_key(call, outcome.summary, &check, decisions, limiter);
    } else {
        answer::short(call, outcome.summary, check.granted(outcome.summary.verdict));
    }

    changed::close(call, key, name, event);
    Ok(())
}

/// Decides for any key. Ends lapsed holds before anything is consumed, as replicas do; a key on the
/// fast path has no holds.
#[inline(never)]
fn check_any(
    changed: Changed<'_>,
    key: &mut WriteKey<'_, Limiter>,
    check: &Check<'_>,
    decisions: &mut Vec<Decision>,
) -> Result<Outcome, CommandError> {
    changed.lapse(key);
    let mut new = Limiter::default();
    let decided = match key.value() {
        // The fast path has declined.
        Some(limiter) => limiter.check_general(config::bounds(), check, decisions),
        None => new.check_within(config::bounds(), check, decisions),
    };
    let outcome = decided.map_err(|error| refused(changed.call.args().from(1), &error))?;
    datatype::store(key, new)?;
    Ok(outcome)
}
