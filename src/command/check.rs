//! `RL.CHECK`: may this request pass?

use super::answer;
use super::checked::{Checked, too_many_states};
use super::rule_args::RuleArgs;
use super::scratch::{self, Scratch};
use super::settle;
use crate::datatype::{self, LIMITER};
use crate::limit::Check;
use crate::server::{Call, CommandError, clock};
use crate::{config, metrics, parse};

/// `RL.CHECK key [COST n] [META text] [AT unix-us] [FULL] rule [rule ...]`
pub fn check(call: &Call<'_>) -> Result<(), CommandError> {
    scratch::with(call, |Scratch { rules, decisions, resolver, .. }| {
        let name = call.key_name()?;
        let clock_us = clock::now_us();
        let key = call.open_write(name, &LIMITER);
        // The key's value comes from memory while the request is parsed.
        let request = parse::check(call.after_key().bytes(), &config::limits(), resolver, rules)?;
        let mut key = key?;
        let now_us = request.at_us.unwrap_or(clock_us);
        let check = Check { rules, cost: request.cost, now_us, meta: request.meta };

        let max_states = config::max_states();
        let outcome = datatype::try_update(&mut key, |limiter| {
            let decided = limiter.check_within(max_states, &check, decisions);
            decided.map_err(|too_many| too_many_states(call.args().from(1), too_many))
        })?;

        metrics::checked(outcome.summary.verdict, clock_us);
        resolver.named.count(outcome.summary.verdict);
        let checked = Checked::new(check, &outcome, decisions);
        let mut rule_args = None;
        checked.finish(call, &mut key, name, clock_us, || {
            let written = call.args().last(request.rule_args);
            rule_args.insert(RuleArgs::of(written, &resolver.named)).args()
        });
        let event = checked.event();

        if request.full {
            let limiter = key.value().map(|limiter| &*limiter);
            answer::full_of_key(call, outcome.summary, &check, decisions, limiter);
        } else {
            answer::short(call, outcome.summary);
        }

        settle::close(call, key, name, event);
        Ok(())
    })
}
