//! A look at what a request that may wait would be told now. It changes nothing.

use crate::command::answer;
use crate::command::scratch::{self, Scratch};
use crate::config;
use crate::datatype::LIMITER;
use crate::server::{Call, CommandError, ReadKey, clock};
use ratelimit_core::limit::{Check, Decision, Limiter, Outcome, Verdict};
use ratelimit_core::parse::{self, WaitRequest};

/// What would be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// An answer that no waiting changes, and that nobody in front can make worse.
    Decided,
    /// It repeats a live hold: allowed, and it costs nobody anything.
    Repeats,
    /// The request would pass.
    Passes { patience_ms: u64 },
    /// The request would pass after this time at the latest.
    Later {
        patience_ms: u64,
        wait_ms: u64,
        /// Whether it may pass before its patience ends, if nothing else consumes.
        in_time: bool,
    },
}

/// What is looked at.
struct Seen<'a> {
    check: Check<'a>,
    outcome: Outcome,
    limiter: Option<&'a Limiter>,
}

/// Runs a body with the request of a call, whose rules are in the buffers.
///
/// # Errors
/// Why it is no request, or the body's.
pub fn with_request<T>(
    call: &Call<'_>,
    body: impl FnOnce(&WaitRequest<'_>, &mut Scratch) -> Result<T, CommandError>,
) -> Result<T, CommandError> {
    scratch::with(call, |scratch| {
        let Scratch { rules, resolver, .. } = scratch;
        let args = call.after_key().bytes();
        let request = parse::wait(args, &config::limits(), resolver, rules)?;
        body(&request, scratch)
    })
}

/// Looks at a request.
///
/// # Errors
/// The error that it would be told.
pub fn look(
    call: &Call<'_>,
    request: &WaitRequest<'_>,
    scratch: &mut Scratch,
) -> Result<Look, CommandError> {
    if call.is_on_replica() {
        // The server unblocks those who waited when this was a primary.
        return Ok(Look::Decided);
    }
    let patience_ms = request.ms;
    see(call, request, scratch, |Seen { check, outcome, limiter }, _| {
        let holds = limiter.map_or(0, |limiter| limiter.live_holds(check.now_us));
        match (outcome.summary.verdict, u64::try_from(outcome.summary.wait_ms)) {
            _ if limiter.is_some_and(|limiter| limiter.repeats(&check)) => Look::Repeats,
            (Verdict::Allowed, _) => Look::Passes { patience_ms },
            // Nothing but a settled hold can come earlier than the wait.
            (Verdict::Limited, Ok(wait_ms)) => {
                let in_time = wait_ms <= patience_ms || holds > 0;
                Look::Later { patience_ms, wait_ms, in_time }
            }
            (Verdict::Limited | Verdict::Blocked, _) => Look::Decided,
        }
    })
}

/// Denies a request because others are in front of it or because it can wait no longer.
/// Rules are asked, but nothing is charged. If they would let it pass, the wait is the one
/// given.
///
/// # Errors
/// The error that the request is told.
pub fn deny(
    call: &Call<'_>,
    request: &WaitRequest<'_>,
    scratch: &mut Scratch,
    wait_ms: u64,
) -> Result<(), CommandError> {
    see(call, request, scratch, |Seen { check, outcome, limiter }, decisions| {
        let mut summary = outcome.summary;
        if summary.verdict == Verdict::Allowed {
            summary.verdict = Verdict::Limited;
            summary.wait_ms = i64::try_from(wait_ms).unwrap_or(i64::MAX);
        }
        if request.check.full {
            answer::full_of_key(call, summary, &check, decisions, limiter);
        } else {
            answer::short(call, summary, check.granted(summary.verdict));
        }
    })
}

/// Lets the rules decide.
fn see<T>(
    call: &Call<'_>,
    request: &WaitRequest<'_>,
    scratch: &mut Scratch,
    body: impl FnOnce(Seen<'_>, &mut [Decision]) -> T,
) -> Result<T, CommandError> {
    let Scratch { rules, decisions, .. } = scratch;
    let now_us = clock::now_us();
    let options = request.check.options_at(now_us);
    let check = Check { rules, cost: request.check.cost, now_us, options: options.as_ref() };

    let key = call.open_read(call.key_name()?, &LIMITER)?;
    let limiter = key.as_ref().and_then(ReadKey::value);
    let outcome = limiter.unwrap_or(&Limiter::default()).peek(&check, decisions);
    let check = Check { cost: outcome.cost, ..check };
    let limiter = limiter.map(|limiter| limiter.as_of(now_us));
    Ok(body(Seen { check, outcome, limiter: limiter.as_deref() }, decisions))
}
