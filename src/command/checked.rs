//! What follows the decision of `RL.CHECK`, `RL.MCHECK` and `RL.THROTTLE`, key by
//! key: metrics, `RL.TOP`, expiry, effects.

use super::changed::Changed;
use super::top;
use crate::metrics;
use crate::server::{Arg, Args, Call, CommandError, WriteKey};
use ratelimit_core::effect::{self, Action};
use ratelimit_core::limit::{
    Access, Change, Check, CheckError, Decision, Limiter, Outcome, Refusal, Verdict,
};
use ratelimit_core::rule::Excerpt;
use std::ffi::CStr;

/// What a check decided about a key and did to it.
#[derive(Clone, Copy, Debug)]
pub struct Checked<'a> {
    pub check: Check<'a>,
    /// One for each rule; empty if a block or an exemption answered.
    pub decisions: &'a [Decision],
    /// The block or exemption that answered.
    pub access: Option<Access>,
    pub denied: bool,
    pub change: Change,
    /// A rule's `ban=` blocked the key.
    pub banned: bool,
    /// The clock stepped back, so the key's ban now ends earlier.
    pub ban_shortened: bool,
    /// The check repeated a hold that lives, and no rule was charged.
    pub repeated: bool,
    /// The check took a hold.
    pub held: bool,
}

impl<'a> Checked<'a> {
    /// Takes over the outcome of a check of one key.
    #[inline(always)]
    pub fn new(check: Check<'a>, outcome: &Outcome, decisions: &'a [Decision]) -> Self {
        Self {
            check,
            decisions,
            access: outcome.access,
            denied: outcome.summary.verdict != Verdict::Allowed,
            change: outcome.change,
            banned: outcome.ban.is_some(),
            ban_shortened: outcome.ban_shortened,
            repeated: outcome.repeated,
            held: outcome.held,
        }
    }

    /// Whether the key's value changed.
    pub fn changed(&self) -> bool {
        self.change != Change::Nothing || self.ban_changed()
    }

    /// The keyspace event. Publish it after closing the key, since a module that
    /// reacts to the event may open the key.
    pub fn event(&self) -> Option<&'static CStr> {
        self.ban_changed().then_some(effect::BAN_EVENT)
    }

    fn ban_changed(&self) -> bool {
        self.banned || self.ban_shortened
    }

    /// Counts the check of this key, and does what follows its change. `rules` gives the
    /// texts of its rules; it is called only if they are propagated.
    #[inline]
    pub fn finish(
        &self,
        call: &Call<'_>,
        key: &mut WriteKey<'_, Limiter>,
        name: Arg<'_>,
        clock_us: u64,
        rules: impl FnOnce() -> Args<'a>,
    ) {
        metrics::key_checked(self.access, self.banned, self.check.rules, self.decisions);
        if self.held {
            metrics::HOLDS_TAKEN.add(1);
        }
        if self.repeated {
            metrics::HOLDS_REPEATED.add(1);
        }
        if self.denied {
            top::denied(call, name, clock_us);
        }
        if !self.changed() {
            return;
        }
        let changed = Changed { call, name, at_us: self.check.now_us, clock_us };
        let expiry = changed.move_expiry(key);
        changed.propagate(expiry, || {
            let action = Action::of_check(&self.check, self.change)?;
            // A repeated hold is renewed, whatever the rules.
            let renews = self.change == Change::Renewed;
            Some((action, if renews { Args::default() } else { rules() }))
        });
        if self.ban_changed()
            && let Some(limiter) = key.value().map(|limiter| &*limiter)
            && let Some(ban) = limiter.access()
        {
            changed.propagate(expiry, || Some((Action::set(ban, limiter.bans()), Args::default())));
        }
        call.signal_modified(name);
    }
}

/// The error of a check that one of its keys refuses.
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
