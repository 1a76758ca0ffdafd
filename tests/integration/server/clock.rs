//! The server's clock: times that have passed, clocks that were wrong or stepped back, and the one
//! time of a script.

use redis::{Connection, Pipeline, Value, pipe};

use crate::support::client::{
    ask, command, dump, exists, least_usec_per_call, now_us, replica_of, replicated,
};
use crate::support::server::{self, Builder, Server, eventually};

const YEAR_US: u64 = 366 * 86_400_000_000;

fn check_at(c: &mut Connection, at_us: u64, line: &str) -> [i64; 5] {
    command("RL.CHECK k AT").arg(at_us).arg(line.split(' ').collect::<Vec<_>>()).query(c).unwrap()
}

#[test]
fn a_history_from_a_wrong_clock_does_not_stay_for_years() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        let now_us = now_us(&mut c);
        let meta_at = |c: &mut Connection, at_us: u64| -> [i64; 5] {
            command("RL.CHECK k META who AT").arg(at_us).arg("5/m").query(c).unwrap()
        };
        assert_eq!(meta_at(&mut c, now_us + 10 * YEAR_US)[0], 0);
        assert_eq!(meta_at(&mut c, now_us)[0], 0);
        assert!(ask::<i64>(&mut c, "PTTL k") <= 2 * 3_600_000, "the key stays for years");
        assert_eq!(ask::<Vec<Value>>(&mut c, "RL.LOG k").len(), 1);
    });
}

/// Blocks a key for a millisecond and waits for the end.
fn block_for_a_moment(c: &mut Connection, key: &str) {
    let () = ask(c, &format!("RL.BLOCK {key} PX 1"));
    eventually("the block to end", || {
        ask::<[i64; 5]>(c, &format!("RL.PEEK {key} bucket:9/d"))[0] == 0
    });
}

#[test]
fn the_next_write_drops_a_block_that_has_ended() {
    server::on_all(|server| {
        let mut c = server.connect();
        for key in ["plain", "blocked"] {
            assert_eq!(ask::<[i64; 5]>(&mut c, &format!("RL.CHECK {key} bucket:9/d"))[0], 0);
        }
        block_for_a_moment(&mut c, "blocked");
        for key in ["plain", "blocked"] {
            assert_eq!(ask::<[i64; 5]>(&mut c, &format!("RL.CHECK {key} bucket:9/d"))[0], 0);
        }
        let saved = |c: &mut Connection, key: &str| dump(c, key).expect("a value").len();
        let (plain, blocked) = (saved(&mut c, "plain"), saved(&mut c, "blocked"));
        assert_eq!(blocked, plain, "the block is still there");

        block_for_a_moment(&mut c, "blocked");
        assert_eq!(ask::<i64>(&mut c, "RL.RESET blocked"), 1);
        assert!(!exists(&mut c, "blocked"), "an ended block keeps an empty key");
    });
}

fn assert_alike(primary: &mut Connection, replica: &Server, when: &str) {
    replicated(primary);
    assert_eq!(dump(primary, "k"), dump(&mut replica.connect(), "k"), "{when}");
}

#[test]
fn no_ban_outlasts_its_length_after_a_step_back() {
    server::on_all_with(Builder::allow_at, |primary| {
        let replica = replica_of(primary);
        let mut c = primary.connect();
        // Ahead of the server's clock, so that the key does not expire.
        let now_us = now_us(&mut c) + YEAR_US;
        let day_us = 86_400_000_000;
        const HOUR_MS: i64 = 3_600_000;
        const RULE: &str = "fixed:1/m,align=first,ban=1h";
        for verdict in [0, 1, 2] {
            assert_eq!(check_at(&mut c, now_us, RULE)[0], verdict);
        }
        assert_alike(&mut c, &replica, "banned");
        let before_us = now_us - day_us;
        assert_eq!(check_at(&mut c, before_us, RULE), [2, 0, 0, HOUR_MS, HOUR_MS]);
        assert_alike(&mut c, &replica, "shortened");
        let half_us = before_us + 1_800_000_000;
        assert_eq!(check_at(&mut c, half_us, RULE), [2, 0, 0, HOUR_MS / 2, HOUR_MS / 2]);
        assert_eq!(check_at(&mut c, before_us + 3_600_000_000, RULE)[0], 0);
        assert_alike(&mut c, &replica, "over");
    });
}

#[test]
fn all_checks_of_a_script_have_one_time() {
    server::on_all(|server| {
        let flavor = server.flavor();
        let mut c = server.connect();
        // More than a millisecond passes between the checks.
        let script = "local before = redis.call('RL.CHECK', KEYS[1], '1/ms')[1]
            local sum = 0
            for i = 1, 3000000 do sum = sum + i end
            return {before, redis.call('RL.CHECK', KEYS[1], '1/ms')[1]}";
        let verdicts: [i64; 2] =
            command("EVAL").arg(script).arg(&[1]).arg("k").query(&mut c).unwrap();
        // Redis 6.2 and 7.0 do not tell modules the time at which a command began.
        let knows_the_start = flavor.version >= (7, 2);
        assert_eq!(verdicts, [0, i64::from(knows_the_start)]);
    });
}

const KEYS: u64 = 64;

const RULES: u64 = 32;

/// A millisecond less than twice the window of the rules.
const STEP_US: u64 = 1_999_000;

fn rule(n: u64) -> String {
    format!("bucket:1/s,name=n{n}")
}

/// One check of all keys, each with its rules.
fn check_all(at_us: u64) -> Pipeline {
    let mut check = pipe();
    check.cmd("RL.MCHECK").arg(KEYS).arg((0..KEYS).collect::<Vec<_>>()).arg("AT").arg(at_us);
    for key in 0..KEYS {
        if key > 0 {
            check.arg("NEXT");
        }
        check.arg((0..RULES).map(|n| rule(key * RULES + n)).collect::<Vec<_>>());
    }
    check
}

/// Each rule denies from a second before its request to a second after it. At the earliest of these
/// times, the states of the other rules are too far ahead of the clock to count. But each state begins
/// to count just before the previous one admits, so that the wait ends only when the last one admits.
#[test]
fn waits_of_states_ahead_of_the_clock_are_computed_fast() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        let start_us = now_us(&mut c);
        let time_of = |n: u64| start_us + n * STEP_US;
        let mut consume = pipe();
        // The latest first, so that no state is dropped.
        for n in (0..KEYS * RULES).rev() {
            let check = consume.cmd("RL.CHECK").arg(n / RULES).arg("AT").arg(time_of(n));
            check.arg(rule(n)).ignore();
        }
        let () = consume.query(&mut c).unwrap();

        let last_us = time_of(KEYS * RULES - 1);
        let (behind, plain) = (check_all(start_us), check_all(last_us));
        let wait_ms = ((last_us - start_us) / 1_000 + 1_000).cast_signed();
        for (check, wait_ms) in [(&behind, wait_ms), (&plain, 1_000)] {
            let [reply]: [[i64; 5]; 1] = check.query(&mut c).unwrap();
            assert_eq!((reply[0], reply[3]), (1, wait_ms));
        }
        let [behind, plain] = least_usec_per_call(&mut c, "rl.mcheck", [&behind, &plain]);
        assert!(behind < 10.0 * plain, "{behind} us, {plain} us at the last time");
    });
}
