//! Time: what ended is dropped, what a wrong clock left behind does not stay, and a script or a
//! transaction has one time.

use redis::{Connection, Value};

use crate::support::client::{ask, command, dump, exists, now_us, replica_of, replicated};
use crate::support::server::{self, Builder, Server, eventually};

const YEAR_US: u64 = 366 * 86_400_000_000;

fn replaying(builder: Builder) -> Builder {
    builder.module_args(&["allow-at", "yes"])
}

fn check_at(c: &mut Connection, at_us: u64, line: &str) -> [i64; 5] {
    command("RL.CHECK k AT").arg(at_us).arg(line.split(' ').collect::<Vec<_>>()).query(c).unwrap()
}

#[test]
fn a_history_written_while_the_clock_was_wrong_does_not_stay_for_years() {
    server::on_all_with(replaying, |server| {
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

/// Blocks a key for a millisecond, and waits until that is over.
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

fn alike(primary: &mut Connection, replica: &Server, when: &str) {
    replicated(primary);
    assert_eq!(dump(primary, "k"), dump(&mut replica.connect(), "k"), "{when}");
}

#[test]
fn a_ban_lasts_no_longer_than_its_length_where_the_clock_stepped_back() {
    server::on_all_with(replaying, |primary| {
        let replica = replica_of(primary);
        let mut c = primary.connect();
        // Ahead of the server's clock, so that nothing expires.
        let now_us = now_us(&mut c) + YEAR_US;
        let day_us = 86_400_000_000;
        const HOUR_MS: i64 = 3_600_000;
        const RULE: &str = "fixed:1/m,align=first,ban=1h";
        for verdict in [0, 1, 2] {
            assert_eq!(check_at(&mut c, now_us, RULE)[0], verdict);
        }
        alike(&mut c, &replica, "banned");
        let before_us = now_us - day_us;
        assert_eq!(check_at(&mut c, before_us, RULE), [2, 0, 0, HOUR_MS, HOUR_MS]);
        alike(&mut c, &replica, "shortened");
        let half_us = before_us + 1_800_000_000;
        assert_eq!(check_at(&mut c, half_us, RULE), [2, 0, 0, HOUR_MS / 2, HOUR_MS / 2]);
        assert_eq!(check_at(&mut c, before_us + 3_600_000_000, RULE)[0], 0);
        alike(&mut c, &replica, "over");
    });
}

#[test]
fn a_script_has_one_time() {
    server::on_all(|server| {
        let flavor = server.flavor();
        let mut c = server.connect();
        // A millisecond passes between the checks, and more.
        let script = "local before = redis.call('RL.CHECK', KEYS[1], '1/ms')[1]
            local sum = 0
            for i = 1, 3000000 do sum = sum + i end
            return {before, redis.call('RL.CHECK', KEYS[1], '1/ms')[1]}";
        let verdicts: [i64; 2] =
            command("EVAL").arg(script).arg(&[1]).arg("k").query(&mut c).unwrap();
        // Redis 6.2 and 7.0 do not tell a module the time of the running command.
        let knows_its_time = flavor.version >= (7, 2);
        assert_eq!(verdicts, [0, i64::from(knows_its_time)]);
    });
}
