//! The keys of a server, changed by effects alone, as `RL.APPLY` and `RL.LOAD` change them.

use std::collections::BTreeMap;

use ratelimit_core::effect::{Action, Effect, Head, read};
use ratelimit_core::limit::{Expiry, Limiter, decode, encode};

/// The arguments of `RL.APPLY`, beginning with the key.
pub type Propagated = Vec<Vec<u8>>;

/// All keys in their saved form.
pub type Snapshot = Vec<(u8, Vec<u8>)>;

#[derive(Clone, Debug, Default)]
pub struct Keyspace {
    keys: BTreeMap<u8, Limiter>,
}

/// What a primary propagates of an action on a key, with the texts of its rules.
pub fn propagated(key: u8, at_us: u64, action: Action<'_>, rules: &[String]) -> Propagated {
    let head = Head::of(&Effect { at_us, expiry: Expiry::Keep, action });
    let texts = action.texts().into_iter().flatten().map(<[u8]>::to_vec);
    let rules = rules.iter().map(|rule| rule.clone().into_bytes());
    [vec![key], head.text().to_vec()].into_iter().chain(texts).chain(rules).collect()
}

impl Keyspace {
    pub fn get(&self, key: u8) -> Limiter {
        self.keys.get(&key).cloned().unwrap_or_default()
    }

    /// Stores a value; an empty one deletes the key.
    pub fn put(&mut self, key: u8, limiter: Limiter) {
        if limiter.is_empty() {
            self.keys.remove(&key);
        } else {
            self.keys.insert(key, limiter);
        }
    }

    pub fn apply(&mut self, effect: &Propagated) {
        let (mut rules, mut costs) = (Vec::new(), Vec::new());
        let args = effect[1..].iter().map(Vec::as_slice);
        let read = read(args, &mut rules, &mut costs).expect("what a primary wrote");
        let mut limiter = self.get(effect[0][0]);
        read.perform(&rules, &costs, &mut limiter);
        self.put(effect[0][0], limiter);
    }

    pub fn snapshot(&self) -> Snapshot {
        self.keys.iter().map(|(&key, limiter)| (key, encode(limiter))).collect()
    }

    pub fn of(snapshot: &Snapshot) -> Self {
        let load = |(key, saved): &(u8, Vec<u8>)| (*key, decode(saved).expect("what was saved"));
        Self { keys: snapshot.iter().map(load).collect() }
    }
}
