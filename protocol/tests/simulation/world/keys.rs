//! The keys of the primary: read, changed, and deleted after they have expired. Each change is
//! propagated.

use ratelimit_engine::key::{Check, Expiry, Limiter, Settlement};
use ratelimit_engine::rule::{Identity, Kind, Rule};
use ratelimit_protocol::effect::Action;
use ratelimit_protocol::waiting::Cause;

use super::{MS_US, World, state};
use crate::keyspace::{Propagated, propagated};

/// Which waiting clients an effect wakes.
#[derive(Clone, Debug)]
pub(super) enum Woken {
    /// A check by the rules with this index consumed, and perhaps took a hold.
    Consumed(usize, Option<u64>),
    Returned(Vec<Identity>),
    All,
}

impl World {
    /// The value of a key for a command that may change it.
    pub(super) fn open(&mut self, key: u8) -> Limiter {
        self.expire(key);
        let mut limiter = self.primary.get(key);
        let held = limiter.states_held();
        if limiter.lapse_if_due(self.wall_us) {
            self.store(key, limiter.clone(), Action::Lapse, &[], &Woken::Returned(held));
        }
        limiter
    }

    /// The value of a key for a command that changes nothing.
    pub(super) fn seen(&self, key: u8) -> Limiter {
        match self.primary.has_expired(key, self.wall_us) {
            true => Limiter::default(),
            false => self.primary.get(key).as_of(self.wall_us).into_owned(),
        }
    }

    /// Deletes a key that has expired, which changes no decision.
    pub(super) fn expire(&mut self, key: u8) {
        if !self.primary.has_expired(key, self.wall_us) {
            return;
        }
        let (limiter, none) = (self.primary.get(key), Limiter::default());
        // A log lives as long as its consuming rules need it. A rule of a longer period may see more.
        let sees_more = |rule: &Rule| rule.kind() == Kind::Log && rule.period_us() > 1_000 * MS_US;
        for (rules, _) in self.rules.iter().filter(|(rules, _)| !rules.iter().any(sees_more)) {
            let check = Check::new(rules, 1, self.wall_us);
            let [old, new] = [&limiter, &none].map(|one| one.peek(&check, &mut Vec::new()).summary);
            assert_eq!(old, new, "what has expired decides {rules:?}");
        }
        self.primary.put(key, none, Expiry::Keep);
        self.commit(&vec![vec![key]], &Woken::All);
    }

    /// Changes a key. `change` returns whether it changed anything.
    #[expect(clippy::needless_pass_by_value, reason = "callers make it for this call")]
    pub(super) fn change(
        &mut self,
        key: u8,
        action: Action<'_>,
        woken: Woken,
        change: impl FnOnce(&mut Limiter, u64) -> bool,
    ) {
        self.expire(key);
        let mut limiter = self.primary.get(key);
        if change(&mut limiter, self.wall_us) {
            let settled = [String::from("REFUND")];
            let refunds = matches!(action, Action::Settle { settled: Settlement::Refund, .. });
            let words = if refunds { &settled[..] } else { &[] };
            self.store(key, limiter, action, words, &woken);
        }
    }

    /// Stores a key's value after an action, and propagates the action.
    pub(super) fn store(
        &mut self,
        key: u8,
        limiter: Limiter,
        action: Action<'_>,
        words: &[String],
        woken: &Woken,
    ) {
        let expiry = self.primary.expiry(key, &limiter, self.wall_us);
        self.primary.put(key, limiter, expiry);
        self.commit(&propagated(key, self.wall_us, expiry, action, words), woken);
    }

    /// Propagates an effect on a key, and wakes the clients that wait for the key.
    pub(super) fn commit(&mut self, effect: &Propagated, woken: &Woken) {
        self.told.apply(effect);
        self.states.push(state(&self.told));
        self.disk.append(effect);
        if self.syncs_always {
            self.disk.sync(self.last());
        }
        self.replica.send(effect);
        let mut id = String::new();
        let cause = match woken {
            Woken::Consumed(of, hold) => {
                let hold = hold.map(|hold| {
                    id = hold.to_string();
                    id.as_bytes()
                });
                Cause::Consumed { rules: &self.rules[*of].0, hold }
            }
            Woken::Returned(states) => Cause::Returned(states),
            Woken::All => Cause::Changed,
        };
        self.line.queues.key_changed(&effect[0], cause);
    }
}
