//! The keys of a server with their expiries. Only effects change them, as `RL.APPLY`, `RL.LOAD` and
//! `DEL` do. No key expires by itself: a primary deletes it, and propagates the deletion.

use std::collections::BTreeMap;

use ratelimit_engine::key::{Expiry, Limiter, decode, encode};
use ratelimit_protocol::effect::{Action, Effect, Head, read};

/// The arguments of `RL.APPLY`, the key first, or the only argument of `DEL`, the key.
pub type Propagated = Vec<Vec<u8>>;

/// All keys in their saved form.
pub type Snapshot = Vec<(u8, Option<u64>, Vec<u8>)>;

#[derive(Clone, Debug, Default)]
pub struct Keyspace {
    /// With their expiries, in Unix milliseconds.
    keys: BTreeMap<u8, (Limiter, Option<u64>)>,
}

/// What a primary propagates of an action on a key, with the texts of its rules.
pub fn propagated(
    key: u8,
    at_us: u64,
    expiry: Expiry,
    action: Action<'_>,
    rules: &[String],
) -> Propagated {
    let head = Head::of(&Effect { at_us, expiry, action });
    let texts = action.texts().into_iter().flatten().map(<[u8]>::to_vec);
    let rules = rules.iter().map(|rule| rule.clone().into_bytes());
    [vec![key], head.text().to_vec()].into_iter().chain(texts).chain(rules).collect()
}

impl Keyspace {
    pub fn get(&self, key: u8) -> Limiter {
        self.keys.get(&key).map(|(limiter, _)| limiter.clone()).unwrap_or_default()
    }

    fn expires_ms(&self, key: u8) -> Option<u64> {
        self.keys.get(&key)?.1
    }

    pub fn has_expired(&self, key: u8, now_us: u64) -> bool {
        self.expires_ms(key).is_some_and(|at_ms| now_us / 1_000 > at_ms)
    }

    /// What happens to a key's expiry if a change results in this value.
    pub fn expiry(&self, key: u8, limiter: &Limiter, now_us: u64) -> Expiry {
        match limiter.is_empty() {
            true => Expiry::Keep,
            false => limiter.deadline().expiry(now_us, now_us, self.expires_ms(key)),
        }
    }

    /// Stores a value; an empty one deletes the key.
    pub fn put(&mut self, key: u8, limiter: Limiter, expiry: Expiry) {
        let expires_ms = match expiry {
            Expiry::Keep => self.expires_ms(key),
            Expiry::At(ms) => Some(ms),
            Expiry::Never => None,
        };
        if limiter.is_empty() {
            self.keys.remove(&key);
        } else {
            self.keys.insert(key, (limiter, expires_ms));
        }
    }

    pub fn apply(&mut self, effect: &Propagated) {
        if let [key] = &effect[..] {
            self.keys.remove(&key[0]);
            return;
        }
        let (mut rules, mut costs) = (Vec::new(), Vec::new());
        let args = effect[1..].iter().map(Vec::as_slice);
        let read = read(args, &mut rules, &mut costs).expect("what a primary wrote");
        let mut limiter = self.get(effect[0][0]);
        read.perform(&rules, &costs, &mut limiter);
        self.put(effect[0][0], limiter, read.expiry);
    }

    pub fn snapshot(&self) -> Snapshot {
        let saved = |(&key, (limiter, expires_ms)): (&u8, &(Limiter, Option<u64>))| {
            (key, *expires_ms, encode(limiter))
        };
        self.keys.iter().map(saved).collect()
    }

    pub fn of(snapshot: &Snapshot) -> Self {
        let load = |(key, expires_ms, saved): &(u8, Option<u64>, Vec<u8>)| {
            (*key, (decode(saved).expect("what was saved"), *expires_ms))
        };
        Self { keys: snapshot.iter().map(load).collect() }
    }
}
