//! `slots:N`: how many requests run at once. Worked examples, pools, how other commands treat
//! slots, and errors.

use std::collections::HashMap;

use redis::{Value, from_redis_value};

use super::holds::{Example, play, play_each};
use crate::support::client::{ask, exists, refusal, verdict};
use crate::support::server::{self, Builder};

const EXAMPLES: &[Example] = &[
    (
        "each tenant has slots, and so have all tenants together",
        &[
            ("0", "MCHECK 2 {m}:t7 {m} HOLD j EX 60 slots:1 NEXT slots:10", "0 1 0 0 60000"),
            ("0", "MCHECK 2 {m}:t7 {m} HOLD i EX 60 slots:1 NEXT slots:10", "1 1 0 60000 60000"),
            ("0", "PEEK {m} slots:10", "0 10 9 0 60000"),
            ("0", "MCHECK 2 {m}:t8 {m} HOLD i EX 60 slots:1 NEXT slots:10", "0 1 0 0 60000"),
            ("1", "SETTLE {m}:t7 j", "1"),
            ("1", "SETTLE {m} j", "1"),
            ("1", "MCHECK 2 {m}:t7 {m} HOLD h EX 60 slots:1 NEXT slots:10", "0 1 0 0 60000"),
            ("1", "PEEK {m} slots:10", "0 10 8 0 60000"),
            ("1", "PEEK {m} slots:2", "1 2 0 59000 60000"),
        ],
    ),
    (
        "a denial with a ban blocks the key, and its holds can still end",
        &[
            ("0", "CHECK k HOLD a EX 30 slots:1,ban=1m", "0 1 0 0 30000"),
            ("1", "CHECK k HOLD b EX 30 slots:1,ban=1m", "1 1 0 60000 60000"),
            ("2", "CHECK k HOLD b EX 30 slots:1,ban=1m", "2 0 0 59000 59000"),
            ("2", "RENEW k a EX 90", "1"),
            ("2", "SETTLE k a", "1"),
            ("61", "CHECK k HOLD b EX 30 slots:1,ban=1m", "0 1 0 0 30000"),
        ],
    ),
    (
        "a refund frees no slots, and a reset frees all",
        &[
            ("0", "CHECK k HOLD a EX 30 COST 2 slots:4 bucket:9/m", "0 4 2 0 30000"),
            ("0", "REFUND k 1", "1"),
            ("0", "PEEK k bucket:9/m", "0 9 8 0 6667"),
            ("0", "PEEK k slots:4", "0 4 2 0 30000"),
        ],
    ),
];

#[test]
fn examples_come_out_exactly() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        play_each(&mut c, EXAMPLES);
        // Continues the last example.
        assert_eq!(ask::<i64>(&mut c, "RL.RESET k"), 1);
        play(&mut c, &[("0", "PEEK k slots:4", "0 4 4 0 0"), ("0", "SETTLE k a", "0")]);
        let () = ask(&mut c, "FLUSHALL");
        play(
            &mut c,
            &[
                ("0", "CHECK k HOLD a EX 30 slots:2", "0 2 1 0 30000"),
                ("0", "REFUND k 1", "0"),
                ("0", "REFUND k 1 slots:2", "0"),
                ("0", "PEEK k slots:2", "0 2 1 0 30000"),
            ],
        );
    });
}

#[test]
fn a_policy_may_have_slots() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        let () = ask(&mut c, "RL.POLICY SET jobs slots:2,name=run,cost=1 bucket:90/m");
        play(
            &mut c,
            &[
                ("0", "CHECK k HOLD a EX 30 COST 5 @jobs", "0 2 1 0 30000"),
                ("0", "CHECK k HOLD b EX 30 COST 5 @jobs", "0 2 0 0 30000"),
                ("0", "CHECK k HOLD c EX 30 COST 5 @jobs", "1 2 0 30000 30000"),
                ("0", "CHECK k HOLD c EX 30 COST run=0 @jobs", "0 90 79 0 7334"),
                ("0", "PEEK k @jobs", "1 2 0 30000 30000"),
            ],
        );
        let error = refusal(&mut c, "RL.CHECK k @jobs");
        assert!(error.contains("rule 'slots:2,name=run,cost=1': slots are held"), "{error}");
    });
}

type Map = HashMap<String, Value>;

#[test]
fn a_key_shows_its_slots() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK k HOLD a EX 900 COST 3 slots:8"), 0);
        assert_eq!(verdict(&mut c, "RL.CHECK k HOLD b EX 90 slots:8 slots:2,name=gpu"), 0);
        let info: Map = ask(&mut c, "RL.INFO k");
        let states: Vec<Map> = from_redis_value(info["states"].clone()).unwrap();
        let field = |state: &Map, name: &str| from_redis_value::<i64>(state[name].clone()).unwrap();
        let shown = |state: &Map| {
            let rule: String = from_redis_value(state["rule"].clone()).unwrap();
            (rule, field(state, "consumed"))
        };
        let shown: Vec<_> = states.iter().map(shown).collect();
        assert_eq!(shown, [("slots:8".into(), 4), ("slots:2,name=gpu".into(), 1)]);
        assert!((800_000..=900_000).contains(&field(&states[0], "reset_ms")));
        assert!((80_000..=90_000).contains(&field(&states[1], "reset_ms")));
        assert_eq!(field(&info, "holds"), 2);

        let full: Map = ask(&mut c, "RL.PEEK k COST 5 FULL slots:8");
        let rules: Vec<Map> = from_redis_value(full["rules"].clone()).unwrap();
        for (name, number) in [
            ("verdict", 1),
            ("limit", 8),
            ("quota", 8),
            ("remaining", 4),
            ("cost", 5),
            ("shadow", 0),
        ] {
            assert_eq!(field(&rules[0], name), number, "{name}");
        }
        let told: Vec<String> = ask(&mut c, "RL.EXPLAIN slots:8,name=gpu");
        assert!(told[0].starts_with("slots:8,name=gpu: at most 8 requests at once:"), "{told:?}");
    });
}

#[test]
fn wrong_slots_are_refused_and_change_nothing() {
    server::on_all(|server| {
        let mut c = server.connect();
        let held = "rule 'slots:8': slots are held, give HOLD id EX seconds";
        for (line, error) in [
            ("RL.CHECK k slots:8", held),
            ("RL.CHECK k COST 2 bucket:9/m slots:8", held),
            ("RL.MCHECK 2 k l bucket:9/m NEXT slots:8", held),
            ("RL.CHECK k HOLD a EX 9 slots:8/m", "slots have no period, expected slots:limit"),
            ("RL.CHECK k HOLD a EX 9 slots:x", "limit is 'x', expected an integer 0..1000000000"),
            ("RL.CHECK k HOLD a EX 9 slots:8,count=all", "slots with count=all"),
            ("RL.CHECK k HOLD a EX 9 slots:8,burst=3", "'burst' belongs to bucket, not to slots"),
            ("RL.CHECK k HOLD a EX 9 slots:8 slots:9", "same identity as rule 'slots:8'"),
            ("RL.PEEK k HOLD a EX 9 slots:8", "HOLD is refused here"),
            ("RL.POLICY SET p slots:8,count=all", "slots with count=all"),
        ] {
            let given = refusal(&mut c, line);
            assert!(given.contains(error), "{line}: {given}");
        }
        assert!(!exists(&mut c, "k"));
        assert!(!exists(&mut c, "l"));
    });
}
