//! `RL.CHECK`: denied checks, and rules that share a log.

use redis::{Connection, cmd};

use crate::support::client::{START_US, allowed, ask, dump, exists, expires_ms};
use crate::support::server::{self, Builder};

const DAY_MS: i64 = 86_400_000;
/// A time on the day that begins at `START_US`.
const fn clock(hours: u64, minutes: u64, seconds: u64) -> u64 {
    START_US + (hours * 3_600 + minutes * 60 + seconds) * 1_000_000
}

/// The five integers that `RL.CHECK` replies at this time.
fn check(c: &mut Connection, key: &str, at_us: u64, rules: &str) -> [i64; 5] {
    cmd("RL.CHECK")
        .arg(key)
        .arg("AT")
        .arg(at_us)
        .arg(rules.split(' ').collect::<Vec<_>>())
        .query(c)
        .unwrap()
}

#[test]
fn a_denied_check_creates_and_changes_nothing() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(ask::<[i64; 5]>(&mut c, "RL.CHECK none 0/m"), [1, 0, 0, -1, 0]);
        assert_eq!(ask::<[i64; 5]>(&mut c, "RL.CHECK none COST 6 5/m")[..4], [1, 5, 5, -1]);
        assert!(allowed(&mut c, "RL.CHECK none COST 0 5/m"));
        assert!(!exists(&mut c, "none"));
        assert!(allowed(&mut c, "RL.CHECK k COST 5 5/m"));
        let before = dump(&mut c, "k");
        assert!(!allowed(&mut c, "RL.CHECK k 5/m"));
        assert_eq!(dump(&mut c, "k"), before);
    });
}

#[test]
fn a_short_rule_does_not_erase_what_a_longer_rule_needs() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        let flavor = server.flavor();
        for _ in 0..5 {
            assert_eq!(check(&mut c, "user", clock(0, 0, 0), "5/d")[0], 0);
        }
        assert_eq!(check(&mut c, "user", clock(0, 0, 1), "5/d")[0], 1);
        let expires = expires_ms(&mut c, flavor, "user");
        assert_eq!(check(&mut c, "user", clock(0, 0, 2), "100/s")[..3], [0, 100, 99]);
        let reply = check(&mut c, "user", clock(0, 0, 3), "5/d");
        assert_eq!(reply, [1, 5, 0, DAY_MS - 3_000, DAY_MS - 3_000]);
        assert!(expires_ms(&mut c, flavor, "user") >= expires, "the key expires earlier");
    });
}
