//! Costs of rules: `cost=N` in a rule, and `COST name=n` in a check.

use std::collections::HashMap;
use std::fs;

use redis::{Connection, FromRedisValue, Value, from_redis_value};

use crate::support::client::{
    START_US, ask, digest, dump, exists, refusal, replica_of, replicated,
};
use crate::support::files::{appended_aof, with_synced_aof};
use crate::support::server::{self, Builder};

const LLM: &str = "50/m,cost=1 bucket:40000/m,name=in bucket:8000/m,name=out";

fn five(c: &mut Connection, line: &str) -> [i64; 5] {
    ask(c, line)
}

#[test]
fn a_request_and_its_tokens_each_have_a_cost() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        let () = ask(&mut c, &format!("RL.POLICY SET llm {LLM}"));
        let call = format!("RL.CHECK k AT {START_US} COST 3000 COST out=1000 @llm");
        for n in 1..=8 {
            assert_eq!(five(&mut c, &call), [0, 8_000, 8_000 - 1_000 * n, 0, 7_500 * n]);
        }
        let before = dump(&mut c, "k");
        assert_eq!(five(&mut c, &call), [1, 8_000, 0, 7_500, 60_000]);
        assert_eq!(dump(&mut c, "k"), before);
        let call = format!("RL.CHECK k2 AT {START_US} COST 4000 50/m,cost=1 bucket:100000/m");
        assert_eq!(five(&mut c, &call), [0, 100_000, 96_000, 0, 2_400]);
        for _ in 1..25 {
            assert_eq!(five(&mut c, &call)[0], 0);
        }
        assert_eq!(five(&mut c, &call), [1, 100_000, 0, 2_400, 60_000]);
    });
}

#[test]
fn the_reply_shows_the_rule_with_the_least_fraction_left() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        let at = format!("AT {START_US}");
        let rules = "bucket:9/m,cost=3 NEXT bucket:99/h,name=t";
        let reply = five(&mut c, &format!("RL.MCHECK 2 a b {at} COST t=40 {rules}"));
        assert_eq!(reply[..3], [0, 99, 59]);
        let reply = five(&mut c, &format!("RL.MCHECK 2 a b {at} COST t=1 {rules}"));
        assert_eq!(reply[..3], [0, 9, 3]);
        let reply =
            five(&mut c, &format!("RL.CHECK free {at} COST 0 bucket:1/m bucket:9/h,cost=0"));
        assert_eq!(reply[..3], [0, 1, 1]);
        assert!(!exists(&mut c, "free"));
    });
}

type Map = HashMap<String, Value>;

/// The field of each rule in a reply with `FULL`.
fn of_rules<T: FromRedisValue>(full: &Map, field: &str) -> Vec<T> {
    let rules: Vec<Map> = from_redis_value(full["rules"].clone()).expect("rules");
    rules.iter().map(|rule| from_redis_value(rule[field].clone()).expect("a field")).collect()
}

#[test]
fn full_shows_each_cost_in_effect_and_each_rules_own_text() {
    server::on_all(|server| {
        let mut c = server.connect();
        let reply: Map = ask(&mut c, &format!("RL.PEEK k COST 7 COST out=3 FULL {LLM}"));
        assert_eq!(of_rules::<i64>(&reply, "cost"), [1, 7, 3]);
        let texts = ["log:50/1m,cost=1", "bucket:40000/1m,name=in", "bucket:8000/1m,name=out"];
        assert_eq!(of_rules::<String>(&reply, "rule"), texts);
    });
}

#[test]
fn wrong_costs_are_refused_and_change_nothing() {
    server::on_all(|server| {
        let mut c = server.connect();
        let () = ask(&mut c, &format!("RL.POLICY SET llm {LLM}"));
        for (line, part) in [
            ("RL.CHECK k COST gone=1 bucket:9/m", "COST gone= is for no rule here"),
            ("RL.CHECK k COST in=1 COST in=2 @llm", "COST in= is given twice, expected once"),
            ("RL.CHECK k COST 1 COST 2 @llm", "COST is given twice, expected once"),
            ("RL.PEEK k 20/m 1/s,cost=5", "costs 5, but rule 'log:20/1m' costs 1: log rules share"),
            ("RL.MCHECK 2 k l COST a=2 20/m,name=a 1/s", "costs 1, but rule 'log:20/1m,name=a'"),
        ] {
            let error = refusal(&mut c, line);
            assert!(error.contains(part), "{line}: {error}");
        }
        assert!(!exists(&mut c, "k"));
        // A policy may lose a rule while callers still name it.
        assert_eq!(five(&mut c, "RL.CHECK k COST gone=1 @llm")[0], 0);
        // Log rules of different keys may have different costs.
        assert_eq!(five(&mut c, "RL.MCHECK 2 l m 20/m NEXT 20/m,cost=5")[..3], [0, 20, 15]);
    });
}

#[test]
fn costs_reach_replicas_and_the_append_only_file() {
    server::on_all_with(with_synced_aof, |server| {
        let replica = replica_of(server);
        let (mut p, mut r) = (server.connect(), replica.connect());
        let () = ask(&mut p, &format!("RL.POLICY SET llm {LLM}"));
        for line in [
            "RL.CHECK k COST 3000 COST out=1000 @llm",
            "RL.CHECK k COST in=20 COST out=0 5/h @llm",
            "RL.CHECK w COST 2 window:5/h,name=a,cost=3 fixed:9/h",
            "RL.CHECK w COST a=1 COST 2 window:5/h,name=a,cost=3 fixed:9/h",
            "RL.MCHECK 2 a b META who COST t=4 20/h,cost=1 NEXT window:9/h,name=t",
            "RL.CHECK c COST a=9 fixed:2/h,name=b,count=all,cost=2 leaky:3/h,name=a,count=all",
        ] {
            let _: Value = ask(&mut p, line);
        }
        replicated(&mut p);
        assert_eq!(digest(&mut p), digest(&mut r));
        let aof = fs::read(appended_aof(server)).expect("the append-only file");
        let aof = String::from_utf8_lossy(&aof);
        // An effect has the rule's own text, unless the request gives a cost by name.
        for text in ["50/1m,cost=1", "fixed:9/h\r", "window:5/1h,name=a,cost=1"] {
            assert!(aof.contains(text), "{text}");
        }
        let before = digest(&mut p);
        let () = ask(&mut p, "DEBUG LOADAOF");
        assert_eq!(digest(&mut p), before);
    });
}
