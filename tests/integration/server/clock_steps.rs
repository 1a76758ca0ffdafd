//! A server whose clock steps back and forth by a second, an hour or ten years, through the
//! times at which clocks break.
//!
//! `core/src/limit/tests/laws/clock.rs` tests the laws about steps on random rules. These tests
//! add the server's clock, the expiry of its keys and the timer of `RL.WAIT`.

use std::time::{Duration, Instant};

use redis::Connection;

use crate::support::client::{ask, exists, now_us};
use crate::support::clock::{Clock, on_all_with_clock};
use crate::support::server::eventually;

const YEARS_S: i64 = 3_652 * 86_400;

/// The second day of 1970, the moments just before 2^31 and 2^32 seconds and before 2^63
/// nanoseconds, and an ordinary day.
const TIMES_S: [i64; 5] = [86_400, 2_147_483_640, 4_294_967_290, 9_223_372_030, 1_795_000_000];

/// A second, an hour, ten years, both ways.
const STEPS_S: [i64; 6] = [-1, 1, -3_600, 3_600, -YEARS_S, YEARS_S];

/// Rules of every algorithm that admit three units in two seconds.
const RULES: [&str; 6] = [
    "3/2s",
    "window:3/2s,res=4",
    "fixed:3/2s,align=first",
    "bucket:3/2s",
    "bucket:3/2s,refill=interval",
    "leaky:3/2s,queue=2",
];

/// The longest wait under any of the rules: two windows, and one more to catch up.
const LONGEST_MS: i64 = 3 * 2_000;

/// Lets the clock show a time, and waits until the server sees it: Valkey 9 reads the clock some times
/// a second and counts on in between.
fn step_to(c: &mut Connection, clock: &Clock, unix_s: i64) {
    clock.set_s(unix_s);
    let shown = unix_s.cast_unsigned() * 1_000_000;
    eventually("the server's clock to step", || now_us(c).abs_diff(shown) < 500_000);
}

/// How many of some requests pass, and the wait of the last.
fn passed(c: &mut Connection, key: &str, rule: &str) -> (usize, i64) {
    let replies = (0..5).map(|_| ask::<[i64; 5]>(c, &format!("RL.CHECK {key} {rule}")));
    let replies: Vec<_> = replies.collect();
    (replies.iter().filter(|reply| reply[0] == 0).count(), replies[4][3])
}

#[test]
fn steps_of_the_clock_neither_lock_out_nor_flood() {
    on_all_with_clock(|server, clock| {
        let mut c = server.connect();
        for (start_s, step_s) in TIMES_S.into_iter().flat_map(|at| STEPS_S.map(|step| (at, step))) {
            if start_s + step_s < 0 {
                continue;
            }
            step_to(&mut c, clock, start_s);
            let () = ask(&mut c, "FLUSHALL");
            for rule in RULES {
                let (first, _) = passed(&mut c, rule, rule);
                assert!((3..=4).contains(&first), "{rule}: {first} at {start_s}");
            }
            step_to(&mut c, clock, start_s + step_s);
            for rule in RULES {
                let what = format!("{}: {rule} at {start_s}, {step_s}", server.flavor().name);
                let (more, wait_ms) = passed(&mut c, rule, rule);
                assert!(more <= 4, "{what}: {more} passed");
                assert!((1..=LONGEST_MS).contains(&wait_ms), "{what}: waits {wait_ms} ms");
                // The server deletes keys by its clock, and no key lives for longer than it
                // matters.
                let ttl_ms: i64 = ask(&mut c, &format!("PTTL {rule}"));
                assert!(ttl_ms <= LONGEST_MS + 2_000, "{what}: stays for {ttl_ms} ms");
            }
        }
    });
}

#[test]
fn a_step_of_the_clock_makes_no_ban_longer() {
    on_all_with_clock(|server, clock| {
        let mut c = server.connect();
        for step_s in STEPS_S {
            step_to(&mut c, clock, TIMES_S[4]);
            let () = ask(&mut c, "FLUSHALL");
            for _ in 0..2 {
                let _: [i64; 5] = ask(&mut c, "RL.CHECK k fixed:1/2s,align=first,ban=5s:10s");
            }
            step_to(&mut c, clock, TIMES_S[4] + step_s);
            let reply: [i64; 5] = ask(&mut c, "RL.CHECK k fixed:1/2s,align=first,ban=5s:10s");
            assert!(reply[3] <= 5_000, "{step_s}: {reply:?}");
            // After the ban, the next check moves the key's expiry.
            step_to(&mut c, clock, TIMES_S[4] + step_s + 6);
            let reply: [i64; 5] = ask(&mut c, "RL.CHECK k fixed:1/2s,align=first,ban=5s:10s");
            assert_eq!(reply[0], 0, "{step_s}");
            assert!(ask::<i64>(&mut c, "PTTL k") <= 5_000 + 10_000 + 2_000 + 2_000, "{step_s}");
        }
    });
}

#[test]
fn clients_wait_by_time_that_passes_and_not_by_the_clock() {
    on_all_with_clock(|server, clock| {
        for step_s in [-3_600, 3_600, -YEARS_S, YEARS_S] {
            let mut c = server.connect();
            step_to(&mut c, clock, TIMES_S[4]);
            let () = ask(&mut c, "FLUSHALL");
            let _: [i64; 5] = ask(&mut c, "RL.CHECK k 1/500ms");
            let waiter = crate::support::waiters::wait_in_line(server, "RL.WAIT k 60000 1/500ms");
            let start = Instant::now();
            step_to(&mut c, clock, TIMES_S[4] + step_s);
            // The clock catches up for at most one window.
            assert_eq!(waiter.verdict(), 0, "{step_s}");
            assert!(start.elapsed() < Duration::from_secs(15), "{step_s}: {:?}", start.elapsed());
        }
    });
}

#[test]
fn keys_expire_after_the_clock_was_wrong_for_a_moment() {
    on_all_with_clock(|server, clock| {
        let mut c = server.connect();
        step_to(&mut c, clock, TIMES_S[4] + YEARS_S);
        for rule in RULES {
            let _: [i64; 5] = ask(&mut c, &format!("RL.CHECK {rule} {rule}"));
        }
        // The clock is right again, and the keys are in use.
        step_to(&mut c, clock, TIMES_S[4]);
        for rule in RULES {
            let reply: [i64; 5] = ask(&mut c, &format!("RL.CHECK {rule} {rule}"));
            assert_eq!(reply[0], 0, "{rule}");
        }
        step_to(&mut c, clock, TIMES_S[4] + 60);
        for rule in RULES {
            assert!(!exists(&mut c, rule), "{rule}");
        }
    });
}
