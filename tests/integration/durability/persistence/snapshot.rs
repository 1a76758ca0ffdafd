//! Whether two servers, or one before and after, know the same of every key.

use std::collections::BTreeMap;

use redis::{Connection, Value, cmd, pipe};

use super::fill::SCENES;
use crate::support::client::expires_ms;
use crate::support::server::Flavor;

/// All that must survive of a key.
pub struct Kept {
    digest: String,
    /// Unix milliseconds; negative without an expiry.
    pub expires_ms: i64,
    /// `FULL` replies.
    decisions: Vec<Value>,
    /// The last checks.
    log: Value,
}

/// Keys by their names.
pub type Keys = BTreeMap<String, Kept>;

/// Every key of the database, and what is decided on it at these times.
pub fn look(c: &mut Connection, flavor: Flavor, times_us: &[u64]) -> Keys {
    let keys: Vec<String> = cmd("KEYS").arg("*").query(c).unwrap();
    let mut digests = cmd("DEBUG");
    let digests: Vec<String> = digests.arg("DIGEST-VALUE").arg(&keys).query(c).unwrap();
    let mut kept = BTreeMap::new();
    for (key, digest) in keys.into_iter().zip(digests) {
        let scene = key.split(':').next().unwrap();
        let rules = SCENES.iter().find(|(name, _)| *name == scene).map_or(&["5/d"][..], |s| s.1);
        let mut peeks = pipe();
        for at_us in times_us {
            peeks.cmd("RL.PEEK").arg(&key).arg("AT").arg(at_us).arg("FULL").arg(rules);
        }
        let decisions = peeks.query(c).unwrap();
        let expires_ms = expires_ms(c, flavor, &key);
        let log = cmd("RL.LOG").arg(&key).arg("COUNT").arg(1_000).query(c).unwrap();
        kept.insert(key, Kept { digest, expires_ms, decisions, log });
    }
    kept
}

pub fn assert_same(now: &Keys, before: &Keys, what: &str) {
    assert!(before.len() > 2 * SCENES.len(), "only {} keys", before.len());
    let names = |kept: &Keys| kept.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(now), names(before), "{what}: the keys");
    for (key, kept) in now {
        let before = &before[key];
        assert_eq!(kept.expires_ms, before.expires_ms, "{what}: when {key} expires");
        for (decision, before) in kept.decisions.iter().zip(&before.decisions) {
            assert_eq!(decision, before, "{what}: a decision on {key}");
        }
        assert_eq!(kept.log, before.log, "{what}: the last checks of {key}");
        assert_eq!(kept.digest, before.digest, "{what}: the value of {key}");
    }
}
