//! `RL.THROTTLE` and `CL.THROTTLE`: redis-cell's arguments and reply on our own data type. How
//! they compare with redis-cell itself is in `redis_cell.rs`.

mod redis_cell;

use std::time::{Duration, Instant};

use redis::{Connection, Value, cmd};

use crate::support::client::{ask, digest, exists, info, refusal, replica_of, replicated};
use crate::support::server::{self, Builder, eventually};
use crate::support::settings;

const NAMES: [&str; 2] = ["RL.THROTTLE", "CL.THROTTLE"];

/// The retry of a request that can never pass: -1 is what an allowed one has.
const NEVER: i64 = 2_147_483_647;

fn throttle(c: &mut Connection, line: &str) -> [i64; 5] {
    ask(c, &format!("RL.THROTTLE {line}"))
}

/// That calls are answered like this, one after the other, on an empty server after `setting`.
/// What is said in seconds holds for one second: a machine that pauses is asked again.
fn assert_replies(c: &mut Connection, setting: &[&str], expected: &[(&str, [i64; 5])]) {
    let mut in_time = Vec::new();
    eventually("some calls to be made within a second", || {
        let () = ask(c, "FLUSHALL");
        let start = Instant::now();
        for line in setting {
            let _: Value = ask(c, line);
        }
        in_time = expected.iter().map(|(call, _)| throttle(c, call)).collect();
        start.elapsed() < Duration::from_secs(1)
    });
    for (reply, (call, expected)) in in_time.iter().zip(expected) {
        assert_eq!(reply, expected, "{setting:?}, then {call}");
    }
}

#[test]
fn the_reply_is_the_one_of_redis_cells_readme() {
    server::on_all(|server| {
        let mut c = server.connect();
        for name in NAMES {
            let reply: [i64; 5] = ask(&mut c, &format!("{name} {name} 15 30 60"));
            assert_eq!(reply, [0, 16, 15, -1, 2]);
            // The bucket is the same one, whatever the command is called.
            for name_then in NAMES {
                let reply: [i64; 5] = ask(&mut c, &format!("{name_then} {name} 15 30 60 0"));
                assert_eq!(reply[..4], [0, 16, 15, -1]);
            }
        }
    });
}

