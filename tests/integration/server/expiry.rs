//! When keys expire.

use std::ops::RangeInclusive;

use redis::{Connection, Value, cmd};

use crate::support::client::{allowed, ask, exists, expires_ms, now_us};
use crate::support::server::{self, Builder, eventually};

fn check(c: &mut Connection, key: &str, cost: u32, rules: &[&str]) -> [i64; 5] {
    cmd("RL.CHECK").arg(key).arg("COST").arg(cost).arg(rules).query(c).unwrap()
}

#[test]
fn a_key_expires_once_no_rule_needs_it() {
    server::on_all(|server| {
        let mut c = server.connect();
        for (rule, needs_ms) in [
            ("100/m", 60_000),
            ("bucket:60/m,burst=10", 1_000),
            ("leaky:60/m", 1_000),
            ("fixed:100/10s,align=first", 10_000),
            ("bucket:9/10s,refill=interval", 10_000),
        ] {
            let earliest = now_us(&mut c) / 1_000 + needs_ms;
            check(&mut c, rule, 1, &[rule]);
            let latest = now_us(&mut c) / 1_000 + 1 + needs_ms;
            let expires = expires_ms(&mut c, server.flavor(), rule) as u64;
            // Never early, and late by at most an eighth of the window or a second.
            let window_ms = if rule.contains("10s") { 10_000 } else { 60_000 };
            let latest = latest + (window_ms / 8).max(1_000);
            assert!((earliest..=latest).contains(&expires), "{rule}: {expires}, not {earliest}");
        }
        check(&mut c, "short", 1, &["5/50ms"]);
        eventually("a short key to expire", || !exists(&mut c, "short"));
    });
}

#[test]
fn an_expiry_moves_only_when_it_must() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        // Ahead of the server's clock, so that only the given times matter.
        let start_us = now_us(&mut c) + 60_000_000;
        let mut expiry_after_check = |later_s: u64| {
            let mut check = cmd("RL.CHECK");
            check.arg("k").arg("AT").arg(start_us + later_s * 1_000_000).arg("100/h");
            let [verdict, ..]: [i64; 5] = check.query(&mut c).unwrap();
            assert_eq!(verdict, 0);
            expires_ms(&mut c, server.flavor(), "k")
        };
        let first_ms = expiry_after_check(0);
        for later_s in (15..=300).step_by(15) {
            assert_eq!(
                expiry_after_check(later_s),
                first_ms,
                "the expiry moved within the tolerance"
            );
        }
        // A request half an hour later keeps the key half an hour longer.
        assert_eq!(expiry_after_check(1_800) - first_ms, 1_800_000, "the expiry did not move");
    });
}

#[test]
fn an_expiry_set_by_a_client_stays_until_a_check_consumes() {
    // A key that is needed for an hour expires after an hour to an hour and an eighth.
    const DUE_MS: RangeInclusive<i64> = 3_590_000..=4_050_000;
    server::on_all(|server| {
        let mut c = server.connect();
        for (by_client, left) in [
            ("PEXPIRE k 60000", 1..=60_000),
            ("PEXPIRE k 90000000", 80_000_000..=90_000_000),
            ("PERSIST k", -1..=-1),
        ] {
            let () = ask(&mut c, "DEL k");
            assert!(allowed(&mut c, "RL.CHECK k COST 3 5/h"));
            assert!(DUE_MS.contains(&ask::<i64>(&mut c, "PTTL k")));
            let () = ask(&mut c, by_client);
            for idle in ["RL.PEEK k 5/h", "RL.CHECK k COST 3 5/h", "RL.CHECK k COST 0 5/h"] {
                let _: Value = ask(&mut c, idle);
                let ttl = ask::<i64>(&mut c, "PTTL k");
                assert!(left.contains(&ttl), "{by_client}, {idle}: {ttl} ms");
            }
            assert!(allowed(&mut c, "RL.CHECK k 5/h"));
            let ttl = ask::<i64>(&mut c, "PTTL k");
            assert!(DUE_MS.contains(&ttl), "{by_client}, then a check: {ttl} ms");
        }
    });
}

/// Blocks and pauses use the server's clock, by which the states of a replay ended long ago.
#[test]
fn a_command_without_at_keeps_the_states_of_a_replay() {
    const AT_US: u64 = 1_500_000_000_000_000;
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        for lines in [
            &["RL.BLOCK k PX 900", "RL.UNBLOCK k"][..],
            &["RL.EXEMPT k PX 900", "RL.UNEXEMPT k"],
            &["RL.PAUSE k PX 900", "RL.RESUME k"],
            &[
                "RL.EXEMPT k",
                "RL.BLOCK k EX 9999999",
                "RL.PAUSE k EX 9",
                "RL.UNBLOCK k",
                "RL.RESUME k",
            ],
        ] {
            let () = ask(&mut c, "DEL k");
            assert!(allowed(&mut c, &format!("RL.CHECK k AT {AT_US} COST 3 5/h")));
            let due_ms = now_us(&mut c) as i64 / 1_000 + 3_590_000;
            for line in lines {
                let _: Value = ask(&mut c, line);
                let expires = expires_ms(&mut c, server.flavor(), "k");
                assert!(expires == -1 || expires >= due_ms, "{line}: {expires}, not {due_ms}");
            }
            let ttl = ask::<i64>(&mut c, "PTTL k");
            assert!((3_500_000..=4_050_000).contains(&ttl), "{lines:?}: {ttl} ms");
            let peek = format!("RL.PEEK k AT {} 5/h", AT_US + 1_800_000_000);
            assert_eq!(ask::<[i64; 5]>(&mut c, &peek), [0, 5, 2, 0, 1_800_000], "{lines:?}");
        }
    });
}
