//! The rule that consumed last sets when a state ends; a rule that asks later does not change that.

use std::time::{Duration, Instant};

use redis::{Connection, Value};

use crate::support::client::{allowed, ask, eventually_linked, replicated};
use crate::support::server::{self, Builder, eventually};

type Reply = [i64; 5];

/// A time so far ahead that no key can have expired.
const START_US: u64 = 4_102_444_800_000_000;

/// A rule and, if needed, a cost, which together use the rule up; another rule that reads the same
/// state; and the end of the state, in milliseconds.
const ENDS: [(&str, &str, i64); 10] = [
    ("bucket:1/1s,name=n", "bucket:1/1h,name=n", 1_000),
    ("leaky:1/1s,queue=0,name=n", "leaky:1/1h,queue=0,name=n", 1_000),
    ("window:1/1s,name=n", "window:1/1h,name=n", 2_000),
    ("fixed:1/1s,name=n", "fixed:1/1h,name=n", 1_000),
    ("fixed:1/1s,align=first,name=n", "fixed:1/1h,align=first,name=n", 1_000),
    ("bucket:1/1s,refill=interval,name=n", "bucket:1/1h,refill=interval,name=n", 1_000),
    ("COST 100 bucket:100/s", "COST 100 bucket:1/s,burst=100", 1_000),
    ("COST 100 leaky:100/s,queue=99", "COST 100 leaky:1/s,queue=99", 1_000),
    ("COST 5 5/3s", "5/1h", 3_000),
    ("3/s", "1/h", 1_000),
];

fn at(us: u64, command: &str, key: &str, rest: &str) -> String {
    format!("{command} {key} AT {us} {rest}")
}

/// The primary and its replica give equal answers, before and after the primary reloads its data.
#[test]
fn no_wait_reaches_beyond_the_end_of_a_state() {
    server::on_all_with(Builder::allow_at, |server| {
        let replica = server.flavor().builder().allow_at().replica_of(server).start();
        eventually_linked(&replica);
        let (mut c, mut r) = (server.connect(), replica.connect());
        for (n, (used_up, asked, end_ms)) in ENDS.into_iter().enumerate() {
            let key = format!("k{n}");
            // Keeps the key alive.
            assert!(allowed(&mut c, &at(START_US, "RL.CHECK", &key, "fixed:9/d,name=other")));
            assert!(allowed(&mut c, &at(START_US, "RL.CHECK", &key, used_up)), "{used_up}");
            let [verdict, _, _, wait_ms, reset_ms]: Reply =
                ask(&mut c, &at(START_US, "RL.CHECK", &key, asked));
            assert_eq!((verdict, wait_ms, reset_ms), (1, end_ms, end_ms), "{used_up}, {asked}");
        }
        replicated(&mut c);
        for reloads in [false, true] {
            if reloads {
                let () = ask(&mut c, "DEBUG RELOAD");
            }
            for (n, (_, asked, end_ms)) in ENDS.into_iter().enumerate() {
                let (key, end_us) = (format!("k{n}"), START_US + end_ms as u64 * 1_000);
                for (us, denied) in [(START_US, 1), (end_us - 1_000, 1), (end_us, 0)] {
                    let line = at(us, "RL.PEEK", &key, asked);
                    let [ours, theirs] = [&mut c, &mut r].map(|c| ask::<Reply>(c, &line));
                    assert_eq!((ours[0], ours), (denied, theirs), "{line}");
                }
                let rule = asked.split(' ').next_back().unwrap();
                let refund = format!("RL.REFUND {key} 1 AT {end_us} {rule}");
                assert_eq!(ask::<i64>(&mut c, &refund), 0, "{refund}");
            }
        }
    });
}

/// Uses the server's clock, and a policy whose period changes.
#[test]
fn a_longer_period_makes_no_wait_longer() {
    server::on_all(|server| {
        let mut c = server.connect();
        for (key, used_up, asked, most_ms) in [
            ("k", "bucket:1/1s,name=n", "bucket:1/1h,name=n", 1_001),
            ("p", "COST 5 @p", "@p", 3_001),
        ] {
            assert!(allowed(&mut c, &format!("RL.CHECK {key} fixed:9/d,name=other")));
            let () = ask(&mut c, "RL.POLICY SET p 5/3s");
            assert!(allowed(&mut c, &format!("RL.CHECK {key} {used_up}")));
            let () = ask(&mut c, "RL.POLICY SET p 5/1h");
            let start = Instant::now();
            let [denied, _, _, wait_ms, reset_ms]: Reply =
                ask(&mut c, &format!("RL.CHECK {key} {asked}"));
            // On a busy machine the state may have ended already.
            assert!(denied == 0 || wait_ms <= most_ms && reset_ms <= most_ms, "{wait_ms} ms");
            let passes = |c: &mut Connection| allowed(c, &format!("RL.CHECK {key} {asked}"));
            eventually("the state to end", || denied == 0 || passes(&mut c));
            assert!(start.elapsed() < Duration::from_secs(600), "not an hour");
            assert!(!matches!(ask::<Value>(&mut c, &format!("RL.INFO {key}")), Value::Nil));
        }
    });
}