#[test]
fn units_are_taken_until_there_are_no_more_and_then_there_is_a_time_to_wait() {
    server::on_all(|server| {
        let mut c = server.connect();
        // A unit an hour: no machine is slow enough to see one come back.
        let expected = [
            ("k 4 24 86400", [0, 5, 4, -1, 3_600]),
            ("k 4 24 86400 3", [0, 5, 1, -1, 14_400]),
            ("k 4 24 86400 0", [0, 5, 1, -1, 14_400]),
            ("k 4 24 86400 2", [1, 5, 1, 3_600, 14_400]),
            ("k 4 24 86400 5", [1, 5, 1, 14_400, 14_400]),
            // More than there can ever be.
            ("k 4 24 86400 6", [1, 5, 1, NEVER, 14_400]),
            ("k 4 24 86400", [0, 5, 0, -1, 18_000]),
            ("k 4 24 86400", [1, 5, 0, 3_600, 18_000]),
            // Another burst, another way to write the rate, another rate: the units stay.
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
fn a_negative_quantity_gives_units_back_as_many_as_are_owed() {
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
fn a_rate_of_zero_limits_everything() {
    server::on_all(|server| {
        let mut c = server.connect();
        let expected = [
            ("k 4 0 60", [1, 5, 0, NEVER, 0]),
            ("k 4 0 60 0", [0, 5, 0, -1, 0]),
            ("k 4 24 86400 2", [0, 5, 3, -1, 7_200]),
            // What is owed never comes back at no rate at all.
            ("k 4 0 60", [1, 5, 0, NEVER, -1]),
            ("k 4 0 60 -1", [0, 5, 0, -1, -1]),
            ("k 4 24 86400 0", [0, 5, 4, -1, 3_600]),
        ];
        assert_replies(&mut c, &[], &expected);
    });
}

#[test]
fn the_largest_and_the_smallest_of_everything_is_answered() {
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
        // Beyond what 64 bits of microseconds can say.
        let [limited, limit, remaining, retry_after, reset_after] =
            throttle(&mut c, "e 999999999 1 31622400 1000000000");
        assert_eq!([limited, limit, remaining, retry_after], [0, most, 0, -1]);
        assert!(reset_after > 500_000 * year, "{reset_after}");
        // A client that holds 32 bits must not read a long wait as another number.
        let denied = throttle(&mut c, "e 999999999 1 31622400 1000000000");
        assert_eq!(denied[..4], [1, most, 0, NEVER]);
        // Any bytes are a key.
        let key: &[u8] = &[0xff, 0, b'\r', b'\n'];
        let reply: [i64; 5] = cmd("CL.THROTTLE").arg(key).arg(&[0, 1, 60]).query(&mut c).unwrap();
        assert_eq!(reply, [0, 1, 0, -1, 60]);
    });
}

#[test]
fn what_cannot_be_is_an_error_and_changes_nothing() {
    const WRONG: [(&str, &str); 21] = [
        ("", "wrong number of arguments"),
        ("15", "wrong number of arguments"),
        ("15 30", "wrong number of arguments"),
        ("15 30 60 1 1", "wrong number of arguments"),
        ("-1 30 60", "max_burst is '-1', expected an integer 0..999999999"),
        ("1000000000 30 60", "max_burst is '1000000000'"),
        ("9223372036854775807 30 60", "max_burst is '9223372036854775807'"),
        ("15 -30 60", "count_per_period is '-30', expected an integer 0..1000000000"),
        ("15 1000000001 60", "count_per_period is '1000000001'"),
        ("15 30 0", "period is '0', expected an integer 1..31622400"),
        ("15 30 -60", "period is '-60'"),
        ("15 30 31622401", "period is '31622401'"),
        ("15 30 10000000000", "period is '10000000000'"),
        ("15 30 9223372036854775807", "period is '9223372036854775807'"),
        ("15 30 99999999999999999999", "period is '99999999999999999999'"),
        ("15 30 60 1000000001", "quantity is '1000000001', expected an integer -1000000000.."),
        ("15 30 60 -1000000001", "quantity is '-1000000001'"),
        ("15 30 60 -9223372036854775808", "quantity is '-9223372036854775808'"),
        ("15 30 60 1.5", "quantity is '1.5'"),
        ("15 30 60s", "period is '60s'"),
        ("a b c", "max_burst is 'a'"),
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
        // Such as the keys that redis-cell left behind.
        let () = ask(&mut c, "SET theirs 1795282403083671038");
        assert!(refusal(&mut c, "CL.THROTTLE theirs 15 30 60").contains("WRONGTYPE"));
    });
}

#[test]
fn a_block_and_an_exemption_hold() {
    server::on_all(|server| {
        let mut c = server.connect();
        for (deed, reply) in [
            ("RL.BLOCK k EX 3600", [1, 5, 0, 3_600, 3_600]),
            ("RL.BLOCK k", [1, 5, 0, NEVER, -1]),
            ("RL.EXEMPT k", [0, 5, 5, -1, 0]),
        ] {
            let expected = [("k 4 24 86400 0", reply), ("k 4 24 86400 9", reply)];
            assert_replies(&mut c, &["RL.THROTTLE k 4 24 86400 2", deed], &expected);
        }
        // Nothing was taken meanwhile.
        let _: i64 = ask(&mut c, "RL.UNEXEMPT k");
        assert_eq!(throttle(&mut c, "k 4 24 86400 0")[..4], [0, 5, 3, -1]);
    });
}

#[test]
fn the_state_is_that_of_a_bucket_named_throttle() {
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
        // It goes by itself when the bucket is full: at most an eighth of the period later.
        let left_s: i64 = ask(&mut c, "TTL k");
        assert!((14_380..=14_400 + 86_400 / 8).contains(&left_s), "{left_s}");
    });
}

