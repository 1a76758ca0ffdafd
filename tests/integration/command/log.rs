//! `META` and `RL.LOG`: the last checks of a key.

use redis::{Connection, Value, cmd};

use crate::support::client::{ask, dump, exists, replica_of, replicated, verdict};
use crate::support::server;

/// A row of `RL.LOG`: Unix milliseconds, cost, verdict, `META`.
type Entry = (u64, u64, i64, Option<String>);

fn log(c: &mut Connection, options: &str) -> Vec<Entry> {
    ask(c, format!("RL.LOG {options}").trim_end())
}

/// The rows of `RL.LOG` without their times.
fn log_untimed(c: &mut Connection, options: &str) -> Vec<(u64, i64, Option<String>)> {
    log(c, options).into_iter().map(|(_, cost, verdict, meta)| (cost, verdict, meta)).collect()
}

fn some(text: &str) -> Option<String> {
    Some(text.to_string())
}

#[test]
fn the_log_shows_meta_cost_and_verdict_of_each_check() {
    server::on_all(|server| {
        let mut c = server.connect();
        for user in ["ann", "bob", "bob"] {
            assert_eq!(verdict(&mut c, &format!("RL.CHECK ip META user:{user} 3/h")), 0);
        }
        assert_eq!(verdict(&mut c, "RL.CHECK ip META user:ann 3/h"), 1);
        assert_eq!(verdict(&mut c, "RL.CHECK ip COST 7 META user:eve bucket:5/h"), 1);
        let _: String = ask(&mut c, "RL.BLOCK ip EX 100");
        assert_eq!(verdict(&mut c, "RL.CHECK ip META user:bob 3/h"), 2);
        let seen = log_untimed(&mut c, "ip");
        assert_eq!(
            seen,
            [
                (1, 2, some("user:bob")),
                (7, 1, some("user:eve")),
                (1, 1, some("user:ann")),
                (1, 0, some("user:bob")),
                (1, 0, some("user:bob")),
                (1, 0, some("user:ann")),
            ]
        );
        assert_eq!(log_untimed(&mut c, "ip COUNT 2"), seen[..2]);
        let (seconds, _): (u64, u64) = ask(&mut c, "TIME");
        assert!(log(&mut c, "ip").iter().all(|entry| entry.0.abs_diff(seconds * 1_000) < 60_000));
    });
}

#[test]
fn the_history_keeps_the_newest_entries() {
    server::on_all_with(
        |builder| builder.module_args(&["log-entries", "5"]),
        |server| {
            let mut c = server.connect();
            for n in 0..12 {
                verdict(&mut c, &format!("RL.CHECK k META {n} 6/h"));
            }
            let metas: Vec<_> = log(&mut c, "k COUNT 100").into_iter().map(|m| m.3).collect();
            let newest: Vec<_> = (7..12).rev().map(|n| some(&n.to_string())).collect();
            assert_eq!(metas, newest);
            // Without META an allowed check still adds an entry, and a denied one changes nothing.
            let before = dump(&mut c, "k");
            assert_eq!(verdict(&mut c, "RL.CHECK k 6/h"), 1);
            assert_eq!(dump(&mut c, "k"), before);
            assert_eq!(verdict(&mut c, "RL.CHECK k bucket:6/h"), 0);
            assert_eq!(log_untimed(&mut c, "k COUNT 1"), [(1, 0, None)]);
        },
    );
}

#[test]
fn without_meta_the_log_shows_the_sliding_log() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK k COST 2 3/h,count=all"), 0);
        assert_eq!(verdict(&mut c, "RL.CHECK k COST 3 3/h,count=all"), 1);
        assert_eq!(log_untimed(&mut c, "k"), [(3, 1, None)]);
        assert_eq!(verdict(&mut c, "RL.CHECK plain COST 2 30/h"), 0);
        assert_eq!(verdict(&mut c, "RL.CHECK plain 30/h"), 0);
        assert_eq!(log_untimed(&mut c, "plain"), [(1, 0, None), (2, 0, None)]);
        // After the first check with META, the log shows the history.
        assert_eq!(verdict(&mut c, "RL.CHECK plain META x 30/h"), 0);
        assert_eq!(log_untimed(&mut c, "plain"), [(1, 0, some("x"))]);
        assert_eq!(log(&mut c, "nobody"), []);
    });
}

#[test]
fn meta_may_be_any_bytes() {
    server::on_all_with(
        |builder| builder.module_args(&["max-meta", "8"]),
        |server| {
            let mut c = server.connect();
            let bytes: &[u8] = &[0, 0xff, b'\r', b'\n', b'*', b'1'];
            let check = |c: &mut Connection, meta: &[u8]| {
                cmd("RL.CHECK").arg("k").arg("META").arg(meta).arg("5/h").query::<Value>(c)
            };
            check(&mut c, bytes).unwrap();
            check(&mut c, b"").unwrap();
            let rows: Vec<(u64, u64, i64, Vec<u8>)> = ask(&mut c, "RL.LOG k");
            assert_eq!((rows[0].3.as_slice(), rows[1].3.as_slice()), (&b""[..], bytes));
        },
    );
}

#[test]
fn a_long_meta_is_cut_at_a_character_and_the_check_counts() {
    server::on_all_with(
        |builder| builder.module_args(&["max-meta", "8"]),
        |server| {
            let mut c = server.connect();
            let replica = replica_of(server);
            let long = "x".repeat(1_000_000);
            for (meta, verdict) in [("path/\u{20ac}/a", 0), ("path/a\u{20ac}", 0), (&long, 1)] {
                let check = cmd("RL.CHECK").arg("k").arg("META").arg(meta).arg("2/h").clone();
                assert_eq!(check.query::<[i64; 5]>(&mut c).unwrap()[0], verdict);
            }
            let kept = [some("xxxxxxxx"), some("path/a"), some("path/\u{20ac}")];
            let seen = |c: &mut Connection| log(c, "k").into_iter().map(|entry| entry.3);
            assert_eq!(seen(&mut c).collect::<Vec<_>>(), kept);
            replicated(&mut c);
            assert_eq!(seen(&mut replica.connect()).collect::<Vec<_>>(), kept);
            // RL.MCHECK cuts a long META, too.
            let many = cmd("RL.MCHECK").arg(&["2", "a", "b", "META", &long, "2/h"]).clone();
            assert_eq!(many.query::<[i64; 5]>(&mut c).unwrap()[0], 0);
            assert_eq!(log(&mut c, "b")[0].3, some("xxxxxxxx"));
        },
    );
}

#[test]
fn a_denial_with_meta_makes_a_key_that_lives_an_hour() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK k META who 0/s"), 1);
        let ttl: i64 = ask(&mut c, "TTL k");
        assert!((3_590..=3_600 + 450).contains(&ttl), "{ttl}");
        assert_eq!(log_untimed(&mut c, "k"), [(1, 1, some("who"))]);
        // With no entries to keep, META makes no key.
        if server.flavor().is_7_or_later() {
            let _: String = ask(&mut c, "CONFIG SET ratelimit.log-entries 0");
            assert_eq!(verdict(&mut c, "RL.CHECK other META who 0/s"), 1);
            assert!(!exists(&mut c, "other"));
        }
    });
}
