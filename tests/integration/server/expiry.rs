//! The data type as a native one: saved, copied, dumped, measured, expired.

use redis::{Connection, RedisResult, Value, cmd};

use crate::support::client::{expires_ms, now_us};
use crate::support::server::{self, Server};

/// One rule of each kind, options and names among them.
const RULES: [&str; 9] = [
    "100/m",
    "window:100/m",
    "window:100/h,res=6",
    "fixed:100/m,keep=3",
    "fixed:100/month",
    "bucket:100/m,burst=7",
    "bucket:100/m,refill=interval,name=lump",
    "leaky:100/m",
    "log:50/s,name=fast,count=all",
];

fn check(c: &mut Connection, key: &str, cost: u32, rules: &[&str]) -> [i64; 5] {
    cmd("RL.CHECK").arg(key).arg("COST").arg(cost).arg(rules).query(c).unwrap()
}

fn dump(c: &mut Connection, key: &str) -> Vec<u8> {
    cmd("DUMP").arg(key).query(c).unwrap()
}

fn full(c: &mut Connection, key: &str, at_us: u64) -> Value {
    cmd("RL.PEEK").arg(key).arg("AT").arg(at_us).arg("FULL").arg(&RULES).query(c).unwrap()
}

/// A key with every kind of state in it, and a moment to look at it.
fn fill(c: &mut Connection, key: &str) -> u64 {
    for cost in [1, 2, 1] {
        assert_eq!(check(c, key, cost, &RULES)[0], 0);
    }
    now_us(c)
}

fn with_replay(body: impl Fn(&mut Server)) {
    server::on_all_with(|b| b.module_args(&["allow-at", "yes"]), body);
}

#[test]
fn a_restart_loses_nothing() {
    with_replay(|server| {
        let mut c = server.connect();
        let at = fill(&mut c, "k");
        let flavor = server.flavor();
        let (before, state, expires) =
            (dump(&mut c, "k"), full(&mut c, "k", at), expires_ms(&mut c, flavor, "k"));
        drop(c);
        server.restart();
        let mut c = server.connect();
        assert_eq!(dump(&mut c, "k"), before);
        assert_eq!(full(&mut c, "k", at), state);
        assert_eq!(expires_ms(&mut c, flavor, "k"), expires);
    });
}

#[test]
fn a_key_dumped_restored_copied_or_renamed_decides_alike() {
    with_replay(|server| {
        let mut c = server.connect();
        let at = fill(&mut c, "k");
        let payload = dump(&mut c, "k");
        let () = cmd("RESTORE").arg("restored").arg(0).arg(&payload).query(&mut c).unwrap();
        let copied: i64 = cmd("COPY").arg("k").arg("copy").query(&mut c).unwrap();
        assert_eq!(copied, 1);
        let state = full(&mut c, "k", at);
        for twin in ["restored", "copy"] {
            assert_eq!(dump(&mut c, twin), payload, "{twin}");
            assert_eq!(full(&mut c, twin, at), state, "{twin}");
        }
        // A copy is a value of its own.
        check(&mut c, "copy", 1, &RULES);
        assert_eq!(full(&mut c, "k", at), state);
        let () = cmd("RENAME").arg("k").arg("renamed").query(&mut c).unwrap();
        assert_eq!(full(&mut c, "renamed", at), state);
    });
}

#[test]
fn the_type_has_a_name_and_can_be_scanned_for() {
    server::on_all(|server| {
        let mut c = server.connect();
        let () = cmd("SET").arg("other").arg("x").query(&mut c).unwrap();
        check(&mut c, "k", 1, &["5/m"]);
        let name: String = cmd("TYPE").arg("k").query(&mut c).unwrap();
        assert_eq!(name, "ratelimit");
        let (_, keys): (u64, Vec<String>) = cmd("SCAN")
            .arg(0)
            .arg("COUNT")
            .arg(100)
            .arg("TYPE")
            .arg("ratelimit")
            .query(&mut c)
            .unwrap();
        assert_eq!(keys, ["k"]);
    });
}

#[test]
fn a_key_expires_when_nothing_matters_any_more() {
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
            // Late by an eighth of the window or a second at most, early never.
            let window_ms = if rule.contains("10s") { 10_000 } else { 60_000 };
            let latest = latest + (window_ms / 8).max(1_000);
            assert!((earliest..=latest).contains(&expires), "{rule}: {expires}, not {earliest}");
        }
        check(&mut c, "short", 1, &["5/50ms"]);
        server::eventually("a short key to expire", || {
            let exists: i64 = cmd("EXISTS").arg("short").query(&mut c).unwrap();
            exists == 0
        });
    });
}

#[test]
fn an_expiry_moves_only_when_it_must() {
    with_replay(|server| {
        let mut c = server.connect();
        // Ahead of the server's clock, so that the times given alone decide.
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
            assert_eq!(expiry_after_check(later_s), first_ms, "moved within the tolerance");
        }
        // Half an hour on, what is consumed matters half an hour longer.
        assert_eq!(expiry_after_check(1_800) - first_ms, 1_800_000, "did not move with the need");
    });
}

#[test]
fn a_denied_check_creates_and_changes_nothing() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(check(&mut c, "none", 1, &["0/m"]), [1, 0, 0, -1, 0]);
        assert_eq!(check(&mut c, "none", 6, &["5/m"])[..4], [1, 5, 5, -1]);
        assert_eq!(check(&mut c, "none", 0, &["5/m"])[0], 0);
        let exists: i64 = cmd("EXISTS").arg("none").query(&mut c).unwrap();
        assert_eq!(exists, 0);
        check(&mut c, "k", 5, &["5/m"]);
        let before = dump(&mut c, "k");
        assert_eq!(check(&mut c, "k", 1, &["5/m"])[0], 1);
        assert_eq!(dump(&mut c, "k"), before);
    });
}

