//! `RL.PLAN`, `RL.UNPLAN` and `@plan:default`.

use redis::{Connection, Value};

use crate::support::client::{
    START_US, ask, digest, dump, exists, expires_ms, info, now_ms, refusal, replica_of, replicated,
};
use crate::support::policies;
use crate::support::server::{self, Builder, eventually};
use crate::support::waiters::wait_in_line;

type Reply = [i64; 5];

/// `free` admits 2 units a minute, `pro` 100.
const POLICIES: [&str; 2] = ["free 2/m", "pro 100/m"];

/// The time this many milliseconds after `START_US`.
fn at(ms: i64) -> u64 {
    START_US.saturating_add_signed(ms * 1_000)
}

fn field(c: &mut Connection, key: &str, name: &str) -> Option<Value> {
    let report: Option<Vec<(String, Value)>> = ask(c, &format!("RL.INFO {key}"));
    Some(report?.into_iter().find(|(field, _)| field == name).expect(name).1)
}

fn text(value: &str) -> Option<Value> {
    Some(Value::BulkString(value.into()))
}

#[test]
fn a_plan_decides_and_the_default_decides_without_a_plan() {
    server::on_all(|server| {
        let mut c = server.connect();
        policies::set(&mut c, &POLICIES);
        let line = "RL.CHECK u @plan:free";
        assert_eq!(ask::<Reply>(&mut c, line), [0, 2, 1, 0, 60_000]);
        let () = ask(&mut c, "RL.PLAN u pro");
        let [verdict, limit, remaining, ..] = ask::<Reply>(&mut c, line);
        assert_eq!([verdict, limit, remaining], [0, 100, 98], "what was consumed stays");
        assert_eq!(ask::<i64>(&mut c, "RL.UNPLAN u"), 1);
        assert_eq!(ask::<Reply>(&mut c, line)[..3], [1, 2, 0]);
        assert_eq!(ask::<i64>(&mut c, "RL.UNPLAN u"), 0);
        // A check is not counted for a policy that it did not use.
        assert_eq!(policies::counted(&mut c, "pro"), Some((1, 0)));
        assert_eq!(policies::counted(&mut c, "free"), Some((1, 1)));
    });
}

#[test]
fn a_plan_has_an_end_after_which_the_default_decides() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        policies::set(&mut c, &POLICIES);
        let () = ask(&mut c, &format!("RL.PLAN u pro PXAT {}", at(1_000) / 1_000));
        let mut limit = |command: &str, ms| {
            ask::<Reply>(&mut c, &format!("{command} u AT {} @plan:free", at(ms)))[1]
        };
        for command in ["RL.PEEK", "RL.CHECK"] {
            assert_eq!([limit(command, 999), limit(command, 1_000)], [100, 2], "{command}");
        }
        let refunded = |c: &mut Connection, ms: i64| -> i64 {
            ask(c, &format!("RL.REFUND u 1 AT {} @plan:other", at(ms)))
        };
        let () = ask(&mut c, &format!("RL.PLAN u pro PXAT {}", at(3_000) / 1_000));
        assert_eq!(refunded(&mut c, 2_000), 1);
        let error = refusal(&mut c, &format!("RL.REFUND u 1 AT {} @plan:other", at(3_000)));
        assert!(error.contains("'@plan:other': unknown policy"), "{error}");
        let () = ask(&mut c, "RL.PLAN v pro PX 50");
        eventually("the end of a plan", || field(&mut c, "v", "plan").is_none());
    });
}

#[test]
fn a_plan_is_shown_with_its_end() {
    server::on_all(|server| {
        let mut c = server.connect();
        policies::set(&mut c, &POLICIES);
        let () = ask(&mut c, "RL.PLAN u pro");
        let shown = |c: &mut Connection| {
            ["plan", "plan_ttl_ms", "plan_unknown"].map(|name| field(c, "u", name).unwrap())
        };
        let unbounded = [text("pro").unwrap(), Value::Int(-1), Value::Int(0)];
        assert_eq!(shown(&mut c), unbounded);
        assert_eq!(expires_ms(&mut c, server.flavor(), "u"), -1);
        let () = ask(&mut c, "RL.PLAN u gone EX 100");
        let [plan, Value::Int(ttl_ms), unknown] = shown(&mut c) else { panic!("no number") };
        assert_eq!((plan, unknown), (text("gone").unwrap(), Value::Int(1)));
        assert!((80_000..=100_000).contains(&ttl_ms), "{ttl_ms}");
        let now = now_ms(&mut c);
        assert!(expires_ms(&mut c, server.flavor(), "u") > now);
        let full =
            |c: &mut Connection| -> Vec<(String, Value)> { ask(c, "RL.CHECK u FULL @plan:free") };
        let plan = |full: Vec<(String, Value)>| full.into_iter().find(|(name, _)| name == "plan");
        assert_eq!(plan(full(&mut c)).map(|(_, value)| value), text("gone"));
        let _: i64 = ask(&mut c, "RL.UNPLAN u");
        assert_eq!(plan(full(&mut c)), None);
    });
}

