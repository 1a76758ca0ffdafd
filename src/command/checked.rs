//! The consequences of a decision of `RL.CHECK`, `RL.MCHECK` or `RL.THROTTLE`, for each key:
//! metrics, `RL.TOP`, expiry, effects.

use super::changed::Changed;
use super::top;
use crate::metrics;
use crate::server::{Arg, Args, Call, CommandError, WriteKey};
use ratelimit_core::effect::{self, Action};
use ratelimit_core::limit::{Change, Check, CheckError, Decision, Limiter, Outcome, Refusal};
use ratelimit_core::rule::Excerpt;
use std::ffi::CStr;

/// A check's decisions about a key, and what it did to the key.
#[derive(Clone, Copy, Debug)]
pub struct Checked<'a> {
    pub check: Check<'a>,
    /// One per rule; empty if a block or an exemption answered.
    pub decisions: &'a [Decision],
    pub outcome: &'a Outcome,
}

/// The keyspace event. Publish it after closing the key, because a module that reacts to the event
/// may open the key.
pub fn event(outcome: &Outcome) -> Option<&'static CStr> {
    outcome.ban_changed().then_some(effect::BAN_EVENT)
}

impl<'a> Checked<'a> {
    /// Counts the check of this key, and applies the consequences of its change. `rules` returns
    /// the texts of its rules; it is only called if they are propagated.
    #[inline]
    pub fn finish(
        &self,
        call: &Call<'_>,
        key: &mut WriteKey<'_, Limiter>,
        name: Arg<'_>,
        clock_us: u64,
        rules: impl FnOnce() -> Args<'a>,
    ) {
        let Self { check, decisions, outcome } = self;
        metrics::key_checked(outcome.access, outcome.ban.is_some(), check.rules, decisions);
        if outcome.held {
            metrics::HOLDS_TAKEN.add(1);
        }
        if outcome.repeated {
            metrics::HOLDS_REPEATED.add(1);
        }
        if outcome.denied {
            top::denied(call, name, clock_us);
        }
        if !outcome.changed() {
            return;
        }
        let changed = Changed { call, name, at_us: check.now_us, clock_us };
        let expiry = changed.move_expiry(key);
        changed.propagate(expiry, || {
            let action = Action::of_check(check, outcome.change)?;
            // Renewing a hold needs no rules.
            let renews = outcome.change == Change::Renewed;
            Some((action, if renews { Args::default() } else { rules() }))
        });
        if outcome.ban_changed()
            && let Some(limiter) = key.value().map(|limiter| &*limiter)
            && let Some(ban) = limiter.access()
        {
            changed.propagate(expiry, || Some((Action::set(ban, limiter.bans()), Args::default())));
        }
        call.signal_modified(name);
    }
}

/// The error of a check that one of its keys refused.
#[cold]
pub fn refused(keys: Args<'_>, error: &CheckError) -> CommandError {
    let CheckError { key, why } = error;
    let key = Excerpt::new(keys.get(*key).map_or(&[][..], Arg::bytes));
    CommandError::Because(match why {
        Refusal::TooManyStates { .. } => format!("key {key} would hold {why}").into(),
        Refusal::TooManyHolds { .. }
        | Refusal::TooManyRulesOfHolds { .. }
        | Refusal::OtherCost { .. } => why.to_string().into(),
    })
}
