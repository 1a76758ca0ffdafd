//! `COST a..b` grants as many units as the rules admit: the sixth integer of the reply.

use std::collections::HashMap;

use redis::{Value, from_redis_value};

use crate::support::client::{START_US, ask, exists};
use crate::support::server::{self, Builder};

#[test]
fn exempt_and_blocked_keys_reply_with_a_grant() {
    server::on_all(|server| {
        let mut c = server.connect();
        let () = ask(&mut c, "RL.EXEMPT friend");
        let () = ask(&mut c, "RL.BLOCK foe");
        for (line, reply) in [
            ("RL.CHECK friend COST 3..9 5/m", [0, -1, -1, 0, 0, 9]),
            ("RL.PEEK friend COST 3..9 5/m", [0, -1, -1, 0, 0, 9]),
            ("RL.CHECK foe COST 3..9 5/m", [2, 0, 0, -1, -1, 0]),
            ("RL.MCHECK 2 k foe COST 3..9 5/m", [2, 0, 0, -1, -1, 0]),
            ("RL.PEEK k COST 3..9 99/h,shadow", [0, -1, -1, 0, 0, 9]),
        ] {
            assert_eq!(ask::<[i64; 6]>(&mut c, line), reply, "{line}");
        }
        assert!(!exists(&mut c, "k"));
    });
}

#[test]
fn full_has_the_grant_as_a_field() {
    type Map = HashMap<String, Value>;
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        let number = |map: &Map, name: &str| from_redis_value::<i64>(map[name].clone()).unwrap();
        for (line, granted, costs) in [
            ("RL.CHECK k AT COST 2..9 FULL bucket:5/m bucket:9/m,cost=3,name=a", 5, &[5, 3][..]),
            ("RL.CHECK k AT COST 2..9 FULL bucket:5/m", 0, &[2]),
            ("RL.PEEK l AT COST 2..9 FULL bucket:5/m", 5, &[5]),
            ("RL.MCHECK 2 l m AT COST 2..9 FULL bucket:5/m NEXT bucket:7/m", 5, &[5, 5]),
        ] {
            let line = line.replace(" AT ", &format!(" AT {START_US} "));
            let full: Map = ask(&mut c, &line);
            assert_eq!(number(&full, "granted"), granted, "{line}");
            let rules: Vec<Map> = from_redis_value(full["rules"].clone()).unwrap();
            let of_rules: Vec<_> = rules.iter().map(|rule| number(rule, "cost")).collect();
            assert_eq!(of_rules, costs, "{line}");
        }
        let full: Map = ask(&mut c, "RL.PEEK k COST 2 FULL 5/m");
        assert!(!full.contains_key("granted"));
    });
}
