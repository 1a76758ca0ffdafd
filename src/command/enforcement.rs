//! The setting `enforce`: whether checks are enforced, observed or off.
//!
//! ```text
//! yes       checks are decided
//! observe   every rule is evaluated and charged as a shadow, and blocks and pauses are ignored: the
//!           parser makes the rules shadows, and the check carries a flag for the engine
//! off       every check is allowed and changes nothing, as if its key were exempt
//! ```
//!
//! Each handler of a check passes through [`gate`], which answers in place of the handler while checks
//! are off, and counts errors.

use super::answer::{self, Shown};
use super::request::{self, Scratch};
use super::{mcheck, throttle, wait};
use crate::config::{self, Enforcement};
use crate::metrics;
use crate::policy::Resolver;
use crate::server::callback::Handler;
use crate::server::changes::{self, Changes};
use crate::server::{Call, CommandError, clock, log};
use ratelimit_engine::check::Decision;
use ratelimit_engine::key::{Access, AccessEntry, Check, Limiter, Verdict};
use ratelimit_engine::rule::Rule;
use ratelimit_protocol::parse::{self, CheckRequest};
use std::sync::atomic::{AtomicU8, Ordering};

/// A handler that calls `off` while checks are off, otherwise `enforced`. It counts their errors.
pub const fn gate(enforced: impl Handler, off: impl Handler) -> impl Handler {
    move |call: &Call<'_>| match config::enforcement() {
        Enforcement::Off => cold(off, call),
        Enforcement::Yes | Enforcement::Observe => enforced(call).map_err(counted_error),
    }
}

/// Calls a handler that seldom runs, and so stays out of its caller's code.
#[cold]
#[inline(never)]
fn cold(handler: impl Handler, call: &Call<'_>) -> Result<(), CommandError> {
    handler(call).map_err(counted_error)
}

#[cold]
fn counted_error(error: CommandError) -> CommandError {
    match &error {
        CommandError::UnknownPolicy(_) => metrics::ERRORS_UNKNOWN_POLICY.add(1),
        // The caller tries again, and no client gets the error.
        error if error.is_not_now() => {}
        _ => metrics::ERRORS_OTHER.add(1),
    }
    error
}

/// The key of a check that changes nothing.
fn exempt() -> Limiter {
    let mut limiter = Limiter::default();
    limiter.set_access(Some(AccessEntry::new(Access::Exempt, None, b"")));
    limiter
}

/// Counts a check, and notes the use of its policies.
fn counted(resolver: &Resolver<'_>) {
    counted_check();
    resolver.note_use(clock::now_us());
}

fn counted_check() {
    metrics::count_check(Verdict::Allowed, clock::now_us());
    metrics::UNENFORCED.add(1);
}

/// Answers `RL.CHECK`.
pub fn check(call: &Call<'_>) -> Result<(), CommandError> {
    request::with(call, |Scratch { rules, decisions, mut resolver, .. }| {
        let (args, limits) = (call.after_key().bytes(), resolver.limits());
        let request =
            parse::check(args, &limits, &mut request::plans_of_call(call, &mut resolver), rules)?;
        counted(&resolver);
        allow(call, &request, rules, decisions);
        Ok(())
    })
}

/// Answers `RL.PEEK`.
pub fn peek(call: &Call<'_>) -> Result<(), CommandError> {
    request::with(call, |Scratch { rules, decisions, mut resolver, .. }| {
        let (args, limits) = (call.after_key().bytes(), resolver.limits());
        let request =
            parse::peek(args, &limits, &mut request::plans_of_call(call, &mut resolver), rules)?;
        metrics::PEEKS.add(1);
        allow(call, &request, rules, decisions);
        Ok(())
    })
}

/// Answers `RL.WAIT`.
pub fn wait(call: &Call<'_>) -> Result<(), CommandError> {
    wait::with_request(call, |call, parsed, scratch| {
        counted(&scratch.resolver);
        allow(call, &parsed.request.check, scratch.rules, scratch.decisions);
        Ok(())
    })
}

/// Allows a request for one key.
fn allow(
    call: &Call<'_>,
    request: &CheckRequest<'_>,
    rules: &[Rule],
    decisions: &mut Vec<Decision>,
) {
    let now_us = request.at_us.unwrap_or_else(clock::now_us);
    let options = request.options_at(now_us);
    let (exempt, check) =
        (exempt(), Check { rules, cost: request.cost, now_us, options: options.as_ref() });
    let outcome = exempt.peek(&check, decisions);
    let check = Check { cost: outcome.cost, ..check };
    answer::of_key(call, request.full, outcome.summary, &check, decisions, Some(&exempt));
}

/// Answers `RL.MCHECK`. With `ANY`, chooses the first key.
pub fn mcheck(call: &Call<'_>) -> Result<(), CommandError> {
    mcheck::with_request(call, false, |multi, decisions, resolver| {
        counted(resolver);
        let exempt = exempt();
        let chosen = multi.request.any.map(|_| 0);
        let shown = if chosen.is_some() { 1 } else { multi.request.keys };
        let summary = exempt.peek(&multi.check_of(0), decisions).summary;
        let keys = multi.names().first(shown).iter().enumerate().map(|(index, name)| {
            let check = multi.check_of(index);
            let outcome = exempt.peek(&check, decisions);
            let (name, check) = (Some(name), Check { cost: outcome.cost, ..check });
            Shown { name, check, decisions: 0..0, limiter: Some(&exempt) }
        });
        let keys: Vec<_> = keys.collect();
        let granted = keys.first().and_then(|key| key.check.granted(summary.verdict));
        match (multi.request.check.full, chosen) {
            (true, _) => answer::full(call, summary, decisions, &keys, chosen.map(|_| 0), chosen),
            (false, Some(chosen)) => answer::of_any(call, summary, granted, chosen),
            (false, None) => answer::short(call, summary, granted),
        }
        Ok(())
    })
}

/// Answers `RL.THROTTLE`.
pub fn throttle(call: &Call<'_>) -> Result<(), CommandError> {
    let request = parse::throttle(call.after_key().bytes())?;
    match request.quantity {
        // Gives back, as RL.REFUND does.
        ..0 => return throttle::throttle(call),
        0 => {}
        1.. => counted_check(),
    }
    throttle::reply_exempt(call, &request.bucket);
    Ok(())
}

/// The setting when it was last noted.
static NOTED: AtomicU8 = AtomicU8::new(Enforcement::Yes as u8);

/// Notes the setting: a change is logged, and answers the clients that wait.
pub fn note() {
    let now = config::enforcement();
    if NOTED.swap(now as u8, Ordering::Relaxed) != now as u8 {
        log::warning(match now {
            Enforcement::Yes => "checks are enforced again (ratelimit.enforce yes)",
            Enforcement::Observe => {
                "checks are NOT enforced: rules are evaluated, and everything passes \
                 (ratelimit.enforce observe)"
            }
            Enforcement::Off => {
                "checks are NOT enforced: everything passes (ratelimit.enforce off)"
            }
        });
        changes::report(|| Changes::Everything);
    }
}
