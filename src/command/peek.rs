//! `RL.PEEK`: would this request pass?

use super::answer;
use super::request::{self, Scratch};
use crate::datatype::LIMITER;
use crate::server::{Call, CommandError, ReadKey, clock};
use crate::{config, metrics, unreadable};
use ratelimit_engine::check::{Decision, Outcome};
use ratelimit_engine::key::{Check, Limiter};
use ratelimit_engine::rule::Rule;
use ratelimit_protocol::parse::{self, CheckRequest};

/// `RL.PEEK`
pub fn peek(call: &Call<'_>) -> Result<(), CommandError> {
    unreadable::require_nothing_skipped(call)?;
    request::with(call, |Scratch { rules, decisions, mut resolver, .. }| {
        let request = parse::peek(
            call.after_key().bytes(),
            &config::limits(),
            &mut request::plans_of_call(call, &mut resolver),
            rules,
        )?;
        evaluate(call, &request, rules, decisions, |outcome, check, decisions, limiter| {
            answer::of_key(call, request.full, outcome.summary, check, decisions, limiter);
        })?;
        metrics::PEEKS.add(1);
        Ok(())
    })
}

/// Decides a request with these rules, and changes nothing. `body` gets the outcome, the
/// check with its decided cost, the decisions, and the value if there is one.
///
/// # Errors
/// [`CommandError::WRONG_TYPE`]
#[inline(always)]
pub fn evaluate<T>(
    call: &Call<'_>,
    request: &CheckRequest<'_>,
    rules: &[Rule],
    decisions: &mut Vec<Decision>,
    body: impl FnOnce(Outcome, &Check<'_>, &mut [Decision], Option<&Limiter>) -> T,
) -> Result<T, CommandError> {
    let now_us = request.at_us.unwrap_or_else(clock::now_us);
    let options = request.options_at(now_us);
    let check = Check { rules, cost: request.cost, now_us, options: options.as_ref() };

    let key = call.open_read(call.key_name()?, &LIMITER)?;
    let limiter = key.as_ref().and_then(ReadKey::value);
    let outcome = limiter.unwrap_or(&Limiter::default()).peek(&check, decisions);
    let check = Check { cost: outcome.cost, ..check };
    Ok(body(outcome, &check, decisions, limiter))
}
