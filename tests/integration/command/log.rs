//! META, RL.LOG, RL.INFO, RL.TOP and INFO ratelimit: who was denied, when, and what they asked for.

use redis::{Connection, FromRedisValue, Value, cmd};
use std::collections::BTreeMap;

use crate::support::client::{ask, dump, exists, info, refusal, replica_of, replicated};
use crate::support::server::{self, eventually};

/// A row of `RL.LOG`: Unix milliseconds, cost, verdict, and what the caller said.
type Mark = (u64, u64, i64, Option<String>);

fn log(c: &mut Connection, options: &str) -> Vec<Mark> {
    ask(c, format!("RL.LOG {options}").trim_end())
}

/// The same without times.
fn log_untimed(c: &mut Connection, options: &str) -> Vec<(u64, i64, Option<String>)> {
    log(c, options).into_iter().map(|(_, cost, verdict, meta)| (cost, verdict, meta)).collect()
}

fn verdict(c: &mut Connection, line: &str) -> i64 {
    ask::<[i64; 5]>(c, &format!("RL.CHECK {line}"))[0]
}

fn some(text: &str) -> Option<String> {
    Some(text.to_string())
}

/// A map of a reply: from RESP3, or the flat array of RESP2.
fn map(value: Value) -> BTreeMap<String, Value> {
    let pairs: Vec<(String, Value)> = match value {
        Value::Map(pairs) => {
            let name = |name| String::from_redis_value(name).unwrap();
            pairs.into_iter().map(|(key, value)| (name(key), value)).collect()
        }
        flat => Vec::from_redis_value(flat).unwrap(),
    };
    pairs.into_iter().collect()
}

fn number(map: &BTreeMap<String, Value>, name: &str) -> i64 {
    i64::from_redis_value(map[name].clone()).unwrap()
}

fn text(map: &BTreeMap<String, Value>, name: &str) -> String {
    String::from_redis_value(map[name].clone()).unwrap()
}

#[test]
fn the_log_says_who_used_up_the_limit_of_an_address() {
    server::on_all(|server| {
        let mut c = server.connect();
        for user in ["ann", "bob", "bob"] {
            assert_eq!(verdict(&mut c, &format!("ip META user:{user} 3/h")), 0);
        }
        assert_eq!(verdict(&mut c, "ip META user:ann 3/h"), 1);
        assert_eq!(verdict(&mut c, "ip COST 7 META user:eve bucket:5/h"), 1);
        let _: String = ask(&mut c, "RL.BLOCK ip EX 100");
        assert_eq!(verdict(&mut c, "ip META user:bob 3/h"), 2);
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
        assert!(log(&mut c, "ip").iter().all(|mark| mark.0.abs_diff(seconds * 1_000) < 60_000));
    });
}

#[test]
fn the_trail_is_a_ring_of_the_newest() {
    server::on_all_with(
        |builder| builder.module_args(&["log-entries", "5"]),
        |server| {
            let mut c = server.connect();
            for n in 0..12 {
                verdict(&mut c, &format!("k META {n} 6/h"));
            }
            let metas: Vec<_> = log(&mut c, "k COUNT 100").into_iter().map(|m| m.3).collect();
            let newest: Vec<_> = (7..12).rev().map(|n| some(&n.to_string())).collect();
            assert_eq!(metas, newest);
            // An allowed check without META leaves its mark too; a denied one changes nothing.
            let before = dump(&mut c, "k");
            assert_eq!(verdict(&mut c, "k 6/h"), 1);
            assert_eq!(dump(&mut c, "k"), before);
            assert_eq!(verdict(&mut c, "k bucket:6/h"), 0);
            assert_eq!(log_untimed(&mut c, "k COUNT 1"), [(1, 0, None)]);
        },
    );
}

#[test]
fn without_meta_the_log_is_what_the_sliding_log_holds() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "k COST 2 3/h,count=all"), 0);
        assert_eq!(verdict(&mut c, "k COST 3 3/h,count=all"), 1);
        assert_eq!(log_untimed(&mut c, "k"), [(3, 1, None)]);
        assert_eq!(verdict(&mut c, "plain COST 2 30/h"), 0);
        assert_eq!(verdict(&mut c, "plain 30/h"), 0);
        assert_eq!(log_untimed(&mut c, "plain"), [(1, 0, None), (2, 0, None)]);
        // With META it is those checks that are told of, from the first that brought it.
        assert_eq!(verdict(&mut c, "plain META x 30/h"), 0);
        assert_eq!(log_untimed(&mut c, "plain"), [(1, 0, some("x"))]);
        assert_eq!(log(&mut c, "nobody"), []);
    });
}

