//! What the server's own commands, which take keys of any type, do with keys of this module.

use redis::{Connection, Value, cmd};

use crate::support::client::{
    allowed, ask, command, digest, digest_of, dump, exists, expires_ms, now_us, remaining,
};
use crate::support::server::{self, Builder};

/// Makes the key `k` with 3 units of `5/h` and a state of each other algorithm.
fn fill(c: &mut Connection) {
    let rules = "5/h window:9/h,res=6 fixed:9/h,keep=2 bucket:9/h,name=b leaky:9/h";
    assert!(allowed(c, &format!("RL.CHECK k COST 3 {rules}")));
}

fn ttl_ms(c: &mut Connection, key: &str) -> i64 {
    ask(c, &format!("PTTL {key}"))
}

#[test]
fn renamed_copied_and_moved_keys_keep_value_and_expiry() {
    server::on_all(|server| {
        let mut c = server.connect();
        for (line, db, key) in [
            ("RENAME k new", 0, "new"),
            ("RENAME k string", 0, "string"),
            ("RENAMENX k new", 0, "new"),
            ("COPY k new", 0, "new"),
            ("COPY k string REPLACE", 0, "string"),
            ("COPY k new DB 1", 1, "new"),
            ("MOVE k 1", 1, "k"),
            ("SWAPDB 0 1", 1, "k"),
        ] {
            let () = ask(&mut c, "SET string x");
            fill(&mut c);
            let (value, ttl) = (dump(&mut c, "k"), ttl_ms(&mut c, "k"));
            let done: Value = ask(&mut c, line);
            assert_ne!(done, Value::Int(0), "{line}");
            assert_eq!(exists(&mut c, "k"), line.starts_with("COPY"), "{line}");

            let () = ask(&mut c, &format!("SELECT {db}"));
            assert_eq!(dump(&mut c, key), value, "{line}");
            assert!((ttl - 10_000..=ttl).contains(&ttl_ms(&mut c, key)), "{line}");
            assert_eq!(remaining(&mut c, &format!("RL.CHECK {key} 5/h")), 1, "{line}");
            let () = ask(&mut c, "SELECT 0");
            if exists(&mut c, "k") {
                assert_eq!(dump(&mut c, "k"), value, "a check of the copy changed the original");
            }
            let () = ask(&mut c, "FLUSHALL");
        }
    });
}

#[test]
fn an_existing_key_is_not_overwritten() {
    server::on_all(|server| {
        let mut c = server.connect();
        fill(&mut c);
        for (db, key) in [(0, "taken"), (1, "k")] {
            let () = ask(&mut c, &format!("SELECT {db}"));
            assert!(allowed(&mut c, &format!("RL.CHECK {key} COST 2 bucket:9/d")));
        }
        let () = ask(&mut c, "SELECT 0");
        let before = digest(&mut c);
        for line in ["RENAMENX k taken", "COPY k taken", "COPY k k DB 1", "MOVE k 1"] {
            assert_eq!(ask::<i64>(&mut c, line), 0, "{line}");
            assert_eq!(digest(&mut c), before, "{line}");
        }
    });
}

#[test]
fn generic_commands_describe_a_key() {
    server::on_all(|server| {
        let mut c = server.connect();
        fill(&mut c);
        assert_eq!(ask::<String>(&mut c, "RANDOMKEY"), "k");
        assert_eq!(ask::<Vec<String>>(&mut c, "KEYS *"), ["k"]);
        assert_eq!(ask::<i64>(&mut c, "DBSIZE"), 1);
        assert_eq!(ask::<String>(&mut c, "OBJECT ENCODING k"), "raw");
        assert_eq!(ask::<i64>(&mut c, "OBJECT REFCOUNT k"), 1);
        let object: String = ask(&mut c, "DEBUG OBJECT k");
        let payload = object.split(' ').find_map(|part| part.strip_prefix("serializedlength:"));
        assert!(payload.is_some_and(|length| length.parse::<usize>().unwrap() > 50), "{object}");
        let usage: i64 = ask(&mut c, "MEMORY USAGE k");
        assert_eq!(ask::<i64>(&mut c, "MEMORY USAGE k SAMPLES 0"), usage);
        assert!(usage > 300, "{usage} bytes");
    });
}

