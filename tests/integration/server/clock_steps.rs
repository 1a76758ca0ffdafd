//! A server whose clock steps back and forth by a second, an hour or ten years, through the
//! times at which clocks break.
//!
//! `engine/src/tests/laws/clock.rs` tests the laws about steps on random rules. These tests
//! add the server's clock, the expiry of its keys and the timer of `RL.WAIT`.

mod lines;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use redis::{Connection, Value};

use crate::support::client::{ask, dump, eventually_linked, exists, now_us, replicated, verdict};
use crate::support::clock::{Clock, on_all_with_clock};
use crate::support::server::{self, eventually};

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

/// Sets the clock, and waits until the server sees the new time: Valkey 9 reads the clock only some
/// times a second, and adds the time that has passed since.
fn step_to(c: &mut Connection, clock: &Clock, unix_s: i64) {
    clock.set_s(unix_s);
    let (shown, began) = (unix_s.cast_unsigned() * 1_000_000, Instant::now());
    let off = |now_us: u64| now_us.abs_diff(shown + began.elapsed().as_micros() as u64);
    eventually("the server's clock to step", || off(now_us(c)) < 500_000);
}

/// How many of some requests pass, and the wait of the last.
fn passed(c: &mut Connection, key: &str, rule: &str) -> (usize, i64) {
    let replies = (0..5).map(|_| ask::<[i64; 5]>(c, &format!("RL.CHECK {key} {rule}")));
    let replies: Vec<_> = replies.collect();
    (replies.iter().filter(|reply| reply[0] == 0).count(), replies[4][3])
}

#[test]
fn steps_of_the_clock_neither_lock_clients_out_nor_admit_a_flood() {
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
                // The server deletes keys by its clock. A key must not live much longer than it
                // is needed.
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
            // Redis 8.10 took 3 s to see the step of ten years back.
            let now_s = (now_us(&mut c) / 1_000_000).cast_signed();
            step_to(&mut c, clock, now_s + 7);
            let reply: [i64; 5] = ask(&mut c, "RL.CHECK k fixed:1/2s,align=first,ban=5s:10s");
            assert_eq!(reply[0], 0, "{step_s}");
            assert!(ask::<i64>(&mut c, "PTTL k") <= 5_000 + 10_000 + 2_000 + 2_000, "{step_s}");
        }
    });
}

/// Milliseconds until a key's pause and its hold end, as `RL.INFO` shows them; 0 without one.
fn left_ms(c: &mut Connection, key: &str) -> (i64, i64) {
    let report: BTreeMap<String, Value> = ask(c, &format!("RL.INFO {key}"));
    let number = |value: &Value| redis::from_redis_value(value.clone()).expect("a number");
    let holds: Vec<BTreeMap<String, Value>> =
        redis::from_redis_value(report["next_holds"].clone()).expect("holds");
    let held_ms = holds.first().map_or(0, |hold| number(&hold["ttl_ms"]));
    assert_eq!(number(&report["holds"]), i64::from(held_ms > 0), "{report:?}");
    (number(&report["paused_ms"]), held_ms)
}

/// Pauses a key and takes its only slot, for half a minute.
fn pause_and_hold(c: &mut Connection) {
    let () = ask(c, "FLUSHALL");
    assert_eq!(verdict(c, "RL.CHECK k HOLD a EX 30 slots:1"), 0);
    assert_eq!(ask::<i64>(c, "RL.PAUSE k EX 30"), 30_000);
}

