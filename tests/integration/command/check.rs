//! `RL.CHECK`: worked examples of each algorithm at given times, and several rules on one key.

use redis::{Connection, cmd};

use crate::support::client::{START_US, allowed, ask, dump, exists, expires_ms};
use crate::support::server::{self, Builder};

const DAY_MS: i64 = 86_400_000;
const MINUTE_US: u64 = 60_000_000;

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

/// How many of these requests, each for one unit, pass at this time.
fn passed(c: &mut Connection, key: &str, at_us: u64, rules: &str, requests: usize) -> usize {
    (0..requests).filter(|_| check(c, key, at_us, rules)[0] == 0).count()
}

fn on_all_allowing_at(body: impl Fn(&mut Connection)) {
    server::on_all_with(Builder::allow_at, |server| body(&mut server.connect()));
}

#[test]
fn two_rules_share_one_log() {
    on_all_allowing_at(|c| {
        for (m, s) in [(33, 35), (33, 37), (34, 14), (34, 26), (34, 28)] {
            assert_eq!(check(c, "log", clock(12, m, s), "1/s 5/m")[0], 0);
        }
        // The oldest of the last five requests is 56 seconds old: four seconds to wait.
        assert_eq!(check(c, "log", clock(12, 34, 31), "1/s 5/m"), [1, 5, 0, 4_000, 57_000]);
        assert_eq!(check(c, "log", clock(12, 34, 40), "1/s 5/m")[0], 0);
    });
}

#[test]
fn a_sliding_window_counter_weighs_the_previous_window() {
    on_all_allowing_at(|c| {
        let minute = |hundredths: u64| clock(12, 0, 0) + hundredths * MINUTE_US / 100;
        for (key, rule, at, then) in [
            ("w1", "window:100/m", 125, 25),
            ("w2", "window:100/m", 175, 75),
            ("w3", "window:100/m,res=2", 125, 50),
        ] {
            assert_eq!(passed(c, key, minute(25), rule, 110), 100);
            assert_eq!(passed(c, key, minute(at), rule, 110), then, "{rule} at {at}");
        }
        for (key, rule, then) in [("w4", "window:100/m", 25), ("w5", "window:100/m,res=2", 0)] {
            assert_eq!(passed(c, key, minute(99), rule, 110), 100);
            assert_eq!(passed(c, key, minute(125), rule, 110), then, "{rule}");
        }
    });
}

#[test]
fn a_flood_does_not_drain_longer_limits() {
    // A hundred requests a second for an hour: the limits of a second and of a minute deny
    // nearly all of them, and the limit of an hour still admits 240.
    let server = server::one().builder().allow_at().start();
    let mut c = server.connect();
    for rules in [["10/s", "120/m", "240/h"], ["fixed:10/s", "fixed:120/m", "fixed:240/h"]] {
        let mut allowed = 0;
        for second in 0..3_600u64 {
            let mut pipe = redis::pipe();
            for hundredth in 0..100 {
                let at = clock(12, 0, 0) + second * 1_000_000 + hundredth * 10_000;
                pipe.cmd("RL.CHECK").arg(rules[0]).arg("AT").arg(at).arg(&rules);
            }
            let replies: Vec<[i64; 5]> = pipe.query(&mut c).unwrap();
            allowed += replies.iter().filter(|reply| reply[0] == 0).count();
        }
        assert_eq!(allowed, 240, "{rules:?}");
    }
}

#[test]
fn fixed_windows_allow_twice_their_limit_at_an_edge_and_logs_do_not() {
    on_all_allowing_at(|c| {
        assert_eq!(passed(c, "fixed", clock(12, 0, 59), "fixed:100/m", 110), 100);
        assert_eq!(passed(c, "fixed", clock(12, 1, 0), "fixed:100/m", 110), 100);
        assert_eq!(passed(c, "sliding", clock(12, 0, 59), "log:100/m", 110), 100);
        assert_eq!(passed(c, "sliding", clock(12, 1, 0), "log:100/m", 110), 0);
    });
}

#[test]
fn a_token_bucket_starts_full_and_refills_evenly() {
    on_all_allowing_at(|c| {
        let rule = "bucket:10/s,burst=20";
        assert_eq!(passed(c, "b", clock(9, 0, 0), rule, 30), 20);
        assert_eq!(check(c, "b", clock(9, 0, 0), rule), [1, 20, 0, 100, 2_000]);
        assert_eq!(passed(c, "b", clock(9, 0, 0) + 100_000, rule, 30), 1);
        assert_eq!(passed(c, "b", clock(9, 0, 5), rule, 30), 20);
        let all_at_once = "bucket:10/s,burst=20,refill=interval";
        assert_eq!(passed(c, "i", clock(9, 0, 0), all_at_once, 30), 20);
        assert_eq!(passed(c, "i", clock(9, 0, 0) + 999_999, all_at_once, 30), 0);
        assert_eq!(passed(c, "i", clock(9, 0, 1), all_at_once, 30), 20);
    });
}

#[test]
fn a_leaky_bucket_replies_when_each_turn_comes() {
    on_all_allowing_at(|c| {
        let rule = "leaky:10/s,queue=2";
        for (remaining, turn_ms) in [(2, 0), (1, 100), (0, 200)] {
            let reset_ms = turn_ms + 100;
            let reply = check(c, "l", clock(9, 0, 0), rule);
            assert_eq!(reply, [0, 3, remaining, turn_ms, reset_ms]);
        }
        assert_eq!(check(c, "l", clock(9, 0, 0), rule), [1, 3, 0, 100, 300]);
        // Without a queue, requests are only spaced.
        assert_eq!(check(c, "s", clock(9, 0, 0), "leaky:10/s,queue=0"), [0, 1, 0, 0, 100]);
        assert_eq!(check(c, "s", clock(9, 0, 0), "leaky:10/s,queue=0")[0], 1);
        assert_eq!(check(c, "s", clock(9, 0, 0) + 100_000, "leaky:10/s,queue=0")[0], 0);
    });
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

#[test]
fn a_small_limit_does_not_trim_what_a_large_limit_needs() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        for _ in 0..100 {
            assert_eq!(check(&mut c, "user", clock(0, 0, 0), "100/d")[0], 0);
        }
        for second in 10..15 {
            assert_eq!(check(&mut c, "user", clock(0, 0, second), "5/s")[0], 0);
        }
        assert_eq!(check(&mut c, "user", clock(0, 0, 15), "100/d")[0], 1);
        // A restart does not trim the log either.
        drop(c);
        server.restart();
        let mut c = server.connect();
        assert_eq!(check(&mut c, "user", clock(0, 0, 16), "5/s")[0], 0);
        assert_eq!(check(&mut c, "user", clock(0, 0, 17), "100/d")[0], 1);
    });
}
