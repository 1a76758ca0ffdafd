//! `RL.PAUSE` and `RL.RESUME`.

use std::time::{Duration, Instant};

use redis::{Connection, Value};

use crate::support::client::{
    ask, dump, exists, expires_ms, info, now_ms, replica_of, replicated, verdict,
};
use crate::support::server::{self, eventually};
use crate::support::waiters::wait_in_line;

/// A verdict, a limit, what remains, the wait and the reset.
type Reply = [i64; 5];

/// Checks that between `most - 20_000` and `most` milliseconds of a pause or a denial are left.
#[track_caller]
fn assert_left(left: i64, most: i64) {
    assert!((most - 20_000..=most).contains(&left), "{left} ms of {most} ms are left");
}

/// Checks that `ms` have passed since the start. The server's clocks may be a little ahead.
#[track_caller]
fn assert_passed(start: Instant, ms: u64) {
    let passed = start.elapsed();
    assert!(passed >= Duration::from_millis(ms - 50), "{passed:?} instead of {ms} ms");
}

#[track_caller]
fn assert_paused(c: &mut Connection, line: &str, most: i64) {
    let [verdict, limit, remaining, wait_ms, reset_ms] = ask::<Reply>(c, line);
    assert_eq!([verdict, limit, remaining], [1, 0, 0], "{line}");
    assert_eq!(wait_ms, reset_ms, "{line}");
    assert_left(wait_ms, most);
}

fn field(c: &mut Connection, key: &str, name: &str) -> Value {
    let report: Vec<(String, Value)> = ask(c, &format!("RL.INFO {key}"));
    report.into_iter().find(|(field, _)| field == name).expect(name).1
}

#[test]
fn a_paused_key_denies_every_check_until_it_is_resumed() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(ask::<Reply>(&mut c, "RL.CHECK k 10/h")[..3], [0, 10, 9]);
        assert_left(ask(&mut c, "RL.PAUSE k EX 30 REASON 429"), 30_000);
        for line in [
            "RL.CHECK k 10/h",
            "RL.CHECK k META who 10/h,count=all",
            "RL.PEEK k 10/h",
            "RL.MCHECK 2 other k 10/h",
        ] {
            assert_paused(&mut c, line, 30_000);
        }
        let [denied, _, _, wait_s, _]: Reply = ask(&mut c, "RL.THROTTLE k 9 9 3600");
        assert_eq!((denied, (27..=30).contains(&wait_s)), (1, true), "{wait_s}");
        assert_left(ask(&mut c, "RL.PAUSE k PX 5 REASON shorter"), 30_000);
        assert_left(redis::from_redis_value(field(&mut c, "k", "paused_ms")).unwrap(), 30_000);
        assert_eq!(field(&mut c, "k", "pause_reason"), Value::BulkString(b"429".into()));
        assert_eq!(ask::<i64>(&mut c, "RL.RESET k"), 1);
        assert_paused(&mut c, "RL.CHECK k 10/h", 30_000);
        assert_eq!(ask::<Vec<Value>>(&mut c, "RL.TOP"), [], "no rule denied");
        assert_eq!(info(&mut c, "ratelimit", "ratelimit_pauses"), 1.0);
        assert_eq!(ask::<i64>(&mut c, "RL.RESUME k"), 1);
        assert_eq!(ask::<i64>(&mut c, "RL.RESUME k"), 0);
        assert!(!exists(&mut c, "k"), "nothing is left");
        assert_eq!(ask::<Reply>(&mut c, "RL.CHECK k 10/h")[..3], [0, 10, 9]);
        assert_eq!(field(&mut c, "k", "paused_ms"), Value::Int(0));
        assert_eq!(field(&mut c, "k", "pause_reason"), Value::Nil);
        for line in ["RL.PAUSE k EX 5", "RL.EXEMPT k"] {
            let _: Value = ask(&mut c, line);
        }
        assert_eq!(
            verdict(&mut c, "RL.CHECK k 10/h"),
            0,
            "an exemption takes precedence over a pause"
        );
    });
}

#[test]
fn clients_in_line_wait_for_the_end_of_a_pause_and_pass_in_order() {
    server::on_all(|server| {
        let mut c = server.connect();
        let start = Instant::now();
        assert_left(ask(&mut c, "RL.PAUSE k PX 1000"), 1_000);
        let first = wait_in_line(server, "RL.WAIT k 60000 bucket:2/s,burst=1");
        let second = wait_in_line(server, "RL.WAIT k 60000 bucket:2/s,burst=1");
        assert_eq!(first.verdict(), 0);
        assert_passed(start, 1_000);
        assert_eq!(second.verdict(), 0);
        assert_passed(start, 1_500);
    });
}

#[test]
fn a_resumption_wakes_the_line() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_left(ask(&mut c, "RL.PAUSE k EX 3000"), 3_000_000);
        let waiter = wait_in_line(server, "RL.WAIT k 3600000 1/h");
        assert_eq!(ask::<i64>(&mut c, "RL.RESUME k"), 1);
        assert_eq!(waiter.verdict(), 0);
    });
}