#[test]
fn an_unknown_plan_lets_the_default_decide_and_is_counted() {
    server::on_all(|server| {
        let mut c = server.connect();
        policies::set(&mut c, &POLICIES);
        let () = ask(&mut c, "RL.PLAN u gone");
        assert_eq!(ask::<Reply>(&mut c, "RL.CHECK u @plan:free")[1], 2);
        assert_eq!(ask::<Reply>(&mut c, "RL.PEEK u @plan:free")[1], 2);
        let _: Vec<i64> = ask(&mut c, "RL.MCHECK 2 u v @plan:free");
        assert_eq!(
            info(&mut c, "ratelimit", "ratelimit_plans_unknown") as u64,
            2,
            "a peek counts nothing"
        );
        // The policy may be set later.
        let () = ask(&mut c, "RL.POLICY SET gone 7/m");
        assert_eq!(ask::<Reply>(&mut c, "RL.CHECK u @plan:free")[1], 7);
        // Without a plan, an unknown default is an error.
        let error = refusal(&mut c, "RL.CHECK new @plan:none");
        assert!(error.contains("rule '@plan:none': unknown policy"), "{error}");
        assert!(!exists(&mut c, "new"));
    });
}

#[test]
fn two_rules_of_one_identity_are_refused_with_and_without_a_plan() {
    server::on_all(|server| {
        let mut c = server.connect();
        policies::set(&mut c, &POLICIES);
        for plan in [None, Some("pro"), Some("gone")] {
            if let Some(plan) = plan {
                let () = ask(&mut c, &format!("RL.PLAN u {plan}"));
            }
            let error = refusal(&mut c, "RL.CHECK u 2/m @plan:free");
            assert!(error.contains("same identity as rule 'log:2/1m'"), "{error}");
        }
        let error = refusal(&mut c, "RL.POLICY SET x @plan:free");
        assert!(error.contains("a policy may not name another"), "{error}");
    });
}

#[test]
fn each_of_several_keys_has_its_own_plan() {
    server::on_all(|server| {
        let mut c = server.connect();
        policies::set(&mut c, &POLICIES);
        let () = ask(&mut c, "RL.PLAN {p}b pro");
        let reply: Vec<i64> = ask(&mut c, "RL.MCHECK 3 {p}a {p}b {p}c @plan:free");
        assert_eq!(reply[..3], [0, 2, 1]);
        let left = |c: &mut Connection, key: &str| {
            ask::<Reply>(c, &format!("RL.PEEK {key} @plan:free"))[2]
        };
        assert_eq!(["{p}a", "{p}b", "{p}c"].map(|key| left(&mut c, key)), [1, 99, 1]);
        let any =
            |c: &mut Connection| -> Vec<i64> { ask(c, "RL.MCHECK 2 {p}a {p}b ANY @plan:free") };
        assert_eq!(any(&mut c)[5], 0);
        assert_eq!(any(&mut c)[..3], [0, 100, 98], "the first key's units are used up");
        let mixed: Vec<i64> =
            ask(&mut c, "RL.MCHECK 2 {p}b {p}c COST 0 @plan:free NEXT 9/h @plan:free");
        assert_eq!(mixed[0], 0);
        // Keys store states by rule, not by policy.
        let copy = dump(&mut c, "{p}b");
        let () = ask(&mut c, "RL.POLICY DEL pro FORCE");
        assert_eq!(dump(&mut c, "{p}b"), copy);
    });
}