#[test]
fn refund_and_reset_give_back_and_delete_what_is_empty() {
    const FIXED: &str = "fixed:9/d,align=first";
    with_replay(|server| {
        let mut c = server.connect();
        let refund = |c: &mut Connection, units: u32, rules: &[&str]| -> i64 {
            cmd("RL.REFUND").arg("k").arg(units).arg(rules).query(c).unwrap()
        };
        assert_eq!(refund(&mut c, 1, &[]), 0);
        check(&mut c, "k", 3, &["5/m", FIXED]);
        assert_eq!(refund(&mut c, 1, &[FIXED]), 1);
        let left = |c: &mut Connection, rule: &str| -> i64 {
            let reply: [i64; 5] = cmd("RL.PEEK").arg("k").arg(rule).query(c).unwrap();
            reply[2]
        };
        assert_eq!((left(&mut c, "5/m"), left(&mut c, FIXED)), (2, 7));
        assert_eq!(refund(&mut c, 10, &[]), 3);
        let exists: i64 = cmd("EXISTS").arg("k").query(&mut c).unwrap();
        assert_eq!(exists, 0, "a key with nothing in it is gone");

        check(&mut c, "k", 3, &["5/m"]);
        let reset = |c: &mut Connection| -> i64 { cmd("RL.RESET").arg("k").query(c).unwrap() };
        assert_eq!((reset(&mut c), reset(&mut c)), (1, 0));
        assert_eq!(check(&mut c, "k", 5, &["5/m"])[0], 0);
    });
}

#[test]
fn memory_is_what_was_promised() {
    server::on_all(|server| {
        let mut c = server.connect();
        let usage = |c: &mut Connection, key: &str| -> i64 {
            cmd("MEMORY").arg("USAGE").arg(key).query(c).unwrap()
        };
        // A key of the same name with a TTL and a value of a few bytes takes
        // no less than an empty module value does.
        let () = cmd("SET").arg("string").arg("x").arg("EX").arg(60).query(&mut c).unwrap();
        let floor = usage(&mut c, "string");
        for (rule, promised) in [
            ("5/m", 64 + 16),
            ("window:5/m", 64 + 16),
            ("fixed:5/m", 48),
            ("bucket:5/m", 48),
            ("bucket:5/m,refill=interval", 48),
            ("leaky:5/m", 48),
            ("bucket:5/m,name=a-name-of-thirty-two-characters", 96),
            ("bucket:5/m,name=throttle", 48),
        ] {
            // An allocator may give a freed block that is larger: the least of several keys counts.
            let keys: Vec<String> = (10..30).map(|n| format!("key_{n}")).collect();
            let over = keys.iter().map(|key| {
                check(&mut c, key, 1, &[rule]);
                usage(&mut c, key) - floor
            });
            let over = over.min().expect("keys");
            let () = cmd("DEL").arg(&keys).query(&mut c).unwrap();
            // Some allocators keep 8 bytes of their own with each of up to three blocks.
            assert!((1..=promised + 24).contains(&over), "{rule} takes {over} bytes");
        }
        // A sliding log: 4 bytes an entry, and a quarter more for growth.
        let mut pipe = redis::pipe();
        for _ in 0..10_000 {
            pipe.cmd("RL.CHECK").arg("log").arg("20000/h").ignore();
        }
        let () = pipe.query(&mut c).unwrap();
        let per_entry = (usage(&mut c, "log") - floor) as f64 / 10_000.0;
        assert!((4.0..=5.1).contains(&per_entry), "{per_entry} bytes an entry");
    });
}

/// A log whose oldest entries are gone begins in the middle of its blocks.
#[test]
fn the_memory_of_a_log_that_moved_on_is_measured_from_its_start() {
    server::on_all(|server| {
        let mut c = server.connect();
        for cost in [1, 2] {
            let mut pipe = redis::pipe();
            for _ in 0..300 {
                // The charged denials go round and round; the newest 50 units stay.
                pipe.cmd("RL.CHECK").arg("k").arg("COST").arg(cost).arg("50/h,count=all").ignore();
            }
            let () = pipe.query(&mut c).unwrap();
            let bytes: i64 = cmd("MEMORY").arg("USAGE").arg("k").query(&mut c).unwrap();
            assert!((100..4_000).contains(&bytes), "{bytes}");
        }
    });
}

#[test]
fn another_type_is_refused_and_left_alone() {
    server::on_all(|server| {
        let mut c = server.connect();
        let () = cmd("SET").arg("s").arg("x").query(&mut c).unwrap();
        for command in ["RL.CHECK", "RL.PEEK", "RL.REFUND", "RL.RESET"] {
            let mut cmd = cmd(command);
            cmd.arg("s");
            if command == "RL.REFUND" {
                cmd.arg(1);
            } else if command != "RL.RESET" {
                cmd.arg("5/m");
            }
            let reply: RedisResult<Value> = cmd.query(&mut c);
            let error = reply.expect_err(command).to_string();
            assert!(error.contains("WRONGTYPE") || error.contains("wrong kind"), "{error}");
        }
        let value: String = cmd("GET").arg("s").query(&mut c).unwrap();
        assert_eq!(value, "x");
    });
}