#[test]
fn meta_is_any_bytes_up_to_its_bound() {
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
fn a_long_meta_is_cut_and_the_limit_holds() {
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
            let seen = |c: &mut Connection| log(c, "k").into_iter().map(|mark| mark.3);
            assert_eq!(seen(&mut c).collect::<Vec<_>>(), kept);
            replicated(&mut c);
            assert_eq!(seen(&mut replica.connect()).collect::<Vec<_>>(), kept);
            // What several keys are asked is cut as well.
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
        assert_eq!(verdict(&mut c, "k META who 0/s"), 1);
        let ttl: i64 = ask(&mut c, "TTL k");
        assert!((3_590..=3_600 + 450).contains(&ttl), "{ttl}");
        assert_eq!(log_untimed(&mut c, "k"), [(1, 1, some("who"))]);
        // With a trail of nothing, META is heard and forgotten.
        if server.flavor().is_7_or_later() {
            let _: String = ask(&mut c, "CONFIG SET ratelimit.log-entries 0");
            assert_eq!(verdict(&mut c, "other META who 0/s"), 1);
            assert!(!exists(&mut c, "other"));
        }
    });
}

#[test]
fn the_trail_is_the_same_on_a_replica_and_after_a_restart() {
    server::on_all_with(
        |builder| {
            builder
                .config("appendonly", "yes")
                .config("appendfsync", "always")
                .module_args(&["log-entries", "20"])
        },
        |server| {
            let mut c = server.connect();
            verdict(&mut c, "k META before 9/h");
            let replica = replica_of(server);
            let mut r = replica.connect();
            // The replica keeps what its primary keeps, not what its own setting says.
            for n in 0..30 {
                verdict(&mut c, &format!("k COST {} META {n} 9/h,count=all bucket:9/h", n % 3));
                verdict(&mut c, "k COST 1 window:900/h");
            }
            let _: String = ask(&mut c, "RL.EXEMPT k EX 50");
            verdict(&mut c, "k META exempt 9/h");
            let _: String = ask(&mut c, "RL.BLOCK k EX 50");
            verdict(&mut c, "k META blocked 9/h");
            replicated(&mut c);
            let (told, saved) = (log(&mut c, "k COUNT 100"), dump(&mut c, "k"));
            assert!(told.len() >= 20, "{}", told.len());
            assert_eq!(told[0].3, some("blocked"));
            assert_eq!(log(&mut r, "k COUNT 100"), told);
            assert_eq!(dump(&mut r, "k"), saved);
            drop(c);
            server.kill9();
            server.resume();
            let mut c = server.connect();
            assert_eq!(log(&mut c, "k COUNT 100"), told);
        },
    );
}

#[test]
fn info_shows_both_counts_of_a_window() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "k COST 3 window:900/366d window:900/366d,res=3"), 0);
        assert_eq!(verdict(&mut c, "k COST 2 window:900/366d window:900/366d,res=3"), 0);
        for mut c in [c, server.connect_resp3()] {
            let info = map(ask(&mut c, "RL.INFO k"));
            let states: Vec<Value> = Vec::from_redis_value(info["states"].clone()).unwrap();
            for state in states.into_iter().map(map) {
                assert_eq!((number(&state, "current"), number(&state, "previous")), (5, 0));
            }
        }
    });
}

#[test]
fn info_explains_a_key() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(ask::<Value>(&mut c, "RL.INFO nobody"), Value::Nil);
        let rules = "4/h bucket:90/h,burst=50,name=api fixed:100/d,keep=7 leaky:60/m,queue=5";
        assert_eq!(verdict(&mut c, &format!("k COST 3 META x {rules}")), 0);
        let _: String = ask(&mut c, "RL.BLOCK k EX 100 REASON abuse");
        for mut c in [c, server.connect_resp3()] {
            let at_most: i64 = ask(&mut c, "PTTL k");
            let info = map(ask(&mut c, "RL.INFO k"));
            let at_least: i64 = ask(&mut c, "PTTL k");
            assert!((at_least..=at_most).contains(&number(&info, "ttl_ms")));
            let states: Vec<Value> = Vec::from_redis_value(info["states"].clone()).unwrap();
            let states: Vec<_> = states.into_iter().map(map).collect();
            let rules: Vec<_> = states.iter().map(|state| text(state, "rule")).collect();
            assert_eq!(
                rules,
                [
                    "bucket:90/1h,burst=50,name=api",
                    "fixed:100/1d,keep=7",
                    "leaky:60/1m,queue=5",
                    "log/1h"
                ]
            );
            assert!(states.iter().all(|state| number(state, "consumed") > 0));
            assert!(states.iter().all(|state| number(state, "reset_ms") > 0));
            let windows: Vec<(i64, i64)> =
                Vec::from_redis_value(states[1]["windows"].clone()).unwrap();
            assert_eq!(windows.len(), 1);
            assert_eq!((windows[0].0 % 86_400_000, windows[0].1), (0, 3));
            assert_eq!((number(&states[3], "entries"), number(&states[3], "span_ms")), (1, 0));
            let overrule = map(info["override"].clone());
            assert_eq!(text(&overrule, "kind"), "blocked");
            assert_eq!(text(&overrule, "reason"), "abuse");
            assert!((90_000..=100_000).contains(&number(&overrule, "ttl_ms")));
            assert_eq!(number(&info, "marks"), 1);
            let bytes = number(&info, "bytes");
            assert!((300..2_000).contains(&bytes), "{bytes} bytes");
        }
    });
}