#[test]
fn blocks_exemptions_and_pauses_take_precedence_over_a_plan_and_a_reset_keeps_it() {
    server::on_all(|server| {
        let mut c = server.connect();
        policies::set(&mut c, &POLICIES);
        let () = ask(&mut c, "RL.PLAN u pro");
        for (command, verdict, undo) in [
            ("RL.BLOCK u", 2, "RL.UNBLOCK u"),
            ("RL.EXEMPT u", 0, "RL.UNEXEMPT u"),
            ("RL.PAUSE u EX 100", 1, "RL.RESUME u"),
        ] {
            let _: Value = ask(&mut c, command);
            let limit = if verdict == 0 { -1 } else { 0 };
            assert_eq!(ask::<Reply>(&mut c, "RL.CHECK u @plan:free")[..2], [verdict, limit]);
            let _: Value = ask(&mut c, undo);
            assert_eq!(ask::<Reply>(&mut c, "RL.CHECK u @plan:free")[..2], [0, 100]);
        }
        let _: Value = ask(&mut c, "RL.RESET u");
        assert_eq!(ask::<Reply>(&mut c, "RL.CHECK u @plan:free")[..3], [0, 100, 99]);
        let _: Value = ask(&mut c, "DEL u");
        assert_eq!(ask::<Reply>(&mut c, "RL.CHECK u @plan:free")[..3], [0, 2, 1]);
    });
}

#[test]
fn a_plan_that_changes_wakes_the_line() {
    server::on_all(|server| {
        let mut c = server.connect();
        policies::set(&mut c, &POLICIES);
        let _: Value = ask(&mut c, "RL.CHECK u COST 2 @plan:free");
        let upgraded = wait_in_line(server, "RL.WAIT u 60000 @plan:free");
        let () = ask(&mut c, "RL.PLAN u pro");
        assert_eq!(upgraded.answer::<Reply>()[..3], [0, 100, 97]);
        // Once the plan has ended, the default decides.
        let () = ask(&mut c, "RL.POLICY SET other bucket:5/m");
        let () = ask(&mut c, "RL.PLAN v pro");
        let _: Value = ask(&mut c, "RL.CHECK v COST 100 @plan:other");
        let waiting = wait_in_line(server, "RL.WAIT v 60000 @plan:other");
        let () = ask(&mut c, "RL.PLAN v pro PX 300");
        assert_eq!(waiting.answer::<Reply>()[..2], [0, 5]);
    });
}

#[test]
fn replicas_files_and_copies_have_the_plan() {
    server::on_all(|server| {
        let mut c = server.connect();
        policies::set(&mut c, &POLICIES);
        let replica = replica_of(server);
        let mut r = replica.connect();
        let _: Value = ask(&mut c, "RL.CHECK u @plan:free");
        let () = ask(&mut c, "RL.PLAN u pro FOR 1h");
        let () = ask(&mut c, "RL.PLAN v pro");
        let _: Value = ask(&mut c, "RL.CHECK u @plan:free");
        let _: Value = ask(&mut c, "RL.CHECK v COST 3 @plan:free");
        replicated(&mut c);
        assert_eq!(digest(&mut r), digest(&mut c));
        for key in ["u", "v"] {
            assert_eq!(field(&mut r, key, "plan"), text("pro"));
            assert_eq!(
                expires_ms(&mut r, server.flavor(), key),
                expires_ms(&mut c, server.flavor(), key)
            );
        }
        let _: Value = ask(&mut c, "COPY u w");
        let copied = dump(&mut c, "u");
        let () = ask(&mut c, "DEBUG RELOAD");
        assert_eq!((dump(&mut c, "u"), dump(&mut c, "w")), (copied.clone(), copied));
        let _: i64 = ask(&mut c, "RL.UNPLAN u");
        replicated(&mut c);
        assert_eq!(digest(&mut r), digest(&mut c));
        // A promoted replica decides by the plans.
        let () = ask(&mut r, "REPLICAOF NO ONE");
        assert_eq!(ask::<Reply>(&mut r, "RL.CHECK v @plan:free")[..3], [0, 100, 96]);
        let [_, _, _, _, reset_ms] = ask::<Reply>(&mut r, "RL.PEEK v @plan:free");
        assert!(reset_ms <= 60_000);
    });
}

#[test]
fn an_explanation_says_that_a_plan_may_decide() {
    server::on_all(|server| {
        let mut c = server.connect();
        policies::set(&mut c, &POLICIES);
        let () = ask(&mut c, "RL.POLICY SET two 5/s 9/h");
        let plain: Vec<String> = ask(&mut c, "RL.EXPLAIN 1/d 5/s 9/h");
        let planned: Vec<String> = ask(&mut c, "RL.EXPLAIN 1/d @plan:two");
        let with_plan =
            |text: &String| format!("unless the key's plan names another policy: {text}");
        let expected = [plain[0].clone(), with_plan(&plain[1]), with_plan(&plain[2])];
        assert_eq!(planned, expected);
    });
}
