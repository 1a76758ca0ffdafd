//! What follows the decision of `RL.CHECK`, `RL.MCHECK` and `RL.THROTTLE`, key by
//! key: metrics, `RL.TOP`, expiry, effects.

use super::settle::Changed;
use super::top;
use crate::effect::{self, Action};
use crate::limit::{Access, Change, Check, Decision, Limiter, Outcome, TooManyStates, Verdict};
use crate::metrics;
use crate::rule::Excerpt;
use crate::server::{Arg, Args, Call, CommandError, WriteKey};
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
}

impl<'a> Checked<'a> {
    /// Takes over the outcome of a check of one key.
    pub fn new(check: Check<'a>, outcome: &Outcome, decisions: &'a [Decision]) -> Self {
        Self {
            check,
            decisions,
            access: outcome.access,
            denied: outcome.summary.verdict != Verdict::Allowed,
            change: outcome.change,
            banned: outcome.ban.is_some(),
            ban_shortened: outcome.ban_shortened,
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

    /// Counts the check of this key, and settles what it changed. `rules` gives the
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
        if self.denied {
            top::denied(call, name, clock_us);
        }
        if !self.changed() {
            return;
        }
        let changed = Changed { call, name, at_us: self.check.now_us, clock_us };
        let expiry = changed.move_expiry(key);
        if let Some(action) = Action::of_check(&self.check, self.change) {
            changed.propagate(expiry, || (action, rules()));
        }
        if self.ban_changed()
            && let Some(ban) = key.value().and_then(|limiter| limiter.access())
        {
            changed.propagate(expiry, || (Action::set(ban), Args::default()));
        }
        call.signal_modified(name);
    }
}

/// The error of a check after which one of its keys would hold too many states.
#[cold]
pub fn too_many_states(keys: Args<'_>, too_many: TooManyStates) -> CommandError {
    let key = keys.get(too_many.key).map_or(&[][..], Arg::bytes);
    CommandError::Because(format!("key {} would hold {too_many}", Excerpt::new(key)).into())
}
