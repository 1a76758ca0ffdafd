//! The clock steps while clients wait in line. Each passes once, in order, and later by at most one
//! window; deadlines do not move.

use redis::Connection;

use crate::support::client::{ask, info, verdict};
use crate::support::clock::{let_server_act, on_all_with_clock};
use crate::support::waiters::{wait_in_line, waiting};

/// How many clients have passed after they had waited.
fn admitted(c: &mut Connection) -> f64 {
    info(c, "ratelimit", "ratelimit_waits_admitted")
}

/// The `META` texts of a key's history, oldest first.
fn history(c: &mut Connection, key: &str) -> Vec<String> {
    let log: Vec<(i64, i64, i64, String)> = ask(c, &format!("RL.LOG {key} COUNT 100"));
    log.into_iter().rev().map(|(.., meta)| meta).collect()
}

#[test]
fn a_line_under_a_rate_passes_one_by_one_after_a_step() {
    const RULE: &str = "1/500s";
    // A step, and when the first client passes: after a step back within the window, the clock must
    // catch up first; after a longer one, the window is empty.
    const STEPS: [(i64, i64); 4] = [(200, 300), (3_600, 0), (-200, 700), (-3_600, 0)];
    on_all_with_clock(|server, clock| {
        let mut c = server.connect();
        for (step_s, first_s) in STEPS {
            let () = ask(&mut c, "FLUSHALL");
            let before = admitted(&mut c);
            assert_eq!(verdict(&mut c, &format!("RL.CHECK k META 0 {RULE}")), 0);
            let waiters = [1, 2, 3]
                .map(|n| wait_in_line(server, &format!("RL.WAIT k 3600000 META {n} {RULE}")));
            clock.step_wall_s(&mut c, step_s);
            let mut wait_s = first_s;
            for (waiter, left) in waiters.into_iter().zip([2, 1, 0]) {
                if wait_s > 0 {
                    clock.advance_s(&mut c, wait_s - 100);
                    assert_eq!(waiting(&mut c), left + 1, "early after {step_s} s");
                    clock.advance_s(&mut c, 200);
                }
                assert_eq!(waiter.verdict(), 0, "{step_s}");
                let_server_act(&mut c);
                assert_eq!(waiting(&mut c), left, "two passed at once after {step_s} s");
                wait_s = 500;
            }
            assert_eq!(history(&mut c, "k"), ["0", "1", "2", "3"], "{step_s}");
            assert_eq!(admitted(&mut c) - before, 3.0, "{step_s}");
        }
    });
}

#[test]
fn steps_move_no_deadline_and_no_place_in_line() {
    const ROUNDS: usize = 4;
    on_all_with_clock(|server, clock| {
        let mut c = server.connect();
        for key in ["deadlines", "line"] {
            assert_eq!(verdict(&mut c, &format!("RL.CHECK {key} HOLD 0 EX 30000 slots:1")), 0);
        }
        let waiters = (1..=ROUNDS).map(|n| {
            let deadline_ms = 600_000 * n - 100_000;
            let of = |key: &str, ms: usize| format!("RL.WAIT {key} {ms} HOLD {n} EX 30000 slots:1");
            let denied = wait_in_line(server, &of("deadlines", deadline_ms));
            (denied, wait_in_line(server, &of("line", 3_600_000)))
        });
        let waiters: Vec<_> = waiters.collect();
        let mut left = waiters.len() * 2;
        for ((n, (denied, next)), step_s) in
            waiters.into_iter().enumerate().zip([-3_600, 3_600, 200, -200])
        {
            clock.step_wall_s(&mut c, step_s);
            clock.advance_s(&mut c, 400);
            assert_eq!(waiting(&mut c), left, "early after {step_s} s");
            clock.advance_s(&mut c, 200);
            assert_eq!(denied.verdict(), 1, "{step_s}");
            assert_eq!(ask::<i64>(&mut c, &format!("RL.SETTLE line {n}")), 1);
            assert_eq!(next.verdict(), 0, "{step_s}");
            let_server_act(&mut c);
            left -= 2;
            assert_eq!(waiting(&mut c), left, "one more was answered after {step_s} s");
        }
    });
}
