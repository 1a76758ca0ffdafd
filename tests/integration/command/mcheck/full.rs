//! `RL.MCHECK FULL`.

use std::collections::HashMap;

use redis::{Connection, FromRedisValue, Value, from_redis_value};

use super::{DAY_MS, HOUR_MS, line};
use crate::support::client::{START_US, ask, command};
use crate::support::server::{self, Builder};

type Map = HashMap<String, Value>;

/// A reply of `FULL`.
struct Full(Map);

impl Full {
    fn of(c: &mut Connection, keys: &str, rest: &str) -> Self {
        Self(ask(c, &line(keys, &format!("FULL {rest}"))))
    }

    fn get<T: FromRedisValue>(&self, field: &str) -> T {
        get(&self.0, field)
    }

    /// The verdict, the wait and the key that decided.
    fn decision(&self) -> (i64, i64, Option<String>) {
        (self.get("verdict"), self.get("wait_ms"), self.get("key"))
    }

    /// The key, text, verdict and wait of each rule.
    fn rules(&self) -> Vec<(String, String, i64, i64)> {
        let rules: Vec<Map> = self.get("rules");
        let row = |rule: &Map| {
            (get(rule, "key"), get(rule, "rule"), get(rule, "verdict"), get(rule, "wait_ms"))
        };
        rules.iter().map(row).collect()
    }

    /// The key, reason and time left of the block, if one is shown.
    fn block(&self) -> Option<(String, String, i64)> {
        let block: Map = from_redis_value(self.0.get("block")?.clone()).expect("a map");
        Some((get(&block, "key"), get(&block, "reason"), get(&block, "ttl_ms")))
    }
}

fn get<T: FromRedisValue>(map: &Map, field: &str) -> T {
    let value = map.get(field).unwrap_or_else(|| panic!("no {field} in {map:?}")).clone();
    from_redis_value(value).unwrap_or_else(|error| panic!("{field}: {error}"))
}

fn row(key: &str, rule: &str, verdict: i64, wait_ms: i64) -> (String, String, i64, i64) {
    (key.into(), rule.into(), verdict, wait_ms)
}

fn key(name: &str) -> Option<String> {
    Some(name.into())
}

#[test]
fn the_deciding_key_and_the_key_of_each_rule_are_shown() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        let now = format!("AT {START_US}");
        let rules = "5/h bucket:1/d,burst=9 NEXT leaky:1/h,queue=4";
        let full = Full::of(&mut c, "a b", &format!("{now} COST 2 {rules}"));
        assert_eq!(full.decision(), (0, 0, key("a")));
        // The rule of one key has the least left; the wait comes from another key's queue.
        let full = Full::of(&mut c, "a b", &format!("{now} {rules}"));
        assert_eq!(full.decision(), (0, 2 * HOUR_MS, key("a")));
        let [five, nine, queue] = ["log:5/1h", "bucket:1/1d,burst=9", "leaky:1/1h,queue=4"];
        let turn = row("b", queue, 0, 2 * HOUR_MS);
        assert_eq!(full.rules(), [row("a", five, 0, 0), row("a", nine, 0, 0), turn]);
        // A rule that admits has no wait, even if others deny.
        let full = Full::of(&mut c, "a b", &format!("{now} COST 3 {rules}"));
        assert_eq!(full.decision(), (1, HOUR_MS, key("a")));
        let fits = [row("a", nine, 0, 0), row("b", queue, 1, HOUR_MS)];
        assert_eq!(full.rules()[1..], fits);
        let full = Full::of(&mut c, "b a", &format!("{now} COST 3 9/h NEXT bucket:1/d,burst=4"));
        assert_eq!(full.decision(), (1, 2 * DAY_MS, key("a")));
        assert!(full.block().is_none());
        let none = Full::of(&mut c, "a b", &format!("{now} 0/h,shadow"));
        assert_eq!(none.decision(), (0, 0, None), "a shadow rule decided");
        assert_eq!(none.rules(), ["a", "b"].map(|key| row(key, "log:0/1h,shadow", 1, -1)));
    });
}

