//! The setting `enforce`, with which an operator stops all limits at once.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use redis::{Connection, Value};

use crate::support::client::{
    ask, attempt, digest_of, dump, info, info_text, refusal, replica_of, replicated, verdict,
};
use crate::support::server::{self, Server};
use crate::support::waiters::{wait_in_line, waiting};

fn set(c: &mut Connection, enforce: &str) {
    let () = ask(c, &format!("CONFIG SET ratelimit.enforce {enforce}"));
}

/// Runs a test on each server that can change settings of modules.
fn on_all(body: impl Fn(&Server)) {
    server::on_all(|server| {
        if server.flavor().is_7_or_later() {
            body(server);
        }
    });
}

fn unenforced(c: &mut Connection) -> u64 {
    info(c, "ratelimit", "ratelimit_unenforced") as u64
}

#[test]
fn observed_checks_pass_and_are_evaluated_and_charged() {
    on_all(|server| {
        let (mut c, replica) = (server.connect(), replica_of(server));
        let _: Vec<i64> = ask(&mut c, "RL.CHECK k bucket:2/d");
        let () = ask(&mut c, "RL.BLOCK blocked");
        let _: i64 = ask(&mut c, "RL.PAUSE paused EX 900");
        let () = ask(&mut c, "RL.POLICY SET free bucket:2/d");
        set(&mut c, "observe");
        for _ in 0..3 {
            assert_eq!(ask::<[i64; 5]>(&mut c, "RL.CHECK k bucket:2/d"), [0, -1, -1, 0, 0]);
        }
        assert_eq!(unenforced(&mut c), 2, "the first of the three had room");
        for line in [
            "RL.CHECK blocked 5/d",
            "RL.CHECK paused 5/d",
            "RL.CHECK k @free",
            "RL.MCHECK 2 k blocked 5/d,ban=1h",
            "RL.WAIT paused 9000 5/d",
            "RL.CHECK s HOLD h EX 90 slots:0",
        ] {
            assert_eq!(verdict(&mut c, line), 0, "{line}");
        }
        assert_eq!(unenforced(&mut c), 8);
        assert_eq!(verdict(&mut c, "RL.PEEK k 0/d"), 0);
        assert_eq!(ask::<[i64; 5]>(&mut c, "RL.THROTTLE t 0 1 90000"), [0, 1, 1, -1, 0]);
        assert_eq!(verdict(&mut c, "RL.THROTTLE t 0 1 90000"), 0);
        let full: Vec<Value> = ask(&mut c, "RL.CHECK k FULL bucket:2/d");
        let full = format!("{full:?}");
        assert!(full.contains(r#""shadow"'), int(1)"#) && !full.contains(",shadow"), "{full}");
        // What observed checks did is propagated as decided.
        replicated(&mut c);
        let mut r = replica.connect();
        for key in ["k", "blocked", "paused", "s", "t"] {
            assert_eq!(digest_of(&mut c, key), digest_of(&mut r, key), "{key}");
        }
        // The keys that rules would have denied, and by which rule.
        let rows: Vec<(String, i64, i64, String)> = ask(&mut c, "RL.TOP SHADOW");
        let k: i64 = rows.iter().filter(|row| row.0 == "k").map(|row| row.1).sum();
        assert!(k >= 4 && rows.iter().any(|row| row.3 == "slots:0"), "{rows:?}");
        assert_eq!(ask::<Vec<Value>>(&mut c, "RL.TOP"), []);
        assert_eq!(
            info_text(&mut c, "ratelimit", "ratelimit_policy_free").split(',').nth(2),
            Some("shadowed=1")
        );
        set(&mut c, "yes");
        assert_eq!(verdict(&mut c, "RL.CHECK blocked 5/d"), 2);
        assert_eq!(verdict(&mut c, "RL.CHECK k bucket:2/d"), 1, "the charges stay");
    });
}

/// Commands that `enforce off` answers, and their replies, which are those of an exempt key.
const OFF: [(&str, &str); 15] = [
    ("RL.CHECK k 0/s", "[0, -1, -1, 0, 0]"),
    ("RL.CHECK k COST 2..9 0/s", "[0, -1, -1, 0, 0, 9]"),
    ("RL.CHECK k HOLD h EX 9 META x slots:0", "[0, -1, -1, 0, 0]"),
    ("RL.CHECK k @nobody", "[0, -1, -1, 0, 0]"),
    ("RL.CHECK new @plan:nobody", "[0, -1, -1, 0, 0]"),
    ("RL.CHECK new @nobody @none 5/s bucket:0/s", "[0, -1, -1, 0, 0]"),
    ("RL.WAIT new 9 @nobody @none 5/s", "[0, -1, -1, 0, 0]"),
    ("RL.MCHECK 2 k new @nobody 5/s NEXT @none 5/s", "[0, -1, -1, 0, 0]"),
    ("RL.PEEK k 0/s", "[0, -1, -1, 0, 0]"),
    ("RL.WAIT k 9000 FLOW f 0/s", "[0, -1, -1, 0, 0]"),
    ("RL.MCHECK 2 k new 0/s", "[0, -1, -1, 0, 0]"),
    ("RL.MCHECK 2 k new ANY MOST 0/s NEXT @nobody", "[0, -1, -1, 0, 0, 0]"),
    ("RL.MCHECK 2 k new COST 1..3 ANY 0/s", "[0, -1, -1, 0, 0, 3, 0]"),
    ("RL.THROTTLE k 4 1 9 1", "[0, 5, 5, -1, 0]"),
    ("RL.THROTTLE new 4 1 9 0", "[0, 5, 5, -1, 0]"),
];

#[test]
fn checks_that_are_off_pass_and_change_nothing() {
    on_all(|server| {
        let mut c = server.connect();
        let _: Vec<i64> = ask(&mut c, "RL.CHECK k bucket:2/d");
        let () = ask(&mut c, "RL.BLOCK k");
        let before = dump(&mut c, "k");
        set(&mut c, "off");
        for (line, reply) in OFF {
            assert_eq!(format!("{:?}", ask::<Vec<i64>>(&mut c, line)), reply, "{line}");
        }
        let exempt = server.flavor().start();
        let mut e = exempt.connect();
        for key in ["k", "new"] {
            let () = ask(&mut e, &format!("RL.EXEMPT {key}"));
        }
        for line in [
            "RL.CHECK k FULL 0/s 5/d",
            "RL.MCHECK 2 k new FULL ANY 0/s",
            "RL.MCHECK 2 k new FULL 0/s",
        ] {
            assert_eq!(ask::<Value>(&mut c, line), ask::<Value>(&mut e, line), "{line}");
        }
        assert_eq!(dump(&mut c, "k"), before);
        assert_eq!(ask::<i64>(&mut c, "DBSIZE"), 1);
        assert_eq!(unenforced(&mut c), 16, "neither a peek nor what gives back counts");
        // Workers keep their leases, and wrong input stays wrong.
        assert_eq!(ask::<i64>(&mut c, "RL.RENEW k h EX 9"), 1);
        assert!(refusal(&mut c, "RL.CHECK k 5/x").contains("5/x"));
        set(&mut c, "yes");
        assert!(refusal(&mut c, "RL.CHECK k @nobody").contains("unknown policy"));
        assert_eq!(verdict(&mut c, "RL.CHECK k 5/d"), 2);
    });
}

#[test]
fn a_change_answers_waiting_clients_and_is_logged_and_shown() {
    on_all(|server| {
        let mut c = server.connect();
        for enforce in ["observe", "off"] {
            let shown = |c: &mut Connection| {
                let enforcing = info_text(c, "ratelimit", "ratelimit_enforcing");
                (info_text(c, "ratelimit", "ratelimit_enforce"), enforcing)
            };
            assert_eq!(shown(&mut c), ("yes".into(), "1".into()));
            let line = "RL.WAIT k 3600000 FLOW a bucket:1/366d";
            assert_eq!(verdict(&mut c, "RL.CHECK k HOLD h EX 9000 bucket:1/366d"), 0);
            let waiters: Vec<_> = (0..9).map(|_| wait_in_line(server, line)).collect();
            set(&mut c, enforce);
            for waiter in waiters {
                assert_eq!(
                    waiter.reply().map(|reply| format!("{reply:?}").contains("[int(0)")),
                    Ok(true)
                );
            }
            assert_eq!(waiting(&mut c), 0);
            assert_eq!(shown(&mut c), (enforce.into(), "0".into()));
            set(&mut c, "yes");
            let _: i64 = ask(&mut c, "DEL k");
            let log = server.log();
            let logged = |text: &str| log.matches(text).count();
            assert_eq!(logged(&format!("(ratelimit.enforce {enforce})")), 1, "{log}");
        }
        assert_eq!(server.log().matches("checks are enforced again").count(), 2);
    });
}

#[test]
fn under_load_every_check_passes_within_a_second_and_none_after_the_way_back() {
    server::oldest_and_newest();
    on_all(|server| {
        let (stop, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            let load = || {
                let mut c = server.connect();
                let mut replies = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let sent = Instant::now();
                    let allowed = verdict(&mut c, "RL.CHECK k 0/d") == 0;
                    replies.push((sent, Instant::now(), allowed));
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                replies
            };
            let clients: Vec<_> = (0..4).map(|_| scope.spawn(load)).collect();
            // From when to when each value was in effect for sure.
            let (mut c, mut in_effect) = (server.connect(), Vec::new());
            for enforce in ["off", "yes", "observe", "yes"] {
                set(&mut c, enforce);
                let (from, before) = (Instant::now(), answered.load(Ordering::Relaxed));
                // Each client may have sent one check before.
                let more = || answered.load(Ordering::Relaxed) - before;
                server::eventually("checks while a value is in effect", || more() > 20);
                in_effect.push((from, Instant::now(), enforce != "yes"));
            }
            stop.store(true, Ordering::Relaxed);
            let replies = clients.into_iter().flat_map(|client| client.join().expect("replies"));
            let replies: Vec<_> = replies.collect();
            for (from, to, expected) in in_effect {
                let meanwhile = replies.iter().filter(|reply| reply.0 > from && reply.1 < to);
                assert!(meanwhile.clone().all(|reply| reply.2 == expected));
                assert!(meanwhile.count() > 0, "no reply came while a value was in effect");
            }
        });
    });
}

#[test]
fn a_server_may_start_unenforced() {
    server::on_all_with(
        |builder| builder.module_args(&["enforce", "off"]),
        |server| {
            let mut c = server.connect();
            assert_eq!(verdict(&mut c, "RL.CHECK k 0/d"), 0);
            assert!(server.log().contains("checks are NOT enforced"), "{}", server.log());
            assert!(attempt(&mut c, "RL.CHECK k").is_err());
        },
    );
}