#[test]
fn calls_are_counted_and_denials_show_in_the_top() {
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
fn what_was_taken_and_given_back_is_replicated_and_nothing_else() {
    const LINES: [&str; 7] = [
        "a 4 24 86400 3",
        "a 9 7 61 2",
        "a 9 1000000000 31622400 -1",
        "b 0 3 3600",
        "c 4 24 86400 2",
        "c 4 24 86400 -2",
        "d 999999999 24 86400 1000000000",
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

        let offset = |c: &mut Connection| info(c, "replication", "master_repl_offset");
        let () = ask(&mut c, "CONFIG SET repl-ping-replica-period 3600");
        let before = offset(&mut c);
        for line in IDLE {
            throttle(&mut c, line);
        }
        assert_eq!(offset(&mut c), before);
    });
}

#[test]
fn of_many_rules_in_turn_each_is_told_in_its_own_words() {
    server::on_all(|server| {
        let replica = replica_of(server);
        let mut c = server.connect();
        // More of them than the module remembers the words of.
        for _ in 0..2 {
            for n in 1..=100 {
                throttle(&mut c, &format!("k{n} {} {n} {}", n % 5, 60 + n % 7));
            }
        }
        replicated(&mut c);
        assert_eq!(digest(&mut replica.connect()), digest(&mut c));
    });
}

#[test]
fn who_watches_the_key_hears_of_what_was_taken_and_given_back_and_of_nothing_else() {
    server::on_all(|server| {
        let (mut c, mut watcher) = (server.connect(), server.connect());
        for (quantity, changes) in [(1, true), (-1, true), (0, false), (3, false), (9, false)] {
            let () = ask(&mut c, "FLUSHALL");
            throttle(&mut c, "k 4 24 86400 3");
            let () = ask(&mut watcher, "WATCH k");
            throttle(&mut c, &format!("k 4 24 86400 {quantity}"));
            let () = ask(&mut watcher, "MULTI");
            let () = ask(&mut watcher, "PING");
            let done: Option<Vec<String>> = ask(&mut watcher, "EXEC");
            assert_eq!(done.is_none(), changes, "{quantity}");
        }
    });
}

#[test]
fn the_append_only_file_brings_the_buckets_back() {
    server::on_all_with(
        |builder| builder.config("appendonly", "yes").config("appendfsync", "always"),
        |server| {
            let mut c = server.connect();
            throttle(&mut c, "k 4 24 86400 4");
            throttle(&mut c, "k 4 24 86400 -1");
            let before = digest(&mut c);
            server.kill9();
            server.resume();
            let mut c = server.connect();
            assert_eq!(digest(&mut c), before);
            assert_eq!(throttle(&mut c, "k 4 24 86400 0")[..4], [0, 5, 2, -1]);
        },
    );
}

/// Whether the server has our `RL.THROTTLE`, and no `CL.THROTTLE`.
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
fn the_servers_file_can_say_so_too_and_it_stays_so() {
    let in_the_file = |builder: Builder| match builder.flavor().is_7_or_later() {
        true => builder.config("ratelimit.throttle-alias", "no"),
        false => builder, // Settings of modules came with 7.0.
    };
    server::on_all_with(in_the_file, |server| {
        if !server.flavor().is_7_or_later() {
            return; // The argument of loadmodule is all there is.
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

        settings::edit_config(server, |mut lines| {
            lines.retain(|line| !line.starts_with("ratelimit.throttle-alias"));
            lines
        });
        let mut c = server.connect();
        let reply: [i64; 5] = ask(&mut c, "CL.THROTTLE other 15 30 60");
        assert_eq!(reply, [0, 16, 15, -1, 2]);
    });
}
