//! `slots:N`: how many requests run at once. Slots in policies, and how a key shows its slots.

use std::collections::HashMap;

use redis::{Value, from_redis_value};

use super::holds::play;
use crate::support::client::{ask, refusal, verdict};
use crate::support::server::{self, Builder};

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
