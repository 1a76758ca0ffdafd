//! `RL.PEEK`: would this request pass?

use super::answer;
use super::scratch::{self, Scratch};
use crate::datatype::LIMITER;
use crate::server::{Call, CommandError, clock};
use crate::{config, metrics, newer_data};
use ratelimit_core::limit::{Check, Limiter};
use ratelimit_core::parse;

/// `RL.PEEK key [COST n|a..b|name=n ...] [AT unix-us] [FULL] rule [rule ...]`
pub fn peek(call: &Call<'_>) -> Result<(), CommandError> {
    newer_data::require_nothing_skipped(call)?;
    scratch::with(call, |Scratch { rules, decisions, resolver, .. }| {
        let name = call.key_name()?;
        let request = parse::peek(call.after_key().bytes(), &config::limits(), resolver, rules)?;
        let now_us = request.at_us.unwrap_or_else(clock::now_us);
        let options = request.options_at(now_us);
        let check = Check { rules, cost: request.cost, now_us, options: options.as_ref() };

        let key = call.open_read(name, &LIMITER)?;
        let limiter = key.as_ref().and_then(|key| key.value());
        let outcome = limiter.unwrap_or(&Limiter::default()).peek(&check, decisions);

        let check = Check { cost: outcome.cost, ..check };
        if request.full {
            let limiter = limiter.map(|limiter| limiter.as_of(now_us));
            answer::full_of_key(call, outcome.summary, &check, decisions, limiter.as_deref());
        } else {
            answer::short(call, outcome.summary, check.granted(outcome.summary.verdict));
        }
        metrics::PEEKS.add(1);
        Ok(())
    })
}
