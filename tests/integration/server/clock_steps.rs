//! What a denial costs behind a clock that stepped back.

use redis::{Pipeline, pipe};

use crate::support::client::{least_usec_per_call, now_us};
use crate::support::server;

const KEYS: u64 = 64;
const RULES: u64 = 32;
/// A millisecond short of twice the window of the rules.
const STEP_US: u64 = 1_999_000;

fn rule(n: u64) -> String {
    format!("bucket:1/s,name=n{n}")
}

/// One check of all keys, each with other rules.
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

/// Each rule denies from a second before it consumed to a second after. Seen from the first of
/// these times, the states of the others are forgotten, and each comes back just before the one
/// before it admits: the wait ends with the last.
#[test]
fn the_wait_behind_two_thousand_forgotten_states_is_found_at_once() {
    server::on_all_with(
        |builder| builder.module_args(&["allow-at", "yes"]),
        |server| {
            let mut c = server.connect();
            let start_us = now_us(&mut c);
            let time_of = |n: u64| start_us + n * STEP_US;
            let mut consume = pipe();
            // Latest first, so that no state is stale.
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
            assert!(behind < 10.0 * plain, "{behind} us, {plain} us where nothing is forgotten");
        },
    );
}
