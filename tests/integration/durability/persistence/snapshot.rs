//! All that a server holds, to compare it with another server, or with this one later.

use std::collections::BTreeMap;

use redis::{Connection, cmd, pipe};

use super::fill::SCENARIOS;
use crate::support::client::expires_ms;
use crate::support::server::Flavor;

/// All that must survive of a key.
pub struct Value {
    digest: String,
    /// When the key expires: Unix milliseconds, negative without an expiry.
    pub expires_ms: i64,
    /// `FULL` replies at several times.
    decisions: Vec<redis::Value>,
    /// The last checks, by `RL.LOG`.
    log: redis::Value,
}

/// The values of all keys, by name.
pub type Snapshot = BTreeMap<String, Value>;

/// Every key of the database, and what checks would decide on it at these times.
pub fn snapshot(c: &mut Connection, flavor: Flavor, times_us: &[u64]) -> Snapshot {
    let keys: Vec<String> = cmd("KEYS").arg("*").query(c).unwrap();
    let mut digests = cmd("DEBUG");
    let digests: Vec<String> = digests.arg("DIGEST-VALUE").arg(&keys).query(c).unwrap();
    let mut snapshot = BTreeMap::new();
    for (key, digest) in keys.into_iter().zip(digests) {
        let scenario = key.split(':').next().unwrap();
        let rules =
            SCENARIOS.iter().find(|(name, _)| *name == scenario).map_or(&["5/d"][..], |s| s.1);
        let mut peeks = pipe();
        for at_us in times_us {
            peeks.cmd("RL.PEEK").arg(&key).arg("AT").arg(at_us).arg("FULL").arg(rules);
        }
        let decisions = peeks.query(c).unwrap();
        let expires_ms = expires_ms(c, flavor, &key);
        let log = cmd("RL.LOG").arg(&key).arg("COUNT").arg(1_000).query(c).unwrap();
        snapshot.insert(key, Value { digest, expires_ms, decisions, log });
    }
    snapshot
}

pub fn assert_same(now: &Snapshot, before: &Snapshot, what: &str) {
    assert!(before.len() > 2 * SCENARIOS.len(), "only {} keys", before.len());
    let names = |snapshot: &Snapshot| snapshot.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(now), names(before), "{what}: the keys");
    for (key, value) in now {
        let before = &before[key];
        assert_eq!(value.expires_ms, before.expires_ms, "{what}: when {key} expires");
        for (decision, before) in value.decisions.iter().zip(&before.decisions) {
            assert_eq!(decision, before, "{what}: a decision on {key}");
        }
        assert_eq!(value.log, before.log, "{what}: the last checks of {key}");
        assert_eq!(value.digest, before.digest, "{what}: the value of {key}");
    }
}
