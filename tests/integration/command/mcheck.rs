//! `RL.MCHECK`: one request is checked under several keys, such as an address and a user, and
//! counts for all keys or for none.

mod any;
mod full;
mod propagation;

use redis::{Connection, Pipeline, Value, pipe};

use crate::support::client::{self, START_US, ask, dump, exists, info, now_ms, refusal};
use crate::support::server::{self, eventually};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// The time this many milliseconds after `START_US`.
fn at(ms: i64) -> u64 {
    START_US.saturating_add_signed(ms * 1_000)
}

/// The five integers that a check of these keys replies.
fn mcheck(c: &mut Connection, keys: &str, rest: &str) -> [i64; 5] {
    ask(c, &line(keys, rest))
}

fn line(keys: &str, rest: &str) -> String {
    format!("RL.MCHECK {} {keys} {rest}", keys.split(' ').count())
}

fn dumps(c: &mut Connection, keys: &str) -> Vec<Option<Vec<u8>>> {
    keys.split(' ').map(|key| dump(c, key)).collect()
}

#[test]
fn a_key_of_another_type_fails_the_whole_check() {
    server::on_all(|server| {
        let mut c = server.connect();
        let () = ask(&mut c, "SET text x");
        let _: Value = ask(&mut c, "RL.CHECK used 5/h");
        let () = ask(&mut c, "RL.BLOCK blocked");
        for keys in ["text used new", "used text new", "used new text", "blocked text new"] {
            let before = dumps(&mut c, keys);
            let counted = info(&mut c, "ratelimit", "ratelimit_checks");
            let check = line(keys, "META who 0/h,count=all,ban=1h");
            assert!(refusal(&mut c, &check).contains("WRONGTYPE"), "{check}");
            assert_eq!(dumps(&mut c, keys), before, "{check}");
            assert_eq!(info(&mut c, "ratelimit", "ratelimit_checks"), counted, "{check}");
        }
        assert!(!exists(&mut c, "new"));
        assert_eq!(ask::<Vec<Value>>(&mut c, "RL.TOP"), []);
    });
}

#[test]
fn wrong_arguments_are_refused_and_change_nothing() {
    server::on_all(|server| {
        let mut c = server.connect();
        let _: Value = ask(&mut c, "RL.MCHECK 2 a b 5/h");
        let before = dumps(&mut c, "a b");
        for (check, says) in [
            ("RL.MCHECK 2 a a 5/h", "key 'a' is given twice"),
            ("RL.MCHECK 0 5/h 5/h", "numkeys is '0'"),
            ("RL.MCHECK 3 a b 5/h", "wrong number of arguments"),
            ("RL.MCHECK 2 a b 5/h NEXT 5/x", "rule '5/x'"),
            ("RL.MCHECK 2 a b 5/h NEXT 5/m NEXT 5/s", "3 groups"),
            ("RL.MCHECK 2 a b 5/h NEXT @nobody", "@nobody"),
            ("RL.MCHECK 2 a b AT 5 5/h", "allow-at"),
        ] {
            let error = refusal(&mut c, check);
            assert!(error.contains(says), "{check}: «{error}» does not say «{says}»");
            assert_eq!(dumps(&mut c, "a b"), before, "{check}");
            assert_eq!(ask::<i64>(&mut c, "DBSIZE"), 2, "{check}");
        }
    });
}