#[test]
fn quota_and_next_free_unit_of_each_rule_are_shown() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        let next = |c: &mut Connection, call: &str| -> Vec<[i64; 4]> {
            let full: Map = ask(c, call);
            let rules: Vec<Map> = get(&full, "rules");
            let fields = ["quota", "period_ms", "remaining", "next_ms"];
            rules.iter().map(|rule| fields.map(|field| get(rule, field))).collect()
        };
        let at = |after_ms: i64| format!("AT {} FULL", START_US as i64 + after_ms * 1_000);
        let rules = "bucket:24/d,burst=90 log:3/h 0/m,shadow leaky:1/h,queue=0,shadow,name=q";
        let check = format!("RL.CHECK k COST 3 {} {rules}", at(0));
        let leaky = [1, HOUR_MS, 0, HOUR_MS];
        let after =
            [[24, DAY_MS, 87, HOUR_MS], [3, HOUR_MS, 0, HOUR_MS], [0, 60_000, 0, -1], leaky];
        assert_eq!(next(&mut c, &check), after);
        // A second later, a denied check and a peek reply this, but each wait is a second
        // shorter.
        for command in ["CHECK", "PEEK"] {
            let call = format!("RL.{command} k {} {rules}", at(1_000));
            let later = after.map(|[quota, period_ms, remaining, next_ms]| {
                [quota, period_ms, remaining, if next_ms < 0 { -1 } else { next_ms - 1_000 }]
            });
            assert_eq!(next(&mut c, &call), later, "{call}");
        }
        let many = format!("RL.MCHECK 2 k new {} bucket:24/d,burst=90", at(0));
        assert_eq!(next(&mut c, &many), [[24, DAY_MS, 86, HOUR_MS], [24, DAY_MS, 89, HOUR_MS]]);
        let untouched = format!("RL.PEEK untouched {} 5/h 0/s", at(0));
        assert_eq!(next(&mut c, &untouched), [[5, HOUR_MS, 5, 0], [0, 1_000, 0, -1]]);
    });
}

#[test]
fn the_longest_block_is_shown_and_rules_of_blocked_keys_are_not() {
    server::on_all(|server| {
        let mut c = server.connect();
        for lift in ["BLOCK short EX 100 REASON a", "BLOCK long EX 200 REASON b", "EXEMPT exempt"] {
            let () = ask(&mut c, &format!("RL.{lift}"));
        }
        let full = Full::of(&mut c, "short exempt new long", "5/h");
        let (verdict, wait_ms, decider) = full.decision();
        assert_eq!((verdict, decider), (2, key("long")));
        assert_eq!(full.rules(), [row("new", "log:5/1h", 0, 0)]);
        let (name, reason, ttl_ms) = full.block().expect("a block");
        assert_eq!((name.as_str(), reason.as_str()), ("long", "b"));
        assert!((190_000..=200_000).contains(&ttl_ms) && ttl_ms == wait_ms, "{ttl_ms} {wait_ms}");
        // A rule with a longer denial decides; the block is still shown.
        let full = Full::of(&mut c, "short new", "0/h");
        assert_eq!(full.decision(), (1, -1, key("new")));
        assert_eq!(full.block().expect("a block").0, "short");
        let full = Full::of(&mut c, "exempt", "0/h");
        assert_eq!((full.decision(), full.rules().len()), ((0, 0, None), 0));
        assert!(full.block().is_none());
    });
}

#[test]
fn a_new_ban_is_shown_as_a_block() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        let _: Value = ask(&mut c, "RL.CHECK a 1/h");
        let full = Full::of(&mut c, "new a", "9/h NEXT 1/h,ban=1d,name=flood");
        assert_eq!(full.decision(), (1, DAY_MS, key("a")));
        assert_eq!(full.rules()[0], row("new", "log:9/1h", 0, 0));
        let (name, reason, ttl_ms) = full.block().expect("a block");
        assert_eq!((name.as_str(), reason.as_str(), ttl_ms), ("a", "rule flood", DAY_MS));
    });
}

/// The names of all fields in a map and the maps inside, in their order.
fn fields(reply: &Value) -> Vec<String> {
    match reply {
        Value::Map(pairs) => {
            let of = |(name, value): &(Value, Value)| {
                let name: String = from_redis_value(name.clone()).expect("a name");
                [vec![name], fields(value)].concat()
            };
            pairs.iter().flat_map(of).collect()
        }
        Value::Array(items) => items.iter().flat_map(fields).collect(),
        _ => vec![],
    }
}

/// A reply with its maps as flat arrays, as RESP2 has them.
fn flat(reply: Value) -> Value {
    match reply {
        Value::Map(pairs) => {
            Value::Array(pairs.into_iter().flat_map(|(k, v)| [k, v].map(flat)).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(flat).collect()),
        other => other,
    }
}

#[test]
fn the_reply_is_a_map_and_in_resp2_a_flat_array() {
    server::on_all_with(Builder::allow_at, |server| {
        let (mut resp2, mut resp3) = (server.connect(), server.connect_resp3());
        let () = ask(&mut resp2, "RL.BLOCK b REASON abuse");
        let check = command(&line("a b", &format!("AT {START_US} FULL 5/h,name=x")));
        let reply: Value = check.query(&mut resp3).unwrap();
        let rule = ["key", "rule", "name", "cost", "verdict", "limit", "quota", "period_ms"];
        let times = ["remaining", "wait_ms", "next_ms", "reset_ms", "shadow"];
        let block = ["block", "key", "reason", "ttl_ms"];
        let expected =
            [&["verdict", "wait_ms", "key", "rules"][..], &rule, &times, &block].concat();
        // Modules can reply maps from 7.0 on.
        if server.flavor().is_7_or_later() {
            assert_eq!(fields(&reply), expected);
        }
        assert_eq!(check.query::<Value>(&mut resp2).unwrap(), flat(reply));
    });
}