#[test]
fn a_pause_survives_a_restart_a_copy_and_a_failover() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK k 10/h"), 0);
        assert_left(ask(&mut c, "RL.PAUSE k EX 300 REASON busy"), 300_000);
        let replica = replica_of(server);
        assert_left(ask(&mut c, "RL.PAUSE k EX 600 REASON busier"), 600_000);
        replicated(&mut c);
        let mut r = replica.connect();
        assert_eq!(dump(&mut r, "k"), dump(&mut c, "k"));
        assert_paused(&mut r, "RL.PEEK k 10/h", 600_000);
        let () = ask(&mut r, "REPLICAOF NO ONE");
        assert_paused(&mut r, "RL.CHECK k 10/h", 600_000);
        let () = ask(&mut r, "DEBUG RELOAD");
        assert_paused(&mut r, "RL.CHECK k 10/h", 600_000);
        assert_eq!(field(&mut r, "k", "pause_reason"), Value::BulkString(b"busier".into()));
    });
}

#[test]
fn a_shorter_second_pause_restores_an_expiry_that_a_user_shortened() {
    server::on_all(|server| {
        let mut c = server.connect();
        let replica = replica_of(server);
        let mut r = replica.connect();
        assert_left(ask(&mut c, "RL.PAUSE k EX 3000"), 3_000_000);
        for shortened in [true, false] {
            if shortened {
                let () = ask(&mut c, "PEXPIRE k 60000");
            }
            let before = expires_ms(&mut c, server.flavor(), "k");
            assert_left(ask(&mut c, "RL.PAUSE k EX 30 REASON shorter"), 3_000_000);
            let after = expires_ms(&mut c, server.flavor(), "k");
            assert!(after >= now_ms(&mut c) + 2_900_000, "the key expires before its pause ends");
            assert_eq!(after == before, !shortened, "a correct expiry stays");
            replicated(&mut c);
            assert_eq!(expires_ms(&mut r, server.flavor(), "k"), after);
            assert_eq!(dump(&mut r, "k"), dump(&mut c, "k"));
        }
        assert_eq!(info(&mut c, "ratelimit", "ratelimit_pauses"), 1.0);
    });
}

#[test]
fn a_pause_outlives_an_unblock_and_moves_with_its_key() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_left(ask(&mut c, "RL.PAUSE k EX 300"), 300_000);
        let _: Value = ask(&mut c, "RL.BLOCK k");
        for ended in [1, 0] {
            assert_eq!(ask::<i64>(&mut c, "RL.UNBLOCK k"), ended);
            assert_paused(&mut c, "RL.CHECK k 10/h", 300_000);
        }
        for line in ["COPY k copy", "RENAME k new"] {
            let _: Value = ask(&mut c, line);
        }
        for line in ["RL.CHECK copy 10/h", "RL.CHECK new 10/h"] {
            assert_paused(&mut c, line, 300_000);
        }
        assert_eq!(verdict(&mut c, "RL.CHECK k 10/h"), 0);
        let () = ask(&mut c, "DEL new");
        assert_eq!(verdict(&mut c, "RL.CHECK new 10/h"), 0);
    });
}

#[test]
fn the_longest_block_pause_or_wait_of_several_keys_decides() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK d 1/h"), 0);
        for (line, verdict, seconds) in [
            ("RL.PAUSE a EX 300", 1, 300),
            ("RL.PAUSE b EX 600", 1, 600),
            ("RL.BLOCK c EX 450", 1, 600),
            ("RL.BLOCK c EX 900", 2, 900),
            ("RL.PAUSE a EX 1200", 1, 1_200),
        ] {
            let _: Value = ask(&mut c, line);
            let reply: Reply = ask(&mut c, "RL.MCHECK 3 a b c 1/h");
            assert_eq!(reply[..3], [verdict, 0, 0], "{line}");
            assert_left(reply[3], seconds * 1_000);
        }
        let reply: Reply = ask(&mut c, "RL.MCHECK 4 a b c d 1/h");
        assert_eq!(reply[..3], [1, 1, 0]);
        assert_left(reply[3], 3_600_000);
    });
}

#[test]
fn a_client_whose_deadline_comes_before_the_end_of_a_pause_is_denied_at_the_deadline() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK k HOLD a EX 3000 slots:1"), 0);
        assert_left(ask(&mut c, "RL.PAUSE k EX 300"), 300_000);
        let start = Instant::now();
        let waiter = wait_in_line(server, "RL.WAIT k 1500 HOLD b EX 3000 slots:1");
        assert_eq!(ask::<i64>(&mut c, "RL.SETTLE k a"), 1);
        let [verdict, limit, remaining, wait_ms, reset_ms]: Reply = waiter.answer();
        assert_passed(start, 1_500);
        assert_eq!(([verdict, limit, remaining], wait_ms), ([1, 0, 0], reset_ms));
        assert_left(wait_ms, 298_500);
    });
}

/// Other programs may keep this machine busy, so it is enough that one of several clients passes soon
/// after its pause. None may pass before the end.
#[test]
fn a_client_in_line_passes_right_after_a_pause() {
    server::on_all(|server| {
        let mut c = server.connect();
        let mut tried = 0;
        eventually("a client to pass right after the end of its pause", || {
            tried += 1;
            let end_ms = now_ms(&mut c) + 300;
            let _: i64 = ask(&mut c, &format!("RL.PAUSE k{tried} PX 300"));
            let wait = format!("RL.WAIT k{tried} 60000 META w 9/h");
            assert_eq!(verdict(&mut c, &wait), 0);
            let log: Vec<(i64, i64, i64, String)> = ask(&mut c, &format!("RL.LOG k{tried}"));
            let late_ms = log[0].0 - end_ms;
            assert!(late_ms >= 0, "{} ms too early", -late_ms);
            late_ms <= 20
        });
    });
}