#[test]
fn the_top_is_who_is_denied_most() {
    server::on_all_with(
        |builder| builder.module_args(&["top-size", "20"]),
        |server| {
            let mut c = server.connect();
            let mut pipe = redis::pipe();
            for n in 0..2_000u32 {
                let key = match n % 4 {
                    0 | 1 => "worst".to_string(),
                    2 => "bad".to_string(),
                    _ => format!("once:{n}"),
                };
                pipe.cmd("RL.CHECK").arg(key).arg("0/m").ignore();
                pipe.cmd("RL.CHECK")
                    .arg("good")
                    .arg("bucket:1000000/m")
                    .arg("fixed:9999/m")
                    .ignore();
            }
            let () = pipe.query(&mut c).unwrap();
            let top = |c: &mut Connection, options: &str| -> Vec<(String, u64, u64)> {
                ask(c, format!("RL.TOP {options}").trim_end())
            };
            let rows = top(&mut c, "");
            assert_eq!(rows.len(), 10);
            // Space-Saving counts at most N/k too many: 2,000 denials, 20 counters.
            assert_eq!(rows[0].0, "worst");
            assert!((1_000..=1_100).contains(&rows[0].1), "{rows:?}");
            assert_eq!(rows[1].0, "bad");
            assert!((500..=600).contains(&rows[1].1), "{rows:?}");
            assert!(rows.iter().all(|(key, ..)| key != "good"));
            let (seconds, _): (u64, u64) = ask(&mut c, "TIME");
            assert!(rows.iter().all(|row| row.2.abs_diff(seconds * 1_000) < 60_000), "{rows:?}");
            assert_eq!(top(&mut c, "COUNT 1 RESET"), rows[..1]);
            assert_eq!(top(&mut c, ""), []);
            if server.flavor().is_7_or_later() {
                let _: String = ask(&mut c, "CONFIG SET ratelimit.top-size 0");
                assert_eq!(verdict(&mut c, "k 0/m"), 1);
                assert_eq!(top(&mut c, ""), []);
            }
            assert!(refusal(&mut c, "RL.TOP ALL").contains("unexpected 'ALL'"));
        },
    );
}

#[test]
fn the_counters_count() {
    server::on_all_with(
        |builder| builder.module_args(&["allow-at", "yes"]),
        |server| {
            let mut c = server.connect();
            // No window that ends with the hour, nor with the day.
            verdict(
                &mut c,
                "a COST 2 2/h window:9/366d fixed:9/h,align=first bucket:9/h leaky:9/h",
            );
            verdict(&mut c, "a 2/h");
            verdict(&mut c, "b COST 9 2/h,ban=1h");
            verdict(&mut c, "b 2/h");
            // A rule on trial: over its limit at the second check.
            for _ in 0..2 {
                assert_eq!(verdict(&mut c, "d bucket:9/h fixed:1/h,align=first,shadow"), 0);
            }
            let _: String = ask(&mut c, "RL.EXEMPT c");
            verdict(&mut c, "c 2/h");
            let _: Value = ask(&mut c, "RL.PEEK a 2/h");
            let _: i64 = ask(&mut c, "RL.REFUND a 2");
            for (name, value) in [
                ("checks", 7.0),
                ("allowed", 4.0),
                ("limited", 2.0),
                ("blocked", 1.0),
                ("exempt", 1.0),
                ("bans", 1.0),
                ("shadow_limited", 1.0),
                ("peeks", 1.0),
                ("refunds", 1.0),
                ("refunded_units", 2.0),
                ("log_rules", 3.0),
                ("window_rules", 1.0),
                ("fixed_rules", 3.0),
                ("bucket_rules", 3.0),
                ("leaky_rules", 1.0),
                ("values", 3.0),
            ] {
                let found = info(&mut c, "ratelimit", &format!("ratelimit_{name}"));
                assert_eq!(found, value, "{name}");
            }
            let _: String = ask(&mut c, "FLUSHALL");
            eventually("all values to be freed", || {
                info(&mut c, "ratelimit", "ratelimit_values") == 0.0
            });
            let all: String = ask(&mut c, "INFO everything");
            assert!(all.contains("# ratelimit\r\nratelimit_checks:7\r\n"));
        },
    );
}

/// What redis_exporter runs with `--script`.
#[test]
fn the_prometheus_script_gives_every_counter() {
    const SCRIPT: &str = include_str!("../../../examples/prometheus.lua");
    server::on_all(|server| {
        let mut c = server.connect();
        verdict(&mut c, "k 0/h");
        let flat: Vec<String> = cmd("EVAL").arg(SCRIPT).arg(0).query(&mut c).unwrap();
        let section: String = ask(&mut c, "INFO ratelimit");
        let fields: Vec<String> = section
            .lines()
            .filter_map(|line| line.split_once(':'))
            .flat_map(|(name, value)| [name.to_string(), value.to_string()])
            .collect();
        assert!(fields.len() > 20);
        assert_eq!(flat, fields);
    });
}
