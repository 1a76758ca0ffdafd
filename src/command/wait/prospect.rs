//! The prospect of a request that may wait: how `RL.WAIT` would answer it now. Nothing here changes a
//! key.

use crate::command::request::{self, Scratch, WithPlans};
use crate::command::{answer, peek};
use crate::config::{self, Enforcement};
use crate::server::{Call, CommandError, clock};
use ratelimit_engine::key::{Plan, Verdict};
use ratelimit_protocol::parse::{self, ParseError, PlanOf, WaitRequest};
use ratelimit_protocol::waiting::{Denial, PlanEnd};
use std::cell::Cell;

/// A request, whose rules are in the buffers.
#[derive(Debug)]
pub struct ParsedWait<'a> {
    pub request: WaitRequest<'a>,
    /// When the key's plan ends, on the steady clock; `None` if the rules do not depend on the plan.
    pub plan_end: Option<PlanEnd>,
}

/// How the request would be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prospect {
    /// An answer that waiting does not change, and that the waiters in front do not affect.
    Decided,
    /// The request passes at once: it repeats a live hold, its key is exempt, or checks are not enforced.
    Free,
    /// The rules admit the request, at this cost.
    Passes { cost: u32 },
    /// The rules deny the request now.
    Later {
        denial: Denial,
        /// True if the request may pass before its deadline, provided that nothing else consumes.
        in_time: bool,
    },
}

/// Runs a body with a call's request.
///
/// # Errors
/// If the request cannot be parsed, or the body's error.
pub fn with_request<T>(
    call: &Call<'_>,
    body: impl FnOnce(&Call<'_>, &ParsedWait<'_>, &mut Scratch<'_>) -> Result<T, CommandError>,
) -> Result<T, CommandError> {
    request::with(call, |mut scratch| body(call, &parsed(call, &mut scratch)?, &mut scratch))
}

/// Parses the request. Not inlined, because it runs rarely and `RL.CHECK` inlines the same parser.
#[inline(never)]
fn parsed<'a>(call: &Call<'a>, scratch: &mut Scratch<'_>) -> Result<ParsedWait<'a>, ParseError> {
    let Scratch { rules, resolver, .. } = scratch;
    let limits = resolver.limits();
    let plan_end = Cell::new(None);
    let plans = &mut WithPlans::new(resolver, |PlanOf { at_us, .. }| {
        let plan = request::plan_of_key(call, call.key_name().ok()?, at_us);
        plan_end.set(Some(end_of(plan.as_ref())));
        Some(plan?.name)
    });
    let request = parse::wait(call.after_key().bytes(), &limits, plans, rules)?;
    Ok(ParsedWait { request, plan_end: plan_end.get() })
}

/// When a plan ends, on the steady clock.
fn end_of(plan: Option<&Plan>) -> PlanEnd {
    let left_ms = plan.and_then(|plan| u64::try_from(plan.left_ms(clock::now_us())).ok());
    left_ms.map_or(PlanEnd::Never, |left_ms| PlanEnd::At(clock::steady_us_after(left_ms)))
}

/// How a request would be answered now.
///
/// # Errors
/// The error that the request would get.
pub fn of(
    call: &Call<'_>,
    ParsedWait { request, plan_end }: &ParsedWait<'_>,
    scratch: &mut Scratch<'_>,
) -> Result<Prospect, CommandError> {
    if call.is_on_replica() {
        // Clients queued before the demotion get -UNBLOCKED from the server.
        return Ok(Prospect::Decided);
    }
    if config::enforcement() == Enforcement::Off {
        return Ok(Prospect::Free);
    }
    let Scratch { rules, decisions, .. } = scratch;
    peek::evaluate(call, &request.check, rules, decisions, |outcome, check, decisions, limiter| {
        let limiter = limiter.map(|limiter| limiter.as_of(check.now_us));
        let limiter = limiter.as_deref();
        let holds = limiter.map_or(0, |limiter| limiter.live_holds(check.now_us));
        let now_us = check.now_us;
        let plan_ends =
            || plan_end.is_some_and(|end| end <= PlanEnd::At(clock::steady_us_after(request.ms)));
        let has_access = || limiter.and_then(|key| key.access_at(now_us)).is_some();
        if limiter.is_some_and(|limiter| limiter.repeats_until(check).is_some()) {
            return Prospect::Free;
        }
        match (outcome.summary.verdict, u64::try_from(outcome.summary.wait_ms)) {
            (Verdict::Allowed, _) if has_access() || check.observes() => Prospect::Free,
            (Verdict::Allowed, _) => Prospect::Passes { cost: check.greatest_cost() },
            // Only a settled hold or the end of a plan can end the wait earlier.
            (Verdict::Limited, Ok(wait_ms)) => {
                let in_time = wait_ms <= request.ms || holds > 0 || plan_ends();
                Prospect::Later { denial: Denial::of(wait_ms, check, decisions, limiter), in_time }
            }
            // Under other rules, the request may pass.
            (Verdict::Limited, Err(_)) if plan_ends() => {
                let denial = Denial::of(request.ms, check, decisions, limiter);
                Prospect::Later { denial, in_time: true }
            }
            (Verdict::Limited | Verdict::Blocked, _) => Prospect::Decided,
        }
    })
}

/// Denies a request because other clients are in front of it or its time is up. Evaluates the rules,
/// but charges nothing. If the rules admit the request, replies with the given wait.
///
/// # Errors
/// The error that the request gets.
pub fn deny(
    call: &Call<'_>,
    ParsedWait { request, .. }: &ParsedWait<'_>,
    scratch: &mut Scratch<'_>,
    wait_ms: u64,
) -> Result<(), CommandError> {
    let Scratch { rules, decisions, .. } = scratch;
    peek::evaluate(call, &request.check, rules, decisions, |outcome, check, decisions, limiter| {
        let mut summary = outcome.summary;
        if summary.verdict == Verdict::Allowed {
            summary.verdict = Verdict::Limited;
            summary.wait_ms = i64::try_from(wait_ms).unwrap_or(i64::MAX);
        }
        answer::of_key(call, request.check.full, summary, check, decisions, limiter);
    })
}
