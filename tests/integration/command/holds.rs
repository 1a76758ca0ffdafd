//! `HOLD`, `RL.SETTLE` and `RL.RENEW`: repeats, refusals, bounds, and keys that are blocked or exempt.
//! `engine/src/tests/laws/holds/` has worked examples.

mod propagation;

use std::collections::BTreeMap;

use redis::{Connection, FromRedisValue, Value, cmd};

use crate::support::client::{START_US, ask, attempt, command, dump, exists, refusal, verdict};
use crate::support::server::{self, Builder};

/// The time that is `seconds` after the start, or before it if negative.
fn at_us(seconds: &str) -> u64 {
    let seconds: f64 = seconds.parse().expect("seconds");
    START_US.checked_add_signed((seconds * 1e6).round() as i64).expect("a time")
}

/// The command for a line such as `CHECK k 5/m`, executed at this time.
fn command_at(seconds: &str, line: &str) -> String {
    let words: Vec<_> = line.split(' ').collect();
    let keys = match words[0] {
        "CHECK" | "PEEK" => 1,
        "MCHECK" => 1 + words[1].parse::<usize>().expect("the number of keys"),
        "REFUND" => 2,
        _ => words.len() - 1,
    };
    let (before, after) = words.split_at(1 + keys);
    let at = at_us(seconds).to_string();
    ["RL.", &[before, &["AT", &at], after].concat().join(" ")].concat()
}

/// The integers of a reply, separated by spaces.
fn integers(reply: Value) -> String {
    let integers = match reply {
        Value::Array(_) => Vec::<i64>::from_redis_value(reply),
        one => i64::from_redis_value(one).map(|one| vec![one]),
    };
    let integers = integers.expect("integers");
    integers.iter().map(i64::to_string).collect::<Vec<_>>().join(" ")
}

/// Seconds, a line, and its reply.
type Step = (&'static str, &'static str, &'static str);

/// Executes steps at their times, and compares the replies.
pub(super) fn play(c: &mut Connection, steps: &[Step]) {
    for (seconds, line, reply) in steps {
        let given = ask(c, &command_at(seconds, line));
        assert_eq!(integers(given), *reply, "at {seconds}: {line}");
    }
}

#[test]
fn a_repeat_changes_nothing_but_the_end_and_the_length_of_the_hold() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        let rules = "100/m bucket:5/s,name=b leaky:5/s fixed:9/d,cost=2 window:9/h,shadow";
        let taken = format!("CHECK k HOLD r EX 30 {rules}");
        let first = integers(ask(&mut c, &command_at("0", &taken)));
        let before = dump(&mut c, "k");
        for _ in 0..3 {
            assert_eq!(integers(ask(&mut c, &command_at("0", &taken))), first);
        }
        assert_eq!(dump(&mut c, "k"), before, "the end and the length are the same");
        // Limits and rules may have changed meanwhile, and may even deny.
        for rules in ["0/m", "5/m fixed:0/h", "bucket:5/s,name=new"] {
            let repeat = command_at("0", &format!("CHECK k HOLD r EX 30 {rules}"));
            assert_eq!(verdict(&mut c, &repeat), 0, "{rules}");
            assert_eq!(dump(&mut c, "k"), before, "{rules}");
        }
        play(&mut c, &[("20", "CHECK k HOLD r EX 30 100/m", "0 100 99 0 40000")]);
        assert_ne!(dump(&mut c, "k"), before, "the hold has a new end");
        play(
            &mut c,
            &[("49.999", "SETTLE k r REFUND", "1"), ("49.999", "PEEK k 100/m", "0 100 100 0 0")],
        );
    });
}

#[test]
fn a_refused_hold_changes_nothing() {
    server::on_all_with(
        |builder| builder.module_args(&["max-holds", "2"]),
        |server| {
            let mut c = server.connect();
            for id in ["a", "b"] {
                assert_eq!(
                    verdict(
                        &mut c,
                        &format!("RL.CHECK k HOLD {id} EX 90 COST 2 bucket:9/h,name=x")
                    ),
                    0
                );
            }
            let before = dump(&mut c, "k");
            for (line, parts) in [
                (
                    "RL.CHECK k HOLD c EX 90 bucket:9/h,name=x",
                    &["2 holds", "(ratelimit.max-holds)"][..],
                ),
                (
                    "RL.MCHECK 2 new k HOLD c EX 90 bucket:9/h,name=x",
                    &["2 holds", "(ratelimit.max-holds)"],
                ),
                (
                    "RL.CHECK k HOLD a EX 90 COST 3 bucket:9/h,name=x",
                    &["hold 'a' was taken with other costs"],
                ),
                (
                    "RL.CHECK k HOLD a EX 90 COST 2 COST x=1 bucket:9/h,name=x",
                    &["hold 'a'", "other costs"],
                ),
                (
                    "RL.CHECK k HOLD a EX 90 COST 3..69 bucket:69/h,burst=69,name=x",
                    &["cost 2, given 3..69"],
                ),
                (
                    "RL.PEEK k HOLD a EX 90 bucket:9/h",
                    &["HOLD is refused", "RL.CHECK or RL.MCHECK"],
                ),
            ] {
                let error = refusal(&mut c, line);
                for part in parts {
                    assert!(error.contains(part), "{line}: {error}");
                }
                assert_eq!(dump(&mut c, "k"), before, "{line}");
                assert!(!exists(&mut c, "new"), "{line}");
            }
            // A repeat needs no room, and a settled hold frees its room.
            assert_eq!(verdict(&mut c, "RL.CHECK k HOLD a EX 90 COST 2 bucket:9/h,name=x"), 0);
            assert_eq!(ask::<i64>(&mut c, "RL.SETTLE k a"), 1);
            assert_eq!(verdict(&mut c, "RL.CHECK k HOLD c EX 90 bucket:9/h,name=x"), 0);
        },
    );
}

