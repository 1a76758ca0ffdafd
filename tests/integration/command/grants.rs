//! `COST a..b` grants as many units as the rules admit: the sixth integer of the reply, what
//! limits a grant, and holds with a granted cost.

use std::collections::HashMap;

use redis::{Value, from_redis_value};

use super::holds::{Example, play_each};
use crate::support::client::{START_US, ask, dump, exists, refusal};
use crate::support::server::{self, Builder};

const EXAMPLES: &[Example] = &[(
    "the key that admits the fewest units sets the grant",
    &[
        ("0", "MCHECK 2 a b COST 1..9 bucket:5/m NEXT bucket:7/m", "0 5 0 0 60000 5"),
        ("0", "PEEK b bucket:7/m", "0 7 2 0 42858"),
        ("0", "MCHECK 2 c b HOLD r EX 9 COST 1..9 bucket:5/m NEXT bucket:7/m", "0 7 0 0 60000 2"),
        ("0", "MCHECK 2 c b HOLD r EX 9 COST 1..9 bucket:5/m NEXT bucket:7/m", "0 7 0 0 60000 2"),
        ("0", "SETTLE b r REFUND", "1"),
        ("0", "MCHECK 2 d b COST 3..9 bucket:5/m NEXT bucket:7/m", "1 7 2 8572 42858 0"),
    ],
)];

#[test]
fn examples_come_out_exactly() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        play_each(&mut c, EXAMPLES);
    });
}

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

#[test]
fn wrong_ranges_are_refused_and_change_nothing() {
    const VALUE: &str = "expected an integer 0..1000000000, a range such as 1..100 or name=integer";
    const RANGE: &str = "expected a range a..b with 1 <= a <= b <= 1000000000";
    server::on_all(|server| {
        let mut c = server.connect();
        let reply: [i64; 6] = ask(&mut c, "RL.CHECK k COST 1..10 HOLD j EX 900 bucket:8/h");
        assert_eq!(reply[5], 8);
        let before = dump(&mut c, "k");
        for (line, parts) in [
            ("RL.CHECK k COST 0..5 5/m", ["'0..5'", RANGE]),
            ("RL.CHECK k COST 5..1 5/m", ["'5..1'", RANGE]),
            ("RL.PEEK k COST 1.. 5/m", ["'1..'", VALUE]),
            ("RL.PEEK k COST ..5 5/m", ["'..5'", VALUE]),
            ("RL.MCHECK 2 k l COST a=1..5 5/m,name=a", ["'a=1..5'", VALUE]),
            ("RL.CHECK k COST 1..5 COST 2 5/m", ["COST", "is given twice"]),
            (
                "RL.SETTLE k j COST 1..5",
                ["COST is '1..5'", "expected an integer 0..1000000000 or name=integer"],
            ),
            ("RL.CHECK k COST 9..20 HOLD j EX 900 bucket:8/h", ["hold 'j'", "other costs"]),
            ("RL.CHECK k COST 1..7 HOLD j EX 900 bucket:8/h", ["hold 'j'", "other costs"]),
        ] {
            let error = refusal(&mut c, line);
            assert!(parts.iter().all(|part| error.contains(part)), "{line}: {error}");
        }
        assert_eq!(dump(&mut c, "k"), before);
    });
}
