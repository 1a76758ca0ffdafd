//! Ban ladders, `ban=1m:10m:1h`: the count of bans in a key, and what deletes it.

use redis::{Connection, Value};

use crate::support::client::{
    Bans, ask, bans_of, digest, exists, expires_ms, now_us, replica_of, replicated, verdict,
};
use crate::support::server::{self, Builder};
use crate::support::workload::link::quiet;

/// Checks a key at a time of the server's clock. Returns its verdict and wait.
fn check(c: &mut Connection, key: &str, at_us: u64, rule: &str) -> (i64, i64) {
    let reply: [i64; 5] = ask(c, &format!("RL.CHECK {key} AT {at_us} {rule}"));
    (reply[0], reply[3])
}

const LADDER: &str = "fixed:0/h,ban=1h:2h:3h";
const HOUR_MS: i64 = 3_600_000;

/// Bans a key an hour ago for an hour, and again now. Returns the present time.
fn ban_twice(c: &mut Connection, key: &str) -> u64 {
    let start_us = now_us(c);
    let bans = |c: &mut Connection| bans_of(c, key).expect("a key").bans;
    assert_eq!(check(c, key, start_us - 3_600_000_000, LADDER).0, 1);
    assert_eq!((verdict(c, &format!("RL.CHECK {key} {LADDER}")), bans(c)), (1, 2));
    start_us
}

#[test]
fn info_shows_the_count_and_when_it_is_forgotten() {
    server::on_all_with(Builder::allow_at, |server| {
        for mut c in [server.connect(), server.connect_resp3()] {
            let () = ask(&mut c, "FLUSHALL");
            let _: Value = ask(&mut c, "RL.CHECK k 5/s");
            assert_eq!(bans_of(&mut c, "k"), Some(Bans { bans: 0, forgiven_ms: 0 }));
            let before_us = ban_twice(&mut c, "k");
            let Bans { bans, forgiven_ms } = bans_of(&mut c, "k").expect("a key");
            let passed_ms = (now_us(&mut c) - before_us).div_ceil(1_000).cast_signed() + 1;
            assert_eq!(bans, 2);
            // The ban of two hours, plus the longest rung.
            let expected = 5 * HOUR_MS - passed_ms..=5 * HOUR_MS;
            assert!(expected.contains(&forgiven_ms), "{forgiven_ms}, not {expected:?}");
            // The key lives until then, and at most a second longer.
            let expires_ms = expires_ms(&mut c, server.flavor(), "k");
            let late_ms = expires_ms - before_us.cast_signed() / 1_000 - 5 * HOUR_MS;
            assert!((0..1_001 + passed_ms).contains(&late_ms), "{late_ms}");
        }
    });
}

#[test]
fn only_an_unblock_forgets_bans_early() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        ban_twice(&mut c, "k");
        let bans = |c: &mut Connection| bans_of(c, "k").map_or(0, |info| info.bans);
        assert_eq!(ask::<i64>(&mut c, "RL.RESET k"), 0, "there was no state");
        assert_eq!(ask::<String>(&mut c, "RL.BLOCK k EX 100"), "OK");
        assert_eq!(bans(&mut c), 2, "a block by hand does not count");
        assert_eq!(ask::<String>(&mut c, "RL.EXEMPT k"), "OK");
        assert_eq!(verdict(&mut c, "RL.CHECK k 1/h"), 0);
        assert_eq!(ask::<i64>(&mut c, "RL.UNEXEMPT k"), 1);
        assert_eq!(bans(&mut c), 2);
        assert_eq!(verdict(&mut c, "RL.CHECK k 9/h"), 0);
        assert_eq!(ask::<i64>(&mut c, "RL.RESET k"), 1);
        assert_eq!(bans(&mut c), 2, "a reset keeps the count");
        // Nothing blocks the key, so RL.UNBLOCK only forgets its bans, once.
        assert_eq!(ask::<i64>(&mut c, "RL.UNBLOCK k"), 1);
        assert_eq!(ask::<i64>(&mut c, "RL.UNBLOCK k"), 0);
        assert!(!exists(&mut c, "k"), "the key was empty");
        // RL.UNBLOCK removes a ban with its count, and keeps an exemption.
        ban_twice(&mut c, "k");
        assert_eq!(ask::<i64>(&mut c, "RL.UNBLOCK k"), 1);
        assert!(!exists(&mut c, "k"));
        ban_twice(&mut c, "k");
        let _: String = ask(&mut c, "RL.EXEMPT k");
        assert_eq!(ask::<i64>(&mut c, "RL.UNBLOCK k"), 1);
        assert_eq!((bans(&mut c), verdict(&mut c, "RL.CHECK k 0/h")), (0, 0));
        assert_eq!(ask::<i64>(&mut c, "RL.UNBLOCK k"), 0);
    });
}

#[test]
fn a_step_back_of_the_clock_shortens_a_ban_and_the_life_of_its_count() {
    server::on_all_with(
        |builder| quiet(builder).allow_at(),
        |server| {
            let replica = replica_of(server);
            let mut c = server.connect();
            let now_us = now_us(&mut c);
            let year_us = 365 * 86_400_000_000;
            assert_eq!(check(&mut c, "k", now_us + year_us, LADDER), (1, -1));
            assert_eq!(check(&mut c, "k", now_us, LADDER), (2, HOUR_MS));
            let Bans { bans, forgiven_ms } = bans_of(&mut c, "k").expect("a key");
            assert!(bans == 1 && forgiven_ms <= 4 * HOUR_MS, "{bans} {forgiven_ms}");
            // Any change of a key shortens the life of its count, even if nothing blocks the key.
            assert_eq!(check(&mut c, "free", now_us + year_us, LADDER), (1, -1));
            let _: String = ask(&mut c, "RL.EXEMPT free");
            let _: i64 = ask(&mut c, "RL.UNEXEMPT free");
            assert_eq!(check(&mut c, "free", now_us, "9/h").0, 0);
            let forgiven_ms = bans_of(&mut c, "free").expect("a key").forgiven_ms;
            assert!(forgiven_ms <= 4 * HOUR_MS, "{forgiven_ms}");
            let expires_ms = expires_ms(&mut c, server.flavor(), "free");
            assert!(expires_ms < now_us.cast_signed() / 1_000 + 5 * HOUR_MS, "{expires_ms}");
            replicated(&mut c);
            let mut r = replica.connect();
            assert_eq!(digest(&mut r), digest(&mut c));
        },
    );
}
