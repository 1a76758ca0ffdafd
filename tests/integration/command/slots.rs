//! `slots:N`: how many requests run at once. Worked examples, pools, how other commands treat
//! slots, and errors.

use std::collections::HashMap;

use redis::{Connection, Value, from_redis_value};

use super::holds::{Example, command_at, play, play_each};
use crate::support::client::{ask, digest, exists, refusal, replica_of, replicated, verdict};
use crate::support::files::{restart_from_aof, with_synced_aof};
use crate::support::server::{self, Builder};
use crate::support::workload::link::quiet;

const EXAMPLES: &[Example] = &[
    (
        "a slot ends with its hold",
        &[
            ("0", "CHECK k HOLD a EX 30 slots:2", "0 2 1 0 30000"),
            ("5", "CHECK k HOLD b EX 10 slots:2", "0 2 0 0 25000"),
            ("6", "CHECK k HOLD c EX 30 slots:2", "1 2 0 9000 24000"),
            ("7", "RENEW k b EX 30", "1"),
            ("8", "CHECK k HOLD c EX 30 slots:2", "1 2 0 22000 29000"),
            ("9", "SETTLE k a", "1"),
            ("9", "CHECK k HOLD c EX 30 slots:2", "0 2 0 0 30000"),
            ("9", "SETTLE k a", "0"),
            ("9", "RENEW k a EX 30", "0"),
            ("9", "CHECK k HOLD b EX 28 slots:2", "0 2 0 0 30000"),
            ("36.999", "CHECK k HOLD d EX 5 slots:2", "1 2 0 1 2001"),
            ("37", "CHECK k HOLD d EX 5 slots:2", "0 2 0 0 5000"),
            ("41.999", "PEEK k slots:2", "0 2 1 0 1"),
            ("42", "PEEK k slots:2", "0 2 2 0 0"),
        ],
    ),
    (
        "one check takes a slot, a request and tokens",
        &[
            (
                "0",
                "CHECK llm:t7 HOLD req9 EX 120 REFUND COST 4000 \
                 slots:20,cost=1 500/m,cost=1 bucket:100000/m fixed:2000000/366d",
                "0 20 19 0 120000",
            ),
            ("1", "SETTLE llm:t7 req9 COST 2710", "1"),
            ("1", "PEEK llm:t7 slots:20", "0 20 20 0 0"),
            ("1", "PEEK llm:t7 500/m", "0 500 499 0 59000"),
            ("1", "PEEK llm:t7 bucket:100000/m", "0 100000 98956 0 626"),
        ],
    ),
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
        "a job of four takes four slots",
        &[
            ("0", "CHECK k HOLD a EX 30 COST 4 slots:8", "0 8 4 0 30000"),
            ("0", "CHECK k HOLD b EX 20 COST 3 slots:8", "0 8 1 0 30000"),
            ("0", "CHECK k HOLD c EX 10 COST 2 slots:8", "1 8 1 20000 30000"),
            ("0", "CHECK k HOLD c EX 10 COST 5 slots:8", "1 8 1 30000 30000"),
            ("0", "CHECK k HOLD c EX 10 COST 9 slots:8", "1 8 1 -1 30000"),
            ("20", "CHECK k HOLD c EX 20 COST 2 slots:8", "0 8 2 0 20000"),
            ("20", "CHECK k HOLD d EX 20 slots:8,cost=0", "0 8 2 0 20000"),
        ],
    ),
    (
        "a lowered limit ends no hold",
        &[
            ("0", "CHECK k HOLD a EX 10 slots:3", "0 3 2 0 10000"),
            ("0", "CHECK k HOLD b EX 20 slots:3", "0 3 1 0 20000"),
            ("0", "CHECK k HOLD c EX 30 slots:3", "0 3 0 0 30000"),
            ("1", "CHECK k HOLD d EX 30 slots:2", "1 2 0 19000 29000"),
            ("1", "RENEW k a EX 30", "1"),
            ("1", "CHECK k HOLD d EX 30 slots:0", "1 0 0 -1 30000"),
            ("1", "CHECK k HOLD d EX 30 slots:4", "0 4 0 0 30000"),
            ("1", "SETTLE k a", "1"),
            ("1", "SETTLE k b", "1"),
            ("1", "SETTLE k c", "1"),
            ("1", "PEEK k slots:2", "0 2 1 0 30000"),
        ],
    ),
    (
        "named pools are independent",
        &[
            ("0", "CHECK k HOLD a EX 30 slots:1,name=gpu slots:9,name=all", "0 1 0 0 30000"),
            ("0", "CHECK k HOLD b EX 40 slots:9,name=all", "0 9 7 0 40000"),
            ("0", "CHECK k HOLD c EX 30 slots:1,name=gpu slots:9,name=all", "1 1 0 30000 30000"),
            ("0", "CHECK k HOLD c EX 30 slots:1", "0 1 0 0 30000"),
            ("0", "PEEK k slots:9,name=all", "0 9 7 0 40000"),
            ("0", "SETTLE k a", "1"),
            ("0", "PEEK k slots:1,name=gpu", "0 1 1 0 0"),
            ("0", "PEEK k slots:9,name=all", "0 9 8 0 40000"),
        ],
    ),
    (
        "a slot lapses with and without REFUND",
        &[
            ("0", "CHECK k HOLD a EX 10 slots:2 9/m", "0 2 1 0 10000"),
            ("0", "CHECK k HOLD b EX 10 REFUND slots:2 9/m", "0 2 0 0 10000"),
            ("9.999", "PEEK k slots:2", "1 2 0 1 1"),
            ("10", "PEEK k slots:2", "0 2 2 0 0"),
            ("10", "PEEK k 9/m", "0 9 8 0 50000"),
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
        "slots of a shadow rule are taken beyond its limit",
        &[
            ("0", "CHECK k HOLD a EX 30 slots:1,shadow bucket:9/m", "0 9 8 0 6667"),
            ("0", "CHECK k HOLD b EX 30 slots:1,shadow bucket:9/m", "0 9 7 0 13334"),
            ("0", "PEEK k slots:5", "0 5 3 0 30000"),
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

/// Commands on slots and grants, in order. The denied checks find lapsed holds.
const SEQUENCE: &[(&str, &str)] = &[
    ("0", "CHECK k HOLD a EX 5 slots:2"),
    ("0", "CHECK k HOLD b EX 6 REFUND COST 1..3 slots:2 9/m,cost=1"),
    ("0", "CHECK k HOLD c EX 6 COST 1..3 slots:2 9/m,cost=1"),
    ("0", "CHECK k HOLD b EX 6 COST 1..9 slots:2"),
    ("1", "RENEW k a EX 4"),
    ("1", "CHECK k COST 1..8 META who fixed:20/m"),
    ("5", "CHECK k HOLD c EX 60 slots:0"),
    ("6", "CHECK k HOLD c EX 60 slots:0"),
    ("6", "CHECK k HOLD c EX 60 slots:0"),
    ("7", "MCHECK 2 k m HOLD d EX 9 COST 2..7 slots:4,name=pool NEXT bucket:5/s"),
    ("8", "SETTLE m d COST 1"),
    ("16", "CHECK m COST 1..9 bucket:5/s"),
    ("16", "CHECK k COST 3 fixed:20/m"),
    ("17", "CHECK k HOLD e EX 60 slots:2 slots:3,name=pool,shadow"),
    ("17", "CHECK l HOLD e EX 1 slots:2"),
    ("18", "CHECK l COST 3 2/m"),
    ("19", "CHECK k COST 1..9 bucket:2/h,count=all"),
    ("19", "CHECK k COST 1..9 bucket:2/h,count=all"),
];

fn run(c: &mut Connection, (seconds, line): (&str, &str)) {
    let _: Value = ask(c, &command_at(seconds, line));
}

#[test]
fn replicas_and_restarts_have_the_same_slots() {
    server::on_all_with(
        |builder| quiet(with_synced_aof(builder)).allow_at(),
        |server| {
            let replica = replica_of(server);
            let (mut p, mut r) = (server.connect(), replica.connect());
            for &(seconds, line) in SEQUENCE {
                run(&mut p, (seconds, line));
                replicated(&mut p);
                assert_eq!(digest(&mut r), digest(&mut p), "at {seconds}: {line}");
            }
            let look =
                |c: &mut Connection| -> [i64; 5] { ask(c, &command_at("19", "PEEK k slots:2")) };
            assert_eq!(look(&mut p), [0, 2, 1, 0, 58_000]);
            let before = digest(&mut p);
            drop(replica);
            restart_from_aof(server);
            let mut p = server.connect();
            assert_eq!(digest(&mut p), before);
            assert_eq!(look(&mut p), [0, 2, 1, 0, 58_000]);
        },
    );
}