#[test]
fn a_clock_set_right_ends_pauses_and_frees_slots() {
    on_all_with_clock(|server, clock| {
        let mut c = server.connect();
        // The replica has the same clock, since it does not show a key whose expiry has passed.
        let replica = clock.of(server.flavor().builder()).replica_of(server).start();
        eventually_linked(&replica);
        for ahead_s in [86_400, YEARS_S] {
            step_to(&mut c, clock, TIMES_S[4] + ahead_s);
            pause_and_hold(&mut c);
            step_to(&mut c, clock, TIMES_S[4]);
            assert_eq!(left_ms(&mut c, "k"), (0, 0));
            assert_eq!(verdict(&mut c, "RL.PEEK k slots:1"), 0);
            assert_eq!(ask::<i64>(&mut c, "RL.RENEW k a EX 30"), 0);
            assert_eq!(ask::<i64>(&mut c, "RL.SETTLE k a"), 0);
            // A shorter pause takes effect, and the slot can be taken.
            assert_eq!(ask::<i64>(&mut c, "RL.PAUSE k EX 9"), 9_000);
            assert_eq!(ask::<i64>(&mut c, "RL.RESUME k"), 1);
            assert_eq!(verdict(&mut c, "RL.CHECK k HOLD b EX 60 slots:1"), 0);
            assert_eq!(verdict(&mut c, "RL.CHECK k HOLD c EX 60 slots:1"), 1);
            let ttl_ms: i64 = ask(&mut c, "PTTL k");
            assert!(ttl_ms <= 62_000, "the key stays for {ttl_ms} ms");
            replicated(&mut c);
            assert_eq!(dump(&mut replica.connect(), "k"), dump(&mut c, "k"));
            // A pause from a clock that was ahead is over, but RL.RESUME must still remove it.
            step_to(&mut c, clock, TIMES_S[4] + ahead_s);
            assert_eq!(ask::<i64>(&mut c, "RL.PAUSE up EX 30"), 30_000);
            step_to(&mut c, clock, TIMES_S[4]);
            assert_eq!([ask::<i64>(&mut c, "RL.RESUME up"), ask(&mut c, "RL.RESUME up")], [1, 0]);
        }
    });
}

#[test]
fn a_step_back_prolongs_a_pause_and_a_hold_by_at_most_their_length() {
    on_all_with_clock(|server, clock| {
        let mut c = server.connect();
        step_to(&mut c, clock, TIMES_S[4]);
        pause_and_hold(&mut c);
        step_to(&mut c, clock, TIMES_S[4] - 20);
        let (paused_ms, held_ms) = left_ms(&mut c, "k");
        for ms in [paused_ms, held_ms] {
            assert!((40_000..=51_000).contains(&ms), "{ms}");
        }
        let [verdict, _, _, wait_ms, _]: [i64; 5] = ask(&mut c, "RL.CHECK k HOLD b EX 9 slots:1");
        assert_eq!((verdict, (40_000..=51_000).contains(&wait_ms)), (1, true), "{wait_ms}");
        // A renewed hold and a prolonged pause last as long as the commands say.
        assert_eq!(ask::<i64>(&mut c, "RL.RENEW k a EX 90"), 1);
        assert_eq!(ask::<i64>(&mut c, "RL.PAUSE k EX 90"), 90_000);
        step_to(&mut c, clock, TIMES_S[4] - 20 - 100);
        assert_eq!(left_ms(&mut c, "k"), (0, 0));
    });
}

/// No clock steps here: the clocks of two servers differ.
#[test]
fn a_promoted_replica_whose_clock_is_behind_frees_slots() {
    for flavor in server::all() {
        let clock = Clock::new();
        let primary = clock.of(flavor.builder()).start();
        let mut c = primary.connect();
        step_to(&mut c, &clock, TIMES_S[4] + 3_600);
        let behind = Clock::new();
        behind.set_s(TIMES_S[4]);
        let replica = behind.of(flavor.builder()).replica_of(&primary).start();
        eventually_linked(&replica);
        pause_and_hold(&mut c);
        replicated(&mut c);
        let mut r = replica.connect();
        let () = ask(&mut r, "REPLICAOF NO ONE");
        let name = flavor.name;
        assert_eq!(verdict(&mut r, "RL.CHECK k HOLD b EX 30 slots:1"), 0, "{name}");
        assert_eq!(ask::<i64>(&mut r, "RL.SETTLE k b"), 1, "{name}");
        assert!(!exists(&mut r, "k"), "{name}: the key of the clock that was ahead stays");
    }
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
