//! `RL.CHECK` and `RL.PEEK`: may this request pass?

use super::answer::{self, Shown};
use super::effect::{self, Done};
use super::rule_args::RuleArgs;
use super::scratch::{self, Scratch};
use super::top;
use crate::datatype::{self, LIMITER};
use crate::limit::{Check, Decision, Limiter, Outcome, TooManyStates, Verdict};
use crate::parse::error::Excerpt;
use crate::rule::Rule;
use crate::server::{Arg, Args, Call, CommandError, KeyspaceEvent, clock};
use crate::{config, metrics, newer, parse};

/// `RL.CHECK key [COST n] [META text] [AT unix-us] [FULL] rule [rule ...]`
pub fn check(call: &Call<'_>) -> Result<(), CommandError> {
    scratch::with(call, |Scratch { rules, decisions, resolver, .. }| {
        let name = call.key_name()?;
        let clock_us = clock::now_us();
        let key = call.open_write(name, &LIMITER);
        // What the key holds comes from memory while the request is read.
        let request = parse::check(call.after_key().bytes(), &config::limits(), resolver, rules)?;
        let mut key = key?;
        let now_us = request.at_us.unwrap_or(clock_us);
        let check = Check { rules, cost: request.cost, now_us, meta: request.meta };

        let max_states = config::max_states();
        let outcome = datatype::try_update(&mut key, |limiter| {
            let decided = limiter.check_within(max_states, &check, decisions);
            decided.map_err(|crowd| crowded(call.args().from(1), crowd))
        })?;

        let banned = outcome.ban.is_some() || outcome.ban_shortened;
        let done = Done { check, change: outcome.change, banned };
        if done.is_something() {
            let mut words = None;
            let written = call.args().last(request.rule_args);
            effect::settle_check(call, &mut key, name, &done, clock_us, || {
                words.insert(RuleArgs::of(written, &resolver.named)).args()
            });
        }

        if request.full {
            let limiter = key.value().map(|limiter| &*limiter);
            reply_in_full(call, outcome.summary, &check, decisions, limiter);
        } else {
            answer::short(call, outcome.summary);
        }

        count(call, name, &outcome, rules, decisions, clock_us);
        resolver.named.count(outcome.summary.verdict);
        if done.banned {
            drop(key);
            call.notify(KeyspaceEvent::Own(c"rl.ban"), name);
        }
        Ok(())
    })
}

/// Counts a check that was decided.
#[inline(always)]
pub fn count(
    call: &Call<'_>,
    name: Arg<'_>,
    outcome: &Outcome,
    rules: &[Rule],
    decisions: &[Decision],
    clock_us: u64,
) {
    let verdict = outcome.summary.verdict;
    metrics::checked(verdict, clock_us);
    metrics::looked_at(outcome.access, outcome.ban.is_some(), rules, decisions);
    if verdict != Verdict::Allowed {
        top::denied(call, name, clock_us);
    }
}

/// The error of a check that would leave one of its keys with too many states.
#[cold]
pub fn crowded(keys: Args<'_>, crowd: TooManyStates) -> CommandError {
    let key = keys.get(crowd.key).map_or(&[][..], Arg::bytes);
    CommandError::Because(format!("key {} would hold {crowd}", Excerpt::new(key)).into())
}

/// `RL.PEEK key [COST n] [AT unix-us] [FULL] rule [rule ...]`
pub fn peek(call: &Call<'_>) -> Result<(), CommandError> {
    newer::require_nothing_skipped(call)?;
    scratch::with(call, |Scratch { rules, decisions, resolver, .. }| {
        let name = call.key_name()?;
        let request = parse::peek(call.after_key().bytes(), &config::limits(), resolver, rules)?;
        let now_us = request.at_us.unwrap_or_else(clock::now_us);
        let check = Check::new(rules, request.cost, now_us);

        let key = call.open_read(name, &LIMITER)?;
        let limiter = key.as_ref().and_then(|key| key.value());
        let outcome = limiter.unwrap_or(&Limiter::default()).peek(&check, decisions);

        if request.full {
            reply_in_full(call, outcome.summary, &check, decisions, limiter);
        } else {
            answer::short(call, outcome.summary);
        }
        metrics::peeked();
        Ok(())
    })
}

fn reply_in_full(
    call: &Call<'_>,
    summary: Decision,
    check: &Check<'_>,
    decisions: &mut [Decision],
    limiter: Option<&Limiter>,
) {
    if let Some(limiter) = limiter {
        limiter.fill_resets(check, decisions);
    }
    let key = Shown { name: None, rules: check.rules, decisions, limiter };
    answer::full(call, summary, check.now_us, &[key], None);
}