#[test]
fn a_removed_key_starts_empty_and_others_keep_their_counts() {
    server::on_all(|server| {
        let mut c = server.connect();
        let left = |c: &mut Connection| {
            ["stays", "goes"].map(|key| client::remaining(c, &format!("RL.PEEK {key} 5/h")))
        };
        let assert_kept = |c: &mut Connection, how: &str, go: &mut dyn FnMut(&mut Connection)| {
            let () = ask(c, "FLUSHALL");
            assert_eq!(mcheck(c, "stays goes", "COST 3 5/h")[..3], [0, 5, 2], "{how}");
            go(c);
            // The removed key alone would admit this.
            assert_eq!(mcheck(c, "stays goes", "COST 4 5/h")[..3], [1, 5, 2], "{how}");
            assert!(!exists(c, "goes"), "{how}: a denied check made a key");
            assert_eq!(mcheck(c, "stays goes", "COST 2 5/h")[..3], [0, 5, 0], "{how}");
            assert_eq!(left(c), [0, 3], "{how}");
        };
        assert_kept(&mut c, "deleted", &mut |c| {
            let _: i64 = ask(c, "DEL goes");
        });
        assert_kept(&mut c, "renamed", &mut |c| ask(c, "RENAME goes away"));
        assert_kept(&mut c, "expired", &mut |c| {
            let _: i64 = ask(c, "PEXPIRE goes 1");
            eventually("the key to expire", || !exists(c, "goes"));
        });
        // Expired, but not yet deleted.
        assert_kept(&mut c, "found expired", &mut |c| {
            let () = ask(c, "DEBUG SET-ACTIVE-EXPIRE 0");
            let end_ms = now_ms(c) + 5;
            let _: i64 = ask(c, &format!("PEXPIREAT goes {end_ms}"));
            eventually("the expiry to pass", || now_ms(c) > end_ms);
        });
        let () = ask(&mut c, "DEBUG SET-ACTIVE-EXPIRE 1");
        // The server evicts only keys with an expiry.
        let () = ask(&mut c, "CONFIG SET maxmemory-policy volatile-lru");
        assert_kept(&mut c, "evicted", &mut |c| {
            let _: i64 = ask(c, "PERSIST stays");
            let evicted = info(c, "stats", "evicted_keys");
            let () = ask(c, "CONFIG SET maxmemory 1");
            let error = refusal(c, "RL.MCHECK 2 stays goes 5/h");
            assert!(error.contains("OOM"), "{error}");
            assert_eq!(info(c, "stats", "evicted_keys"), evicted + 1.0);
            let () = ask(c, "CONFIG SET maxmemory 0");
        });
    });
}

#[test]
fn a_check_takes_64_keys_with_32_rules_each() {
    server::on_all(|server| {
        let mut c = server.connect();
        let keys: Vec<String> = (0..64).map(|n| format!("k{n}")).collect();
        let group: Vec<String> = (0..32).map(|n| format!("bucket:{}/h,name=r{n}", n + 5)).collect();
        let groups = vec![group.join(" "); 64].join(" NEXT ");
        let check = line(&keys.join(" "), &groups);
        for left in (0..5).rev() {
            assert_eq!(ask::<[i64; 5]>(&mut c, &check)[..3], [0, 5, left]);
        }
        assert_eq!(ask::<[i64; 5]>(&mut c, &check)[..3], [1, 5, 0]);
        for key in ["k0", "k63"] {
            assert_eq!(client::remaining(&mut c, &format!("RL.PEEK {key} {}", group[31])), 31);
        }
    });
}

/// A pipeline of checks of `keys` keys each, 192 keys in all. If a check's time grows linearly with
/// its keys, every such pipeline takes equally long, and a busy machine interrupts each equally often.
fn checks(keys: usize) -> Pipeline {
    let names: Vec<String> = (0..keys).map(|n| format!("k{n}")).collect();
    let rules = "bucket:1000000000/h 1000/s window:1000000000/h fixed:1000000000/h";
    let check = client::command(&line(&names.join(" "), rules));
    let mut checks = pipe();
    for _ in 0..192 / keys {
        checks.add_command(check.clone());
    }
    checks
}

#[test]
fn the_time_of_a_check_grows_linearly_with_its_keys() {
    server::on_all(|server| {
        let mut c = server.connect();
        let pipelines = [&checks(8), &checks(64)];
        let [few, many] = client::least_usec_per_call(&mut c, "rl.mcheck", pipelines);
        // Quadratic growth would be 64-fold.
        assert!(many < few * 8.0 * 3.0, "8 keys: {few} us, 64 keys: {many} us");
    });
}
