//! `RL.INFO`: the states, the block or exemption and the size of a key.

use std::collections::BTreeMap;

use redis::{FromRedisValue, Value};

use crate::support::client::{ask, now_ms, verdict};
use crate::support::server;

/// A map in a reply: a map of RESP3, or the flat array of RESP2.
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
fn both_counts_of_a_window_are_shown() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK k COST 3 window:900/366d window:900/366d,res=3"), 0);
        assert_eq!(verdict(&mut c, "RL.CHECK k COST 2 window:900/366d window:900/366d,res=3"), 0);
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
fn info_shows_the_states_the_block_and_the_size_of_a_key() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(ask::<Value>(&mut c, "RL.INFO nobody"), Value::Nil);
        let rules = "4/h bucket:90/h,burst=50,name=api fixed:100/d,keep=7 leaky:60/m,queue=5";
        assert_eq!(verdict(&mut c, &format!("RL.CHECK k COST 3 META x {rules}")), 0);
        let began_ms = now_ms(&mut c);
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
            let access = map(info["access"].clone());
            assert_eq!(text(&access, "kind"), "blocked");
            assert_eq!(text(&access, "reason"), "abuse");
            assert!((90_000..=100_000).contains(&number(&access, "ttl_ms")));
            assert_eq!(text(&access, "by"), "default");
            assert!((began_ms..=now_ms(&mut c)).contains(&number(&access, "since_ms")));
            assert_eq!(number(&info, "history"), 1);
            let bytes = number(&info, "bytes");
            assert!((300..2_000).contains(&bytes), "{bytes} bytes");
        }
    });
}

#[test]
fn a_block_shows_who_set_it_and_since_when() {
    server::on_all(|server| {
        let mut c = server.connect();
        let began_ms = now_ms(&mut c);
        let () = ask(&mut c, "ACL SETUSER ann on nopass ~* +@all");
        let mut by_ann = server.connect();
        let _: String = ask(&mut by_ann, "AUTH ann any");
        let _: String = ask(&mut by_ann, "RL.BLOCK ann");
        let _: String = ask(&mut by_ann, "RL.EXEMPT partner EX 100");
        let script = "redis.call('RL.BLOCK', 'script')";
        let () = redis::cmd("EVAL").arg(script).arg(0).query(&mut c).unwrap();
        assert_eq!(verdict(&mut c, "RL.CHECK banned 0/h,ban=1h"), 1);
        for (key, by) in
            [("ann", Some("ann")), ("partner", Some("ann")), ("script", None), ("banned", None)]
        {
            let info = map(ask(&mut c, &format!("RL.INFO {key}")));
            let access = map(info["access"].clone());
            let since_ms = number(&access, "since_ms");
            assert!((began_ms..=now_ms(&mut c)).contains(&since_ms), "{key} since {since_ms}");
            assert_eq!(
                access["by"],
                by.map_or(Value::Nil, |by| Value::BulkString(by.into())),
                "{key}"
            );
        }
    });
}
