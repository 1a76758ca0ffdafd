//! `COST a..b` grants as many units as the rules admit: the sixth integer of the reply, what
//! limits a grant, and holds with a granted cost.

use std::collections::HashMap;

use redis::{Value, from_redis_value};

use super::holds::{Example, play_each};
use crate::support::client::{START_US, ask, dump, exists, refusal};
use crate::support::server::{self, Builder};

const EXAMPLES: &[Example] = &[
    (
        "a check is granted as many units as pass",
        &[
            ("0", "CHECK k COST 1..100 250/m", "0 250 150 0 60000 100"),
            ("0", "CHECK k COST 1..100 250/m", "0 250 50 0 60000 100"),
            ("0", "CHECK k COST 1..100 250/m", "0 250 0 0 60000 50"),
            ("0", "CHECK k COST 1..100 250/m", "1 250 0 60000 60000 0"),
        ],
    ),
    (
        "a check is denied, and consumes nothing, if the range's minimum does not pass",
        &[
            ("0", "CHECK k COST 200 250/m", "0 250 50 0 60000"),
            ("0", "CHECK k COST 60..100 250/m", "1 250 50 60000 60000 0"),
            ("0", "PEEK k COST 50..100 250/m", "0 250 50 0 60000 50"),
            ("0", "PEEK k COST 50 250/m", "0 250 50 0 60000"),
        ],
    ),
    (
        "a hold has the granted cost, and a repeat replies that cost",
        &[
            ("0", "CHECK k COST 1..10 HOLD j EX 9 slots:8", "0 8 0 0 9000 8"),
            ("1", "CHECK k COST 5..20 HOLD j EX 8 slots:8", "0 8 0 0 8000 8"),
            ("1", "CHECK k COST 8 HOLD j EX 8 slots:8", "0 8 0 0 8000"),
            ("1", "CHECK k COST 1..9 HOLD i EX 8 slots:8", "1 8 0 8000 8000 0"),
            ("1", "SETTLE k j", "1"),
            ("1", "CHECK k COST 9..10 HOLD i EX 8 slots:8", "1 8 8 -1 0 0"),
        ],
    ),
    (
        "the wait is for the range's minimum",
        &[
            ("0", "CHECK k COST 9 bucket:10/s", "0 10 1 0 900"),
            ("0", "CHECK k COST 2..9 bucket:10/s", "1 10 1 100 900 0"),
            ("0.099999", "CHECK k COST 2..9 bucket:10/s", "1 10 1 1 801 0"),
            ("0.1", "CHECK k COST 2..9 bucket:10/s", "0 10 0 0 1000 2"),
        ],
    ),
    (
        "a rule with its own cost takes that cost, and does not limit the grant",
        &[
            ("0", "CHECK k COST 1..100 bucket:2/m,cost=1 bucket:50/m,name=t", "0 50 0 0 60000 50"),
            ("0", "PEEK k bucket:2/m,cost=1", "0 2 1 0 30000"),
            (
                "0",
                "CHECK l COST 1..100 COST out=9 bucket:50/m bucket:10/m,name=out",
                "0 50 0 0 60000 50",
            ),
            (
                "60",
                "CHECK l COST 1..100 COST out=9 bucket:50/m bucket:10/m,name=out",
                "0 50 0 0 60000 50",
            ),
            ("60", "PEEK l bucket:10/m,name=out", "0 10 1 0 54000"),
            ("0", "PEEK m COST 2..7 bucket:50/m,cost=3", "0 50 50 0 0 7"),
        ],
    ),
    (
        "shadow rules do not lower a grant",
        &[("0", "CHECK k COST 1..100 bucket:5/m,name=s,shadow bucket:50/m", "0 50 0 0 60000 50")],
    ),
    (
        "count=all charges a denied check the range's minimum",
        &[
            ("0", "CHECK k COST 2..5 bucket:6/m,count=all", "0 6 1 0 50000 5"),
            ("0", "CHECK k COST 2..5 bucket:6/m,count=all", "1 6 0 20000 60000 0"),
            ("0", "CHECK l COST 3..5 window:8/m,count=all", "0 8 3 0 120000 5"),
        ],
    ),
    (
        "the key that admits the fewest units sets the grant",
        &[
            ("0", "MCHECK 2 a b COST 1..9 bucket:5/m NEXT bucket:7/m", "0 5 0 0 60000 5"),
            ("0", "PEEK b bucket:7/m", "0 7 2 0 42858"),
            (
                "0",
                "MCHECK 2 c b HOLD r EX 9 COST 1..9 bucket:5/m NEXT bucket:7/m",
                "0 7 0 0 60000 2",
            ),
            (
                "0",
                "MCHECK 2 c b HOLD r EX 9 COST 1..9 bucket:5/m NEXT bucket:7/m",
                "0 7 0 0 60000 2",
            ),
            ("0", "SETTLE b r REFUND", "1"),
            ("0", "MCHECK 2 d b COST 3..9 bucket:5/m NEXT bucket:7/m", "1 7 2 8572 42858 0"),
        ],
    ),
    (
        "the unused tokens of a lease come back",
        &[
            ("0", "CHECK k HOLD p EX 2 REFUND COST 1..100 bucket:1000/s", "0 1000 900 0 100 100"),
            ("0", "SETTLE k p COST 30", "1"),
            ("0", "PEEK k bucket:1000/s", "0 1000 970 0 30"),
        ],
    ),
];

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
