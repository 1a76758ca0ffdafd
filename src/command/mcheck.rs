//! `RL.MCHECK`: may this request pass under several keys at once, or through any of them?
//!
//! All keys are opened before anything is decided, so a key of another type causes an error and
//! changes nothing. Each changed key has its own effects; the server propagates all of them as one
//! transaction. `any` handles requests with `ANY`.

use super::answer;
use super::any;
use super::opened::refused;
use super::request::{self, Scratch, WithPlans};
use super::several::{MultiCheck, key_checks, outcomes_of};
use crate::config;
use crate::policy::Resolver;
use crate::server::{Call, CommandError, KeysRequest, clock};
use ratelimit_engine::check::{self, Decision, Outcome};
use ratelimit_engine::rule::digits;
use ratelimit_protocol::parse::{self, PlanOf};

/// `RL.MCHECK`
pub fn mcheck(call: &Call<'_>) -> Result<(), CommandError> {
    with_request(call, true, |multi, decisions, resolver| match multi.request.any {
        None => all(multi, decisions, resolver),
        Some(choice) => any::decide(multi, choice, decisions, resolver),
    })
}

/// Runs a body with a call's request. `enforced`: the request is decided.
///
/// # Errors
/// If the request cannot be parsed, or the body's error.
pub fn with_request(
    call: &Call<'_>,
    enforced: bool,
    body: impl FnOnce(&MultiCheck<'_>, &mut Vec<Decision>, &Resolver<'_>) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    request::with(call, |Scratch { rules, decisions, mut resolver, .. }| {
        let args = call.args().from(1).bytes();
        let limits = if enforced { config::limits() } else { resolver.limits() };
        let plans = &mut WithPlans::new(&mut resolver, |PlanOf { key, at_us }| {
            let name = call.args().get(key.saturating_add(2))?;
            Some(request::plan_of_key(call, name, at_us)?.name)
        });
        let request = &parse::mcheck(args, &limits, plans, rules)?;
        let clock_us = clock::now_us();
        let now_us = request.check.at_us.unwrap_or(clock_us);
        let options = request.check.options_at(now_us);
        let options = options.as_ref();
        body(&MultiCheck { call, request, rules, options, now_us, clock_us }, decisions, &resolver)
    })
}

/// Checks all keys together.
fn all(
    multi: &MultiCheck<'_>,
    decisions: &mut Vec<Decision>,
    resolver: &Resolver<'_>,
) -> Result<(), CommandError> {
    let mut keys = multi.open_all()?;
    let mut checks = key_checks(&mut keys);
    let decider = check::check_keys(&mut checks, config::bounds(), decisions)
        .map_err(|error| refused(multi.names(), &error))?;
    let outcomes = outcomes_of(&checks);
    let Some(&(Outcome { summary, .. }, _)) = outcomes.first() else { return Ok(()) };
    multi.after_check(&mut keys, &outcomes, summary.verdict, decisions, resolver)?;
    if multi.request.check.full {
        let shown: Vec<_> = keys.iter().zip(&outcomes).map(|(key, own)| key.shown(own)).collect();
        answer::full(multi.call, summary, decisions, &shown, decider, None);
    } else {
        let check = keys.first().map(|key| key.check);
        let granted = check.and_then(|check| check.granted(summary.verdict));
        answer::short(multi.call, summary, granted);
    }
    multi.close(keys, &outcomes);
    Ok(())
}

/// Reports the positions of the keys to a server that cannot derive them from the command's
/// description.
pub fn keys(request: &KeysRequest<'_>) {
    let count = request.args().get(1).and_then(|count| digits(count.bytes()));
    let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    for position in 2..request.args().len().min(count.saturating_add(2)) {
        request.add(position);
    }
}