#[test]
fn the_rules_of_all_holds_in_a_key_are_bounded() {
    server::on_all_with(
        |builder| builder.allow_at().module_args(&["max-holds", "2"]),
        |server| {
            let mut c = server.connect();
            let held_on = |id: &str, rules: std::ops::Range<u8>, rule: &str| {
                let rules: String = rules.map(|n| format!(" {rule},name=r{n}")).collect();
                format!("CHECK k HOLD {id} EX 9{rules}")
            };
            let eight = command_at("0", &held_on("a", 0..8, "fixed:9/h"));
            assert_eq!(verdict(&mut c, &eight), 0);
            let before = dump(&mut c, "k");
            let mut restore = command("RESTORE restored 0");
            let () = restore.arg(ask::<Vec<u8>>(&mut c, "DUMP k")).query(&mut c).expect("OK");
            for line in [
                "CHECK k HOLD b EX 9 9/h",
                "CHECK restored HOLD b EX 9 9/h",
                "MCHECK 2 new k HOLD b EX 9 9/h",
            ] {
                let error = refusal(&mut c, &command_at("1", line));
                let expected = "holds on 8 rules or more in the key already (4 for each of ratelimit.max-holds)";
                assert!(error.contains(expected), "{line}: {error}");
                assert_eq!(dump(&mut c, "k"), before, "{line}");
                assert!(!exists(&mut c, "new"), "{line}");
            }
            // Lapsed holds need no room. Log rules share a charge, but each keeps its name.
            let named = command_at("9", &held_on("b", 10..17, "99/h"));
            assert_eq!(verdict(&mut c, &named), 0);
            assert_eq!(verdict(&mut c, &command_at("10", "CHECK k HOLD c EX 9 99/h")), 0);
            let named = command_at("19", &held_on("d", 20..28, "99/h"));
            assert_eq!(verdict(&mut c, &named), 0);
            let error = refusal(&mut c, &command_at("20", "CHECK k HOLD e EX 9 99/h"));
            assert!(error.contains("holds on 8 rules"), "{error}");
            assert_eq!(ask::<i64>(&mut c, &command_at("21", "SETTLE k d")), 1);
            assert_eq!(verdict(&mut c, &command_at("21", "CHECK k HOLD e EX 9 99/h")), 0);
        },
    );
}

#[test]
fn denied_checks_and_blocked_or_exempt_keys_take_no_hold() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK denied HOLD r EX 90 COST 2 1/h"), 1);
        assert!(!exists(&mut c, "denied"));
        for (line, reply) in [("RL.SETTLE denied r", 0), ("RL.RENEW denied r EX 9", 0)] {
            assert_eq!(ask::<i64>(&mut c, line), reply, "{line}");
        }
        // If one of several keys denies, the others take no hold either.
        assert_eq!(verdict(&mut c, "RL.MCHECK 2 one two HOLD r EX 90 5/h NEXT 0/h"), 1);
        assert!(!exists(&mut c, "one"));

        let () = ask(&mut c, "RL.EXEMPT friend");
        assert_eq!(verdict(&mut c, "RL.CHECK friend HOLD r EX 90 0/h"), 0);
        assert_eq!(ask::<i64>(&mut c, "RL.RENEW friend r EX 90"), 1);
        assert_eq!(ask::<i64>(&mut c, "RL.SETTLE friend r"), 0);

        // A block refuses a repeat, but the hold can still be renewed and settled.
        assert_eq!(verdict(&mut c, "RL.CHECK foe HOLD r EX 90 COST 3 5/h"), 0);
        let () = ask(&mut c, "RL.BLOCK foe EX 90");
        assert_eq!(verdict(&mut c, "RL.CHECK foe HOLD r EX 90 COST 3 5/h"), 2);
        assert_eq!(verdict(&mut c, "RL.CHECK foe HOLD s EX 90 5/h"), 2);
        for (line, reply) in [
            ("RL.RENEW foe s EX 90", 0),
            ("RL.RENEW foe r EX 90", 1),
            ("RL.SETTLE foe r COST 1", 1),
            ("RL.SETTLE foe r COST 1", 0),
        ] {
            assert_eq!(ask::<i64>(&mut c, line), reply, "{line}");
        }
        assert_eq!(ask::<i64>(&mut c, "RL.UNBLOCK foe"), 1);
        assert_eq!(ask::<[i64; 5]>(&mut c, "RL.PEEK foe 5/h")[2], 4);
    });
}

