//! `RL.THROTTLE` and `CL.THROTTLE`: redis-cell's arguments and reply on this module's data
//! type. `redis_cell.rs` compares the replies with those of redis-cell itself.

mod redis_cell;

use std::time::{Duration, Instant};

use redis::{Connection, Value, cmd};

use crate::support::client::{ask, digest, exists, info, refusal, replica_of, replicated, touches};
use crate::support::files::crash;
use crate::support::server::{self, Builder, eventually};
use crate::support::workload::link::offset;

const NAMES: [&str; 2] = ["RL.THROTTLE", "CL.THROTTLE"];

/// The retry time of a request that can never pass; an allowed request has -1.
const NEVER: i64 = 2_147_483_647;

fn throttle(c: &mut Connection, line: &str) -> [i64; 5] {
    ask(c, &format!("RL.THROTTLE {line}"))
}

/// Checks the replies to calls in turn, after `preparation` on an empty server. Replies in
/// seconds stay right for only a second, so calls that took longer are repeated.
fn assert_replies(c: &mut Connection, preparation: &[&str], expected: &[(&str, [i64; 5])]) {
    let mut in_time = Vec::new();
    eventually("all calls to take less than a second", || {
        let () = ask(c, "FLUSHALL");
        let start = Instant::now();
        for line in preparation {
            let _: Value = ask(c, line);
        }
        in_time = expected.iter().map(|(call, _)| throttle(c, call)).collect();
        start.elapsed() < Duration::from_secs(1)
    });
    for (reply, (call, expected)) in in_time.iter().zip(expected) {
        assert_eq!(reply, expected, "{preparation:?}, then {call}");
    }
}

#[test]
fn the_reply_equals_the_one_in_the_readme_of_redis_cell() {
    server::on_all(|server| {
        let mut c = server.connect();
        for name in NAMES {
            let reply: [i64; 5] = ask(&mut c, &format!("{name} {name} 15 30 60"));
            assert_eq!(reply, [0, 16, 15, -1, 2]);
            // Both commands use one bucket.
            for name_then in NAMES {
                let reply: [i64; 5] = ask(&mut c, &format!("{name_then} {name} 15 30 60 0"));
                assert_eq!(reply[..4], [0, 16, 15, -1]);
            }
        }
    });
}

#[test]
fn calls_take_units_until_none_are_left_and_then_get_a_wait() {
    server::on_all(|server| {
        let mut c = server.connect();
        // One unit an hour: none comes back while the test runs.
        let expected = [
            ("k 4 24 86400", [0, 5, 4, -1, 3_600]),
            ("k 4 24 86400 3", [0, 5, 1, -1, 14_400]),
            ("k 4 24 86400 0", [0, 5, 1, -1, 14_400]),
            ("k 4 24 86400 2", [1, 5, 1, 3_600, 14_400]),
            ("k 4 24 86400 5", [1, 5, 1, 14_400, 14_400]),
            // More units than the bucket holds.
            ("k 4 24 86400 6", [1, 5, 1, NEVER, 14_400]),
            ("k 4 24 86400", [0, 5, 0, -1, 18_000]),
            ("k 4 24 86400", [1, 5, 0, 3_600, 18_000]),
            // The units stay if the burst changes, if the rate is written differently, or if the rate
            // changes.
            ("k 9 24 86400 0", [0, 10, 5, -1, 18_000]),
            ("k 1 24 86400 0", [1, 2, 0, 10_800, 18_000]),
            ("k 9 1 3600 0", [0, 10, 5, -1, 18_000]),
            ("k 9 48 86400 0", [0, 10, 5, -1, 9_000]),
            ("none 4 24 86400 0", [0, 5, 5, -1, 0]),
            ("none 4 24 86400 6", [1, 5, 5, NEVER, 0]),
        ];
        assert_replies(&mut c, &[], &expected);
        assert!(!exists(&mut c, "none"));
    });
}

#[test]
fn a_negative_quantity_gives_back_no_more_than_was_taken() {
    server::on_all(|server| {
        let mut c = server.connect();
        let expected = [
            ("k 4 24 86400 5", [0, 5, 0, -1, 18_000]),
            ("k 4 24 86400 -2", [0, 5, 2, -1, 10_800]),
            ("k 1 24 86400 -1", [0, 2, 0, -1, 7_200]),
            ("k 0 24 86400 -0", [1, 1, 0, 3_600, 7_200]),
            ("k 4 24 86400 -9", [0, 5, 5, -1, 0]),
            ("k 4 24 86400 -1", [0, 5, 5, -1, 0]),
        ];
        assert_replies(&mut c, &[], &expected);
        assert!(!exists(&mut c, "k"));
    });
}

