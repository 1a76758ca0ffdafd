//! `RL.MCHECK ... ANY`: may this request pass through one of several keys, and through which?
//!
//! Keys are opened and looked at in their order until one admits the check. That one is checked as by
//! `RL.CHECK`, and those that were passed over stay as they are. If none admits it, each denies it as
//! its own `RL.CHECK` would, and each that changes has one effect.

use super::answer;
use super::opened::refused;
use super::several::{Asked, Asking, Done, done, key_checks};
use crate::config;
use crate::policy::Resolver;
use crate::server::CommandError;
use ratelimit_core::check::{Budget, Decision, deny_each};
use ratelimit_core::key::Verdict;
use ratelimit_protocol::parse::Any;

/// Answers a check of any of the keys.
pub fn decide(
    asked: &Asked<'_>,
    any: Any,
    decisions: &mut Vec<Decision>,
    resolver: &Resolver,
) -> Result<(), CommandError> {
    let mut keys = Vec::with_capacity(1);
    let chosen = choose(asked, any, &mut keys, decisions)?;
    let (index, summary, done) = match chosen {
        Some(index) => {
            keys = vec![keys.swap_remove(index)];
            let (summary, done) = check(asked, &mut keys, decisions, resolver)?;
            (0, summary, done)
        }
        None => deny(asked, &mut keys, decisions, resolver)?,
    };
    let passes = summary.verdict == Verdict::Allowed;
    let chosen =
        chosen.filter(|_| passes).and_then(|index| i64::try_from(index).ok()).unwrap_or(-1);
    if let Some((key, own)) = keys.get(index).zip(done.get(index)) {
        if asked.request.check.full {
            let shown = key.shown(own);
            answer::full(asked.call, summary, decisions, &[shown], Some(0), Some(chosen));
        } else {
            answer::of_any(asked.call, summary, key.check.granted(summary.verdict), chosen);
        }
    }
    asked.close(keys, &done);
    Ok(())
}

/// The key that the check passes through: the one that has the hold which it repeats, else the first
/// that admits it, or the one with the most left afterwards. `None`, with all keys open, if none
/// admits it.
fn choose<'a>(
    asked: &Asked<'a>,
    any: Any,
    keys: &mut Vec<Asking<'a>>,
    decisions: &mut Vec<Decision>,
) -> Result<Option<usize>, CommandError> {
    if asked.takes_hold() {
        *keys = asked.open_all()?;
        let repeats = |key: &Asking<'_>| key.limiter().repeats_until(&key.check).is_some();
        if let Some(index) = keys.iter().position(repeats) {
            return Ok(Some(index));
        }
    }
    let budget = Budget::of_command();
    let mut most = None;
    for (index, name) in asked.names().iter().enumerate() {
        if index == keys.len() {
            keys.push(asked.open((index, name))?);
        }
        let Some(key) = keys.get(index) else { continue };
        let Some(left) = key.limiter().left_after(&key.check, decisions, &budget) else { continue };
        if any == Any::First {
            return Ok(Some(index));
        }
        if most.is_none_or(|(_, best)| left > best) {
            most = Some((index, left));
        }
    }
    Ok(most.map(|(index, _)| index))
}

/// Checks the only key.
fn check<'a>(
    asked: &Asked<'a>,
    keys: &mut [Asking<'a>],
    decisions: &mut Vec<Decision>,
    resolver: &Resolver,
) -> Result<(Decision, Vec<Done>), CommandError> {
    let key = keys.first_mut().ok_or(CommandError::Internal)?;
    let check = key.check;
    let outcome = key.limiter_mut().check_within(config::bounds(), &check, decisions);
    let outcome = outcome.map_err(|error| refused(asked.names().from(key.index), &error))?;
    let done = vec![(outcome, 0..decisions.len())];
    asked.checked(keys, &done, outcome.summary.verdict, decisions, resolver)?;
    Ok((outcome.summary, done))
}

/// Lets each key deny the check by itself. Returns which key's answer it is.
fn deny<'a>(
    asked: &Asked<'a>,
    keys: &mut [Asking<'a>],
    decisions: &mut Vec<Decision>,
    resolver: &Resolver,
) -> Result<(usize, Decision, Vec<Done>), CommandError> {
    let mut checks = key_checks(keys);
    let denied = deny_each(&mut checks, config::bounds(), decisions);
    let denied = denied.map_err(|error| refused(asked.names(), &error))?;
    let (index, summary) = denied.ok_or(CommandError::Internal)?;
    let done = done(&checks);
    asked.checked(keys, &done, summary.verdict, decisions, resolver)?;
    Ok((index, summary, done))
}
