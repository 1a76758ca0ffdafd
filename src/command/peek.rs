//! `RL.PEEK`: would this request pass?

use super::answer;
use super::scratch::{self, Scratch};
use crate::datatype::LIMITER;
use crate::server::{Call, CommandError, ReadKey, clock};
use crate::{config, metrics, newer_data};
use ratelimit_core::limit::{Check, Decision, Limiter, Outcome};
use ratelimit_core::parse::{self, CheckRequest};

/// `RL.PEEK key [COST n|a..b|name=n ...] [AT unix-us] [FULL] rule [rule ...]`
pub fn peek(call: &Call<'_>) -> Result<(), CommandError> {
    newer_data::require_nothing_skipped(call)?;
    scratch::with(call, |scratch| {
        let Scratch { rules, resolver, .. } = scratch;
        let request = parse::peek(call.after_key().bytes(), &config::limits(), resolver, rules)?;
        look(call, &request, scratch, |seen| seen.reply(call, &request))?;
        metrics::PEEKS.add(1);
        Ok(())
    })
}

/// The reply that a request would get now, and the key it is about.
#[derive(Debug)]
pub struct Seen<'a> {
    pub check: Check<'a>,
    pub outcome: Outcome,
    decisions: &'a mut [Decision],
    pub limiter: Option<&'a Limiter>,
}

/// Decides by a request's rules, which are in the buffers, and changes nothing.
///
/// # Errors
/// [`CommandError::WRONG_TYPE`]
#[inline(always)]
pub fn look<T>(
    call: &Call<'_>,
    request: &CheckRequest<'_>,
    scratch: &mut Scratch,
    body: impl FnOnce(Seen<'_>) -> T,
) -> Result<T, CommandError> {
    let Scratch { rules, decisions, .. } = scratch;
    let now_us = request.at_us.unwrap_or_else(clock::now_us);
    let options = request.options_at(now_us);
    let check = Check { rules, cost: request.cost, now_us, options: options.as_ref() };

    let key = call.open_read(call.key_name()?, &LIMITER)?;
    let limiter = key.as_ref().and_then(ReadKey::value);
    let outcome = limiter.unwrap_or(&Limiter::default()).peek(&check, decisions);
    let check = Check { cost: outcome.cost, ..check };
    Ok(body(Seen { check, outcome, decisions, limiter }))
}

impl Seen<'_> {
    #[inline(always)]
    pub fn reply(self, call: &Call<'_>, request: &CheckRequest<'_>) {
        let Self { check, outcome, decisions, limiter } = self;
        answer::of_key(call, request.full, outcome.summary, &check, decisions, limiter);
    }
}
