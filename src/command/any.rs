//! `RL.MCHECK ... ANY`: may this request pass through one of several keys, and through which?
//!
//! Evaluates the keys in their order until one admits the check; with `MOST`, evaluates all keys. Then
//! checks the chosen key as `RL.CHECK` does, and leaves the other keys unchanged. If no key admits the
//! check, each key denies it as `RL.CHECK` does, and each changed key propagates its own effects.

use super::answer;
use super::opened::{event, refused};
use super::several::{Asked, Asking, Done, done, key_checks};
use crate::config;
use crate::policy::Resolver;
use crate::server::CommandError;
use ratelimit_core::check::{Budget, CheckError, Decision, Outcome, deny_each};
use ratelimit_core::key::Verdict;
use ratelimit_protocol::parse::Any;
use std::slice;

/// Answers a check of any of the keys.
pub fn decide(
    asked: &Asked<'_>,
    any: Any,
    decisions: &mut Vec<Decision>,
    resolver: &Resolver<'_>,
) -> Result<(), CommandError> {
    let mut keys = Vec::new();
    match pass(asked, any, &mut keys, decisions)? {
        Some((mut key, outcome)) => {
            drop(keys);
            let (summary, done) = (outcome.summary, (outcome, 0..decisions.len()));
            let (keys, all_done) = (slice::from_mut(&mut key), slice::from_ref(&done));
            asked.checked(keys, all_done, summary.verdict, decisions, resolver)?;
            reply(asked, summary, &key, &done, decisions);
            key.opened.close(event(&done.0));
        }
        None => {
            let (index, summary, done) = deny(asked, &mut keys, decisions, resolver)?;
            if let Some((key, own)) = keys.get(index).zip(done.get(index)) {
                reply(asked, summary, key, own, decisions);
            }
            asked.close(keys, &done);
        }
    }
    Ok(())
}

/// Replies with this key's answer.
fn reply(
    asked: &Asked<'_>,
    summary: Decision,
    key: &Asking<'_>,
    done: &Done,
    decisions: &mut [Decision],
) {
    let passes = summary.verdict == Verdict::Allowed;
    let chosen = if passes { i64::try_from(key.index).unwrap_or(-1) } else { -1 };
    if asked.request.check.full {
        let shown = key.shown(done);
        answer::full(asked.call, summary, decisions, &[shown], Some(0), Some(chosen));
    } else {
        answer::of_any(asked.call, summary, key.check.granted(summary.verdict), chosen);
    }
}

/// Chooses a key and checks it: the key whose hold the check repeats, otherwise the first key that
/// admits the check, or with `MOST` the key with the most left afterwards. If no key admits the check,
/// returns `None` and leaves all keys open in `keys`.
fn pass<'a>(
    asked: &Asked<'a>,
    any: Any,
    keys: &mut Vec<Asking<'a>>,
    decisions: &mut Vec<Decision>,
) -> Result<Option<(Asking<'a>, Outcome)>, CommandError> {
    let mut open = Vec::new();
    if asked.takes_hold() {
        open = asked.open_all()?;
        let repeats = |key: &Asking<'_>| key.limiter().repeats_until(&key.check).is_some();
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
    asked: &Asked<'a>,
    mut key: Asking<'a>,
    decisions: &mut Vec<Decision>,
) -> Result<(Asking<'a>, Outcome), CommandError> {
    let check = key.check;
    let outcome = key.limiter_mut().check_within(config::bounds(), &check, decisions);
    let outcome = outcome.map_err(|error| refusal(asked, &key, &error))?;
    Ok((key, outcome))
}

/// The error if this key refuses the check.
#[cold]
fn refusal(asked: &Asked<'_>, key: &Asking<'_>, error: &CheckError) -> CommandError {
    refused(asked.names().from(key.index), error)
}

/// Lets each key deny the check separately. Returns the index and the answer of the key to reply with,
/// and what was done to each key.
fn deny<'a>(
    asked: &Asked<'a>,
    keys: &mut [Asking<'a>],
    decisions: &mut Vec<Decision>,
    resolver: &Resolver<'_>,
) -> Result<(usize, Decision, Vec<Done>), CommandError> {
    let mut checks = key_checks(keys);
    let denied = deny_each(&mut checks, config::bounds(), decisions);
    let denied = denied.map_err(|error| refused(asked.names(), &error))?;
    let (index, summary) = denied.ok_or(CommandError::Internal)?;
    let done = done(&checks);
    asked.checked(keys, &done, summary.verdict, decisions, resolver)?;
    Ok((index, summary, done))
}