#[test]
fn one_mcheck_takes_a_hold_in_each_key() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        let at = |seconds| format!("AT {}", at_us(seconds));
        let check = |seconds| format!("RL.MCHECK 2 a b HOLD r EX 30 COST 2 {} 5/m", at(seconds));
        assert_eq!(integers(ask(&mut c, &check("0"))), "0 5 3 0 60000");
        assert_eq!(integers(ask(&mut c, &check("0"))), "0 5 3 0 60000");
        play(&mut c, &[("1", "SETTLE a r REFUND", "1"), ("1", "PEEK b 5/m", "0 5 3 0 59000")]);
        // The hold lives in b, where the check costs nothing, and is taken again in a.
        assert_eq!(verdict(&mut c, &check("1")), 0);
        play(
            &mut c,
            &[
                ("1", "PEEK a 5/m", "0 5 3 0 60000"),
                ("1", "PEEK b 5/m", "0 5 3 0 59000"),
                ("30.999", "SETTLE a r", "1"),
                ("30.999", "SETTLE b r", "1"),
            ],
        );
    });
}

#[test]
fn transactions_and_scripts_hold_and_settle() {
    server::on_all(|server| {
        let mut c = server.connect();
        for line in
            ["MULTI", "RL.CHECK k HOLD r EX 90 COST 3 5/h", "RL.SETTLE k r COST 1", "RL.PEEK k 5/h"]
        {
            let _: Value = ask(&mut c, line);
        }
        let (_, settled, peek): (Value, i64, [i64; 5]) = ask(&mut c, "EXEC");
        assert_eq!((settled, peek[2]), (1, 4));
        let script = "redis.call('RL.CHECK', KEYS[1], 'HOLD', 's', 'EX', 9, 'COST', 2, '5/h') \
                      redis.call('RL.RENEW', KEYS[1], 's', 'EX', 90) \
                      return redis.call('RL.SETTLE', KEYS[1], 's', 'REFUND')";
        let settled: i64 = cmd("EVAL").arg(script).arg(1).arg("k").query(&mut c).unwrap();
        assert_eq!(settled, 1);
        assert_eq!(ask::<[i64; 5]>(&mut c, "RL.PEEK k 5/h")[2], 4);
    });
}

#[test]
fn holds_are_settled_when_memory_is_full() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK k HOLD r EX 90 COST 3 5/h"), 0);
        let () = ask(&mut c, "CONFIG SET maxmemory 1");
        let error = attempt(&mut c, "RL.CHECK k 5/h").expect_err("no memory").to_string();
        assert!(error.contains("OOM"), "{error}");
        assert_eq!(ask::<i64>(&mut c, "RL.RENEW k r EX 90"), 1);
        assert_eq!(ask::<i64>(&mut c, "RL.SETTLE k r COST 1"), 1);
        let () = ask(&mut c, "CONFIG SET maxmemory 0");
        assert_eq!(ask::<[i64; 5]>(&mut c, "RL.PEEK k 5/h")[2], 4);
    });
}

#[test]
fn info_shows_the_holds_that_lapse_next() {
    server::on_all(|server| {
        let mut c = server.connect();
        for n in 0..12 {
            let line = format!("RL.CHECK k HOLD call-{n} EX {} REFUND COST {n} 999/h", 900 - n);
            assert_eq!(verdict(&mut c, &line), 0);
        }
        let pairs: Vec<(String, Value)> = ask(&mut c, "RL.INFO k");
        let info: BTreeMap<_, _> = pairs.into_iter().collect();
        assert_eq!(i64::from_redis_value(info["holds"].clone()).unwrap(), 12);
        let next: Vec<Vec<(String, Value)>> =
            Vec::from_redis_value(info["next_holds"].clone()).unwrap();
        assert_eq!(next.len(), 10);
        for (hold, n) in next.into_iter().zip((0..12).rev()) {
            let [(id, name), (ttl, left_ms), (units, charged), (refund, flag)] =
                hold.try_into().expect("four fields");
            assert_eq!([&*id, &ttl, &units, &refund], ["id", "ttl_ms", "units", "refund"]);
            assert_eq!(String::from_redis_value(name).unwrap(), format!("call-{n}"));
            let left_ms = i64::from_redis_value(left_ms).unwrap();
            assert!((0..=(900 - n) * 1_000).contains(&left_ms), "{left_ms}");
            assert_eq!(i64::from_redis_value(charged).unwrap(), n);
            assert_eq!(i64::from_redis_value(flag).unwrap(), 1);
        }
    });
}
