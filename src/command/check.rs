//! `RL.CHECK`: may this request pass?

use super::answer;
use super::opened::{EffectArgs, Opened, event, refused};
use super::request::{self, Scratch, WithPlans};
use crate::datatype::LIMITER;
use crate::policy::Resolver;
use crate::server::{Call, CommandError, clock};
use crate::{config, metrics};
use ratelimit_engine::check::{Decision, Outcome};
use ratelimit_engine::key::{Check, Limiter};
use ratelimit_engine::rule::Rule;
use ratelimit_protocol::parse::{self, CheckRequest, PlanOf};

/// `RL.CHECK`
pub fn check(call: &Call<'_>) -> Result<(), CommandError> {
    request::with(call, |Scratch { rules, decisions, mut resolver, .. }| {
        let clock_us = clock::now_us();
        // The prefetch of the key's value runs while the request is parsed.
        let key = call.open_write(call.key_name()?, &LIMITER);
        let plans = &mut WithPlans::new(&mut resolver, |PlanOf { at_us, .. }| {
            let limiter = key.as_ref().ok()?.value()?;
            Some(limiter.plan_at(at_us.unwrap_or(clock_us))?.name)
        });
        let request = parse::check(call.after_key().bytes(), &config::limits(), plans, rules)?;
        let opened = Opened { key: key?, at_us: clock_us, clock_us };
        decide(call, opened, &request, rules, decisions, &resolver)
    })
}

/// Decides a request with these rules. Tries the fast path here, because a single engine
/// function that tries both paths costs 160 instructions more.
#[inline(always)]
pub fn decide(
    call: &Call<'_>,
    mut opened: Opened<'_>,
    request: &CheckRequest<'_>,
    rules: &[Rule],
    decisions: &mut Vec<Decision>,
    resolver: &Resolver<'_>,
) -> Result<(), CommandError> {
    opened.at_us = request.at_us.unwrap_or(opened.at_us);
    let (now_us, clock_us) = (opened.at_us, opened.clock_us);
    let options = request.options_at(now_us);
    let mut check = Check { rules, cost: request.cost, now_us, options: options.as_ref() };

    let fast = opened.key.value_mut().and_then(|limiter| limiter.check_fast(&check, decisions));
    let outcome = match fast {
        Some(outcome) => outcome,
        None => general(call, &mut opened, &check, decisions)?,
    };

    check.cost = outcome.cost;
    metrics::count_check(outcome.summary.verdict, clock_us);
    resolver.count(outcome.summary.verdict, clock_us);
    let may_be_spared = opened.after_check(&check, decisions, &outcome, || {
        EffectArgs::of_check(call.args().last(request.rule_args), resolver, 0, check.rules)
    });
    if may_be_spared {
        metrics::UNENFORCED.add(opened.spared(&check, decisions, &outcome).into());
        resolver.count_shadowed(&check, decisions);
    }
    let event = event(&outcome);
    let limiter = opened.key.value();
    answer::of_key(call, request.full, outcome.summary, &check, decisions, limiter);
    opened.close(event);
    Ok(())
}

/// Decides a check that the fast path left undecided: its key is missing, or it needs the general path.
/// Ends lapsed holds before anything is consumed, as replicas do. A key on the fast path has no holds.
#[inline(never)]
fn general(
    call: &Call<'_>,
    opened: &mut Opened<'_>,
    check: &Check<'_>,
    decisions: &mut Vec<Decision>,
) -> Result<Outcome, CommandError> {
    opened.lapse();
    let mut new = Limiter::default();
    let decided = match opened.key.value_mut() {
        Some(limiter) => limiter.check_general(config::bounds(), check, decisions),
        None => new.check_within(config::bounds(), check, decisions),
    };
    let outcome = decided.map_err(|error| refused(call.args().from(1), &error))?;
    opened.store(new)?;
    Ok(outcome)
}
