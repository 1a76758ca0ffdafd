//! `RL.BLOCKS`: a scan for keys that are blocked or exempt.

use redis::{Connection, Value};

use crate::support::client::{BlockRow, ask, blocks};
use crate::support::server::{self, eventually};

#[test]
fn a_scan_of_a_million_keys_takes_short_steps() {
    // A step costs what SCAN costs, so one server is enough.
    let server = server::one().start();
    let mut c = server.connect();
    let _: String = ask(&mut c, "DEBUG POPULATE 1000000 plain 10");
    for n in 0..200 {
        let _: String = ask(&mut c, &format!("RL.BLOCK ip:{n} EX 1000 REASON flood"));
        let _: Value = ask(&mut c, &format!("RL.CHECK free:{n} 5/h"));
    }
    let _: String = ask(&mut c, "RL.EXEMPT ip:vip");
    assert_eq!(blocks(&mut c, "COUNT 10000").len(), 201);
    let matched = blocks(&mut c, "MATCH ip:1? COUNT 10000");
    assert_eq!(matched.len(), 10, "{matched:?}");

    // As with SCAN, keys that exist from the first step to the last are returned, even if
    // others are made and deleted meanwhile.
    let (mut cursor, mut seen) = ("0".to_string(), std::collections::BTreeSet::new());
    let mut steps = 0;
    loop {
        let line = format!("RL.BLOCKS {cursor} COUNT 5000");
        let (next, rows): (String, Vec<BlockRow>) = ask(&mut c, &line);
        seen.extend(rows.into_iter().map(|row| row.0));
        let _: i64 = ask(&mut c, &format!("DEL plain:{steps} free:{steps}"));
        let _: String = ask(&mut c, &format!("SET new:{steps} x"));
        steps += 1;
        if next == "0" {
            break;
        }
        cursor = next;
    }
    assert!(steps > 100, "a million keys in {steps} steps");
    assert_eq!(seen.len(), 201);
    let _: String = ask(&mut c, "CONFIG SET slowlog-log-slower-than 50000");
    let _: String = ask(&mut c, "SLOWLOG RESET");
    assert_eq!(blocks(&mut c, "").len(), 201, "with the default COUNT");
    // The machine may have been slow, so a slow step gets another try.
    eventually("no step to take over 50 ms", || {
        type Slow = (i64, i64, i64, Vec<String>, String, String);
        let slow: Vec<Slow> = ask(&mut c, "SLOWLOG GET 128");
        let _: String = ask(&mut c, "SLOWLOG RESET");
        for (_, _, _, command, ..) in slow {
            let _: Value = ask(&mut c, &command.join(" "));
        }
        ask::<i64>(&mut c, "SLOWLOG LEN") == 0
    });
}

#[test]
fn one_call_scans_a_small_database_and_no_call_is_long() {
    server::on_all(|server| {
        let mut c = server.connect();
        let _: String = ask(&mut c, "DEBUG POPULATE 3000 plain 10");
        let _: String = ask(&mut c, "RL.BLOCK ip EX 1000");
        let (next, rows): (String, Vec<BlockRow>) = ask(&mut c, "RL.BLOCKS 0");
        assert_eq!((next.as_str(), rows.len()), ("0", 1));

        const KEYS: usize = 100_000;
        let _: String = ask(&mut c, &format!("DEBUG POPULATE {KEYS} other 10"));
        for options in ["", " COUNT 1000000", " COUNT 1000000000 MATCH ip"] {
            let (mut cursor, mut calls, mut found) = ("0".to_string(), 0, 0);
            while calls == 0 || cursor != "0" {
                let line = format!("RL.BLOCKS {cursor}{options}");
                let (next, rows): (String, Vec<BlockRow>) = ask(&mut c, &line);
                (cursor, calls, found) = (next, calls + 1, found + rows.len());
            }
            // The last bucket that a call scans in the hash table may hold several keys.
            assert!(calls > KEYS / 4_200, "{KEYS} keys in {calls} calls");
            assert!(calls < 2 * KEYS / 4_096, "{KEYS} keys in {calls} calls");
            assert!(found > 0);
        }
    });
}

#[test]
fn scans_and_reports_do_not_count_as_use() {
    server::on_all_with(
        |builder| builder.config("maxmemory-policy", "allkeys-lfu"),
        |server| {
            let mut c = server.connect();
            let _: String = ask(&mut c, "RL.BLOCK k EX 1000");
            for _ in 0..300 {
                let _: Value = ask(&mut c, "RL.CHECK busy 1000/h");
            }
            let freq =
                |c: &mut Connection, key: &str| -> i64 { ask(c, &format!("OBJECT FREQ {key}")) };
            let before = freq(&mut c, "k");
            assert!(freq(&mut c, "busy") > before, "checks count as use");
            for _ in 0..300 {
                blocks(&mut c, "COUNT 100");
                let _: Value = ask(&mut c, "RL.INFO k");
                let _: Value = ask(&mut c, "RL.LOG k");
            }
            assert!(freq(&mut c, "k") <= before);
        },
    );
}
