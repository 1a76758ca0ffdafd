//! The consequences of a change of a key: its expiry moves if it must, an empty key is deleted,
//! replicas and the append-only file get the effect, and clients that watch or cache the key are
//! notified.

use crate::server::{Arg, Args, Call, WriteKey};
use ratelimit_core::effect::{Action, Effect, Head};
use ratelimit_core::limit::{Expiry, Limiter};
use std::ffi::CStr;

/// The command that carries an effect.
const APPLY: &CStr = c"RL.APPLY";

/// A change of a key, decided at `at_us` when the server's clock showed `clock_us`.
#[derive(Clone, Copy, Debug)]
pub struct Changed<'c> {
    pub call: &'c Call<'c>,
    pub name: Arg<'c>,
    pub at_us: u64,
    pub clock_us: u64,
}

impl Changed<'_> {
    /// Applies all consequences of one action. `effect` returns the action and the texts of its
    /// rules or costs; it is only called if they are propagated.
    pub fn finish<'e>(
        self,
        key: &mut WriteKey<'_, Limiter>,
        effect: impl FnOnce() -> (Action<'e>, Args<'e>),
    ) {
        let expiry = self.move_expiry(key);
        self.propagate(expiry, || Some(effect()));
        self.call.signal_modified(self.name);
    }

    /// Ends the key's lapsed holds before a check, if that changes what rules read. This propagates
    /// a separate effect, because the check itself may change nothing. The server likewise
    /// propagates the deletion of a key that it finds expired.
    #[inline(always)]
    pub fn lapse(self, key: &mut WriteKey<'_, Limiter>) {
        if key.value().is_some_and(|limiter| limiter.lapse_if_due(self.at_us)) {
            self.finish(key, || (Action::Lapse, Args::default()));
        }
    }

    /// Deletes the key if it is empty; otherwise moves its expiry if needed.
    pub fn move_expiry(self, key: &mut WriteKey<'_, Limiter>) -> Expiry {
        let Some(limiter) = key.value() else { return Expiry::Keep };
        if limiter.is_empty() {
            key.delete();
            return Expiry::Keep;
        }
        let deadline = limiter.deadline();
        let expiry = deadline.expiry(self.at_us, self.clock_us, key.expires_at_ms());
        set_expiry(key, expiry);
        expiry
    }

    /// Sends an effect, if there is one, to the replicas and the append-only file.
    #[inline]
    pub fn propagate<'e>(
        self,
        expiry: Expiry,
        effect: impl FnOnce() -> Option<(Action<'e>, Args<'e>)>,
    ) {
        let Self { call, name, at_us, .. } = self;
        call.propagate(|| {
            let Some((action, rules)) = effect() else { return };
            let head = Head::of(&Effect { at_us, expiry, action });
            call.replicate(APPLY, name, head.text(), action.texts(), rules);
        });
    }
}

/// Closes the key, then publishes the keyspace event, because a module that reacts to the event may
/// open the key.
pub fn close(
    call: &Call<'_>,
    key: WriteKey<'_, Limiter>,
    name: Arg<'_>,
    event: Option<&'static CStr>,
) {
    drop(key);
    if let Some(event) = event {
        call.notify(event, name);
    }
}

/// Moves the key's expiry as decided.
pub fn set_expiry(key: &mut WriteKey<'_, Limiter>, expiry: Expiry) {
    match expiry {
        Expiry::Keep => {}
        Expiry::At(at_ms) => key.expire_at_ms(Some(at_ms)),
        Expiry::Never => key.expire_at_ms(None),
    }
}