#[test]
fn a_rate_of_zero_denies_everything() {
    server::on_all(|server| {
        let mut c = server.connect();
        let expected = [
            ("k 4 0 60", [1, 5, 0, NEVER, 0]),
            ("k 4 0 60 0", [0, 5, 0, -1, 0]),
            ("k 4 24 86400 2", [0, 5, 3, -1, 7_200]),
            // At a rate of zero nothing passes, but the state still ends.
            ("k 4 0 60", [1, 5, 0, NEVER, 7_200]),
            ("k 4 0 60 -1", [0, 5, 0, -1, 3_600]),
            ("k 4 24 86400 0", [0, 5, 4, -1, 3_600]),
        ];
        assert_replies(&mut c, &[], &expected);
    });
}

#[test]
fn the_largest_and_smallest_arguments_get_exact_replies() {
    server::on_all(|server| {
        let mut c = server.connect();
        let (most, year) = (1_000_000_000, 31_622_400);
        for (call, reply) in [
            ("a 0 1 31622400", [0, 1, 0, -1, year]),
            // A hundred thousand years.
            ("b 999999999 10000 31622400 1000000000", [0, most, 0, -1, most * year / 10_000]),
            ("c 999999999 1000000000 1 1000000000", [0, most, 0, -1, 1]),
            ("d 0 1000000000 1", [0, 1, 0, -1, 1]),
        ] {
            assert_eq!(throttle(&mut c, call), reply, "{call}");
        }
        assert!(exists(&mut c, "b"));
        // More microseconds than 64 bits can hold.
        let [limited, limit, remaining, retry_after, reset_after] =
            throttle(&mut c, "e 999999999 1 31622400 1000000000");
        assert_eq!([limited, limit, remaining, retry_after], [0, most, 0, -1]);
        assert!(reset_after > 500_000 * year, "{reset_after}");
        // A client with 32-bit integers must not misread a long wait.
        let denied = throttle(&mut c, "e 999999999 1 31622400 1000000000");
        assert_eq!(denied[..4], [1, most, 0, NEVER]);
        // A key may be any bytes.
        let key: &[u8] = &[0xff, 0, b'\r', b'\n'];
        let reply: [i64; 5] = cmd("CL.THROTTLE").arg(key).arg(&[0, 1, 60]).query(&mut c).unwrap();
        assert_eq!(reply, [0, 1, 0, -1, 60]);
    });
}

#[test]
fn wrong_arguments_are_refused_and_change_nothing() {
    const WRONG: [(&str, &str); 5] = [
        ("15 30", "wrong number of arguments"),
        ("15 30 60 1 1", "wrong number of arguments"),
        ("-1 30 60", "max_burst is '-1', expected an integer 0..999999999"),
        ("15 30 31622401", "period is '31622401'"),
        ("15 30 60 1.5", "quantity is '1.5'"),
    ];
    server::on_all(|server| {
        let mut c = server.connect();
        throttle(&mut c, "k 15 30 60");
        let before: Vec<u8> = ask(&mut c, "DUMP k");
        for name in NAMES {
            for (arguments, why) in WRONG {
                let line = format!("{name} k {arguments}");
                let error = refusal(&mut c, line.trim_end());
                assert!(error.contains(why), "{line}: «{error}» does not say «{why}»");
            }
            assert!(refusal(&mut c, name).contains("wrong number of arguments"));
        }
        assert_eq!(ask::<Vec<u8>>(&mut c, "DUMP k"), before);
        // A key that redis-cell wrote has another type.
        let () = ask(&mut c, "SET theirs 1795282403083671038");
        assert!(refusal(&mut c, "CL.THROTTLE theirs 15 30 60").contains("WRONGTYPE"));
    });
}

#[test]
fn blocks_and_exemptions_apply() {
    server::on_all(|server| {
        let mut c = server.connect();
        for (access, reply) in [
            ("RL.BLOCK k EX 3600", [1, 5, 0, 3_600, 3_600]),
            ("RL.BLOCK k", [1, 5, 0, NEVER, -1]),
            ("RL.EXEMPT k", [0, 5, 5, -1, 0]),
        ] {
            let expected = [("k 4 24 86400 0", reply), ("k 4 24 86400 9", reply)];
            assert_replies(&mut c, &["RL.THROTTLE k 4 24 86400 2", access], &expected);
        }
        // No unit was taken while the key was exempt.
        let _: i64 = ask(&mut c, "RL.UNEXEMPT k");
        assert_eq!(throttle(&mut c, "k 4 24 86400 0")[..4], [0, 5, 3, -1]);
    });
}

#[test]
fn the_state_is_a_bucket_named_throttle() {
    const RULE: &str = "bucket:24/d,burst=5,name=throttle";
    server::on_all(|server| {
        let mut c = server.connect();
        throttle(&mut c, "k 4 24 86400 3");
        let by_throttle: Vec<u8> = ask(&mut c, "DUMP k");
        assert!(!by_throttle.is_empty());
        let [verdict, limit, remaining, ..]: [i64; 5] = ask(&mut c, &format!("RL.PEEK k {RULE}"));
        assert_eq!([verdict, limit, remaining], [0, 5, 2]);
        let given: i64 = ask(&mut c, &format!("RL.REFUND k 1 {RULE}"));
        assert_eq!(given, 1);
        let _: [i64; 5] = ask(&mut c, &format!("RL.CHECK k COST 2 {RULE}"));
        assert_eq!(throttle(&mut c, "k 4 24 86400 0")[..4], [0, 5, 1, -1]);
        let kind: String = ask(&mut c, "TYPE k");
        assert_eq!(kind, "ratelimit");
        // The key expires once the bucket is full, or up to an eighth of the period later.
        let left_s: i64 = ask(&mut c, "TTL k");
        assert!((14_380..=14_400 + 86_400 / 8).contains(&left_s), "{left_s}");
    });
}