#[test]
fn checks_and_peeks_count_as_use() {
    server::on_all(|server| {
        let mut c = server.connect();
        fill(&mut c);
        let payload = dump(&mut c, "k");
        for line in ["RL.PEEK k 5/h", "RL.CHECK k 5/h", "RL.CHECK k COST 5 5/h", "TOUCH k"] {
            let () = command("RESTORE k 0")
                .arg(&payload)
                .arg(&["REPLACE", "IDLETIME", "1000"])
                .query(&mut c)
                .unwrap();
            let mut idle = || ask::<i64>(&mut c, "OBJECT IDLETIME k");
            assert!(idle() >= 1_000);
            let _: Value = ask(&mut server.connect(), line);
            assert!(idle() < 1_000, "{line}");
        }

        let () = ask(&mut c, "CONFIG SET maxmemory-policy allkeys-lfu");
        let () = ask(&mut c, "CONFIG SET lfu-decay-time 0");
        let () = ask(&mut c, "CONFIG SET lfu-log-factor 0"); // every use counts
        let () = command("RESTORE k 0")
            .arg(&payload)
            .arg(&["REPLACE", "FREQ", "100"])
            .query(&mut c)
            .unwrap();
        assert_eq!(ask::<i64>(&mut c, "OBJECT FREQ k"), 100);
        for _ in 0..10 {
            let _: Value = ask(&mut c, "RL.PEEK k 5/h");
        }
        assert_eq!(ask::<i64>(&mut c, "OBJECT FREQ k"), 110);
    });
}

#[test]
fn a_digest_changes_with_consumption_only() {
    server::on_all(|server| {
        let mut c = server.connect();
        fill(&mut c);
        let () = ask(&mut c, "COPY k twin");
        let before = digest_of(&mut c, "k");
        assert_eq!(digest_of(&mut c, "twin"), before);
        assert!(!allowed(&mut c, "RL.CHECK k COST 3 5/h"));
        assert_eq!(digest_of(&mut c, "k"), before);
        assert!(allowed(&mut c, "RL.CHECK k 5/h"));
        assert_ne!(digest_of(&mut c, "k"), before);
    });
}

#[test]
fn debug_reload_preserves_everything() {
    server::on_all(|server| {
        let mut c = server.connect();
        fill(&mut c);
        let before = (digest(&mut c), dump(&mut c, "k"));
        let () = ask(&mut c, "SAVE");
        assert!(server.dir().join("dump.rdb").exists());
        let () = ask(&mut c, "DEBUG RELOAD");
        assert_eq!((digest(&mut c), dump(&mut c, "k")), before);
        assert_eq!(remaining(&mut c, "RL.CHECK k 5/h"), 1);
    });
}

/// Rules of each algorithm, with options and names.
const RULES: [&str; 9] = [
    "100/m",
    "window:100/m",
    "window:100/h,res=6",
    "fixed:100/m,keep=3",
    "fixed:100/month",
    "bucket:100/m,burst=7",
    "bucket:100/m,refill=interval,name=lump",
    "leaky:100/m",
    "log:50/s,name=fast,count=all",
];

fn full(c: &mut Connection, key: &str, at_us: u64) -> Value {
    cmd("RL.PEEK").arg(key).arg("AT").arg(at_us).arg("FULL").arg(&RULES).query(c).unwrap()
}

/// Makes the key `k` with a state of each of [`RULES`], and returns a time for [`full`].
fn fill_each_rule(c: &mut Connection) -> u64 {
    for cost in [1, 2, 1] {
        assert!(allowed(c, &format!("RL.CHECK k COST {cost} {}", RULES.join(" "))));
    }
    now_us(c)
}

#[test]
fn a_restart_preserves_value_expiry_and_decisions() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        let at_us = fill_each_rule(&mut c);
        let flavor = server.flavor();
        let seen =
            |c: &mut Connection| (dump(c, "k"), full(c, "k", at_us), expires_ms(c, flavor, "k"));
        let before = seen(&mut c);
        drop(c);
        server.restart();
        assert_eq!(seen(&mut server.connect()), before);
    });
}

#[test]
fn restored_copied_and_renamed_keys_decide_alike() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        let at_us = fill_each_rule(&mut c);
        let payload = dump(&mut c, "k");
        let () = cmd("RESTORE").arg("restored").arg(0).arg(&payload).query(&mut c).unwrap();
        assert_eq!(ask::<i64>(&mut c, "COPY k copy"), 1);
        let state = full(&mut c, "k", at_us);
        for twin in ["restored", "copy"] {
            assert_eq!(dump(&mut c, twin), payload, "{twin}");
            assert_eq!(full(&mut c, twin, at_us), state, "{twin}");
        }
        assert!(allowed(&mut c, &format!("RL.CHECK copy {}", RULES.join(" "))));
        assert_eq!(full(&mut c, "k", at_us), state, "a check of the copy changed the original");
        let () = ask(&mut c, "RENAME k renamed");
        assert_eq!(full(&mut c, "renamed", at_us), state);
    });
}

#[test]
fn the_type_is_named_ratelimit_and_scan_finds_it() {
    server::on_all(|server| {
        let mut c = server.connect();
        let () = ask(&mut c, "SET other x");
        assert!(allowed(&mut c, "RL.CHECK k 5/m"));
        assert_eq!(ask::<String>(&mut c, "TYPE k"), "ratelimit");
        let scan = "SCAN 0 COUNT 100 TYPE ratelimit";
        let (_, keys): (u64, Vec<String>) = ask(&mut c, scan);
        assert_eq!(keys, ["k"]);
    });
}
