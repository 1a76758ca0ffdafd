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
    asked: &MultiCheck<'_>,
    any: Any,
    decisions: &mut Vec<Decision>,
    resolver: &Resolver<'_>,
) -> Result<(), CommandError> {
    let mut keys = Vec::new();
    match pass(asked, any, &mut keys, decisions)? {
        Some((mut key, outcome)) => {
            drop(keys);
            let (summary, own) = (outcome.summary, (outcome, 0..decisions.len()));
            let (keys, outcomes) = (slice::from_mut(&mut key), slice::from_ref(&own));
            asked.checked(keys, outcomes, summary.verdict, decisions, resolver)?;
            reply(asked, summary, &key, &own, decisions);
            key.opened.close(event(&own.0));
        }
        None => {
            let (index, summary, outcomes) = deny(asked, &mut keys, decisions, resolver)?;
            if let Some((key, own)) = keys.get(index).zip(outcomes.get(index)) {
                reply(asked, summary, key, own, decisions);
            }
            asked.close(keys, &outcomes);
        }
    }
    Ok(())
}

/// Replies with this key's answer.
fn reply(
    asked: &MultiCheck<'_>,
    summary: Decision,
    key: &CheckedKey<'_>,
    own: &KeyOutcome,
    decisions: &mut [Decision],
) {
    let passes = summary.verdict == Verdict::Allowed;
    let chosen = if passes { i64::try_from(key.index).unwrap_or(-1) } else { -1 };
    if asked.request.check.full {
        let shown = key.shown(own);
        answer::full(asked.call, summary, decisions, &[shown], Some(0), Some(chosen));
    } else {
        answer::of_any(asked.call, summary, key.check.granted(summary.verdict), chosen);
    }
}

/// Chooses a key and checks it: the key whose hold the check repeats, otherwise the first key that
/// admits the check, or with `MOST` the key with the most left afterwards. If no key admits the check,
/// returns `None` and leaves all keys open in `keys`.
fn pass<'a>(
    asked: &MultiCheck<'a>,
    any: Any,
    keys: &mut Vec<CheckedKey<'a>>,
    decisions: &mut Vec<Decision>,
) -> Result<Option<(CheckedKey<'a>, Outcome)>, CommandError> {
    let mut open = Vec::new();
    if asked.takes_hold() {
        open = asked.open_all()?;
        let repeats = |key: &CheckedKey<'_>| key.limiter().repeats_until(&key.check).is_some();
        if let Some(index) = open.iter().position(repeats) {
            return check(asked, open.swap_remove(index), decisions).map(Some);
        }
    }
    let (mut open, budget) = (open.into_iter(), Budget::of_command());
    let mut most = None;
    for (index, name) in asked.names().iter().enumerate() {
        let mut key = open.next().map_or_else(|| asked.open((index, name)), Ok)?;
        let check = key.check;
        match any {
            Any::First => {
                let limiter = key.limiter_mut();
                let passed =
                    limiter.check_if_admitted(config::bounds(), &check, decisions, &budget);
                if let Some(outcome) = passed.map_err(|error| refusal(asked, &key, &error))? {
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
    most.map(|key| check(asked, key, decisions)).transpose()
}

/// Checks one of the keys.
fn check<'a>(
    asked: &MultiCheck<'a>,
    mut key: CheckedKey<'a>,
    decisions: &mut Vec<Decision>,
) -> Result<(CheckedKey<'a>, Outcome), CommandError> {
    let check = key.check;
    let outcome = key.limiter_mut().check_within(config::bounds(), &check, decisions);
    let outcome = outcome.map_err(|error| refusal(asked, &key, &error))?;
    Ok((key, outcome))
}

/// The error if this key refuses the check.
#[cold]
fn refusal(asked: &MultiCheck<'_>, key: &CheckedKey<'_>, error: &CheckError) -> CommandError {
    refused(asked.names().from(key.index), error)
}

/// Lets each key deny the check separately. Returns the index and the answer of the key to reply with,
/// and what was done to each key.
fn deny<'a>(
    asked: &MultiCheck<'a>,
    keys: &mut [CheckedKey<'a>],
    decisions: &mut Vec<Decision>,
    resolver: &Resolver<'_>,
) -> Result<(usize, Decision, Vec<KeyOutcome>), CommandError> {
    let mut checks = key_checks(keys);
    let denied = deny_each(&mut checks, config::bounds(), decisions);
    let denied = denied.map_err(|error| refused(asked.names(), &error))?;
    let (index, summary) = denied.ok_or(CommandError::Internal)?;
    let outcomes = outcomes_of(&checks);
    asked.checked(keys, &outcomes, summary.verdict, decisions, resolver)?;
    Ok((index, summary, outcomes))
}
