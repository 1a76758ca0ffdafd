//! Costs of rules: `cost=N` in a rule, and `COST name=n` in a check.

use std::collections::HashMap;

use redis::{Connection, FromRedisValue, Value, from_redis_value};

use crate::support::client::{ask, exists, refusal};
use crate::support::server;

const LLM: &str = "50/m,cost=1 bucket:40000/m,name=in bucket:8000/m,name=out";

fn five(c: &mut Connection, line: &str) -> [i64; 5] {
    ask(c, line)
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