#[test]
fn calls_are_counted_and_denials_are_in_rl_top() {
    server::on_all(|server| {
        let mut c = server.connect();
        for quantity in [1, 1, 1, 0, -9] {
            throttle(&mut c, &format!("k 1 1 3600 {quantity}"));
        }
        for (field, count) in
            [("checks", 4.0), ("allowed", 3.0), ("limited", 1.0), ("refunded_units", 2.0)]
        {
            assert_eq!(info(&mut c, "ratelimit", &format!("ratelimit_{field}")), count, "{field}");
        }
        let top: Vec<(String, i64, u64)> = ask(&mut c, "RL.TOP");
        assert_eq!((top.len(), top[0].0.as_str(), top[0].1), (1, "k", 1));
    });
}

#[test]
fn only_taken_and_returned_units_are_replicated() {
    const LINES: [&str; 8] = [
        "a 4 24 86400 3",
        "a 9 7 61 2",
        "a 9 1000000000 31622400 -1",
        "b 0 3 3600",
        "c 4 24 86400 2",
        "c 4 24 86400 -2",
        "d 999999999 24 86400 1000000000",
        // Takes nothing, but gives the state another period.
        "a 4 24 86400 0",
    ];
    const IDLE: [&str; 5] =
        ["a 4 24 86400 6", "a 4 24 86400 0", "e 4 24 86400 0", "e 4 24 86400 -1", "e 4 0 60"];
    server::on_all(|server| {
        let replica = replica_of(server);
        let mut c = server.connect();
        for line in LINES {
            throttle(&mut c, line);
        }
        replicated(&mut c);
        assert_eq!(digest(&mut replica.connect()), digest(&mut c));

        let () = ask(&mut c, "CONFIG SET repl-ping-replica-period 3600");
        let before = offset(&mut c);
        for line in IDLE {
            throttle(&mut c, line);
        }
        assert_eq!(offset(&mut c), before);
    });
}

#[test]
fn only_taken_and_returned_units_touch_the_key() {
    server::on_all(|server| {
        let mut c = server.connect();
        for (quantity, changes) in [(1, true), (-1, true), (0, false), (3, false), (9, false)] {
            let () = ask(&mut c, "FLUSHALL");
            throttle(&mut c, "k 4 24 86400 3");
            let call = format!("RL.THROTTLE k 4 24 86400 {quantity}");
            assert_eq!(touches(server, "k", &call), changes, "{quantity}");
        }
    });
}

/// Checks that the server has `RL.THROTTLE`, and no `CL.THROTTLE`.
fn assert_without_alias(c: &mut Connection) {
    assert_eq!(throttle(c, "k 15 30 60"), [0, 16, 15, -1, 2]);
    let error = refusal(c, "CL.THROTTLE k 15 30 60");
    assert!(error.contains("unknown command"), "{error}");
}

#[test]
fn without_the_alias_there_is_no_cl_throttle() {
    server::on_all_with(
        |builder| builder.module_args(&["throttle-alias", "no"]),
        |server| assert_without_alias(&mut server.connect()),
    );
}

#[test]
fn the_alias_can_be_turned_off_in_the_file_and_not_at_run_time() {
    let in_the_file = |builder: Builder| match builder.flavor().is_7_or_later() {
        true => builder.config("ratelimit.throttle-alias", "no"),
        false => builder, // Settings of modules came with 7.0.
    };
    server::on_all_with(in_the_file, |server| {
        if !server.flavor().is_7_or_later() {
            return; // 6.2 takes this setting only as an argument of loadmodule.
        }
        let mut c = server.connect();
        assert_without_alias(&mut c);
        let error = refusal(&mut c, "CONFIG SET ratelimit.throttle-alias yes");
        assert!(error.contains("immutable"), "{error}");
        let () = ask(&mut c, "CONFIG REWRITE");
        server.restart();
        let mut c = server.connect();
        let () = ask(&mut c, "FLUSHALL");
        assert_without_alias(&mut c);

        server.edit_config(|lines| {
            lines.retain(|line| !line.starts_with("ratelimit.throttle-alias"));
        });
        crash(server);
        let mut c = server.connect();
        let reply: [i64; 5] = ask(&mut c, "CL.THROTTLE other 15 30 60");
        assert_eq!(reply, [0, 16, 15, -1, 2]);
    });
}
