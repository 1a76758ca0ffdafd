//! `RL.MCHECK ... ANY`: may this request pass through one of several keys, and through which?
//!
//! Evaluates the keys in their order until one admits the check; with `MOST`, evaluates all keys. Then
//! checks the chosen key as `RL.CHECK` does, and leaves the other keys unchanged. If no key admits the
//! check, each key denies it as `RL.CHECK` does, and each changed key propagates its own effects.

use super::answer;
use super::opened::{event, refused};
use super::several::{CheckedKey, KeyOutcome, MultiCheck, key_checks, outcomes_of};
use crate::config;
use crate::policy::Resolver;
use crate::server::CommandError;
use ratelimit_engine::check::{Budget, CheckError, Decision, Outcome, deny_each};
use ratelimit_engine::key::Verdict;
use ratelimit_protocol::parse::Any;
use std::slice;

/// Answers a check of any of the keys.
pub fn decide(
    multi: &MultiCheck<'_>,
    any: Any,
    decisions: &mut Vec<Decision>,
    resolver: &Resolver<'_>,
) -> Result<(), CommandError> {
    let mut keys = Vec::new();
    match pass(multi, any, &mut keys, decisions)? {
        Some((mut key, outcome)) => {
            drop(keys);
            let (summary, own) = (outcome.summary, (outcome, 0..decisions.len()));
            let (keys, outcomes) = (slice::from_mut(&mut key), slice::from_ref(&own));
            multi.after_check(keys, outcomes, summary.verdict, decisions, resolver)?;
            reply(multi, summary, &key, &own, decisions);
            key.opened.close(event(&own.0));
        }
        None => {
            let (index, summary, outcomes) = deny(multi, &mut keys, decisions, resolver)?;
            if let Some((key, own)) = keys.get(index).zip(outcomes.get(index)) {
                reply(multi, summary, key, own, decisions);
            }
            multi.close(keys, &outcomes);
        }
    }
    Ok(())
}

/// Replies with this key's answer.
fn reply(
    multi: &MultiCheck<'_>,
    summary: Decision,
    key: &CheckedKey<'_>,
    own: &KeyOutcome,
    decisions: &mut [Decision],
) {
    let passes = summary.verdict == Verdict::Allowed;
    let chosen = if passes { i64::try_from(key.index).unwrap_or(-1) } else { -1 };
    if multi.request.check.full {
        let shown = key.shown(own);
        answer::full(multi.call, summary, decisions, &[shown], Some(0), Some(chosen));
    } else {
        answer::of_any(multi.call, summary, key.check.granted(summary.verdict), chosen);
    }
}

/// Chooses a key and checks it: the key whose hold the check repeats, otherwise the first key that
/// admits the check, or with `MOST` the key with the most left afterwards. If no key admits the check,
/// returns `None` and leaves all keys open in `keys`.
fn pass<'a>(
    multi: &MultiCheck<'a>,
    any: Any,
    keys: &mut Vec<CheckedKey<'a>>,
    decisions: &mut Vec<Decision>,
) -> Result<Option<(CheckedKey<'a>, Outcome)>, CommandError> {
    let mut open = Vec::new();
    if multi.takes_hold() {
        open = multi.open_all()?;
        let repeats = |key: &CheckedKey<'_>| key.limiter().repeats_until(&key.check).is_some();
        if let Some(index) = open.iter().position(repeats) {
            return check_chosen(multi, open.swap_remove(index), decisions).map(Some);
        }
    }
    let (mut open, budget) = (open.into_iter(), Budget::of_command());
    let mut most = None;
    for (index, name) in multi.names().iter().enumerate() {
        let mut key = open.next().map_or_else(|| multi.open((index, name)), Ok)?;
        let check = key.check;
        match any {
            Any::First => {
                let limiter = key.limiter_mut();
                let passed =
                    limiter.check_if_admitted(config::bounds(), &check, decisions, &budget);
                if let Some(outcome) = passed.map_err(|error| refusal(multi, &key, &error))? {
                    return Ok(Some((key, outcome)));
                }
            }
            Any::Most => {
                let left = key.limiter().left_after(&check, decisions, &budget);
                if left > most.map(|(_, best)| best) {
                    most = left.map(|left| (index, left));
                }
            }
        }
        keys.push(key);
    }
    let most = most.map(|(index, _)| keys.swap_remove(index));
    most.map(|key| check_chosen(multi, key, decisions)).transpose()
}

/// Checks one of the keys.
fn check_chosen<'a>(
    multi: &MultiCheck<'a>,
    mut key: CheckedKey<'a>,
    decisions: &mut Vec<Decision>,
) -> Result<(CheckedKey<'a>, Outcome), CommandError> {
    let check = key.check;
    let outcome = key.limiter_mut().check_within(config::bounds(), &check, decisions);
    let outcome = outcome.map_err(|error| refusal(multi, &key, &error))?;
    Ok((key, outcome))
}

/// The error if this key refuses the check.
#[cold]
fn refusal(multi: &MultiCheck<'_>, key: &CheckedKey<'_>, error: &CheckError) -> CommandError {
    refused(multi.names().from(key.index), error)
}

/// Lets each key deny the check separately. Returns the index and the answer of the key to reply with,
/// and what was done to each key.
fn deny<'a>(
    multi: &MultiCheck<'a>,
    keys: &mut [CheckedKey<'a>],
    decisions: &mut Vec<Decision>,
    resolver: &Resolver<'_>,
) -> Result<(usize, Decision, Vec<KeyOutcome>), CommandError> {
    let mut checks = key_checks(keys);
    let denied = deny_each(&mut checks, config::bounds(), decisions);
    let denied = denied.map_err(|error| refused(multi.names(), &error))?;
    let (index, summary) = denied.ok_or(CommandError::Internal)?;
    let outcomes = outcomes_of(&checks);
    multi.after_check(keys, &outcomes, summary.verdict, decisions, resolver)?;
    Ok((index, summary, outcomes))
}
