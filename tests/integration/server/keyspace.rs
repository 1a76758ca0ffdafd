//! The commands that servers have for keys of any type, given keys of ours.

use redis::{Connection, Value};

use crate::support::client::{
    allowed, ask, command, digest, digest_of, dump, exists, refusal, remaining,
};
use crate::support::server;

/// The key `k` with 3 units of `5/h` in it, and something in a state of each other kind.
fn fill(c: &mut Connection) {
    let rules = "5/h window:9/h,res=6 fixed:9/h,keep=2 bucket:9/h,name=b leaky:9/h";
    assert!(allowed(c, &format!("RL.CHECK k COST 3 {rules}")));
}

fn ttl_ms(c: &mut Connection, key: &str) -> i64 {
    ask(c, &format!("PTTL {key}"))
}

#[test]
fn a_key_takes_everything_along_wherever_it_goes() {
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
                assert_eq!(dump(&mut c, "k"), value, "a copy is a value of its own");
            }
            let () = ask(&mut c, "FLUSHALL");
        }
    });
}

#[test]
fn a_key_that_would_be_in_the_way_stays() {
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
fn a_key_can_be_looked_at_like_any_other() {
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
fn a_look_at_a_key_counts_as_a_use() {
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
fn an_expiry_set_by_hand_holds_until_something_is_consumed() {
    // What matters for an hour expires within an hour and an eighth.
    const DUE_MS: std::ops::RangeInclusive<i64> = 3_590_000..=4_050_000;
    server::on_all(|server| {
        let mut c = server.connect();
        for (by_hand, left) in [
            ("PEXPIRE k 60000", 1..=60_000),
            ("PEXPIRE k 90000000", 80_000_000..=90_000_000),
            ("PERSIST k", -1..=-1),
        ] {
            let () = ask(&mut c, "DEL k");
            assert!(allowed(&mut c, "RL.CHECK k COST 3 5/h"));
            assert!(DUE_MS.contains(&ttl_ms(&mut c, "k")));
            let () = ask(&mut c, by_hand);
            for idle in ["RL.PEEK k 5/h", "RL.CHECK k COST 3 5/h", "RL.CHECK k COST 0 5/h"] {
                let _: Value = ask(&mut c, idle);
                let ttl = ttl_ms(&mut c, "k");
                assert!(left.contains(&ttl), "{by_hand}, {idle}: {ttl} ms");
            }
            assert!(allowed(&mut c, "RL.CHECK k 5/h"));
            let ttl = ttl_ms(&mut c, "k");
            assert!(DUE_MS.contains(&ttl), "{by_hand}, then a check: {ttl} ms");
        }
    });
}

#[test]
fn a_digest_is_that_of_what_was_consumed() {
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
fn saved_and_read_back_in_place_everything_is_as_it_was() {
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

#[test]
fn the_module_stays_as_its_values_need_it() {
    server::on_all_with(
        |b| match b.flavor().is_7_or_later() {
            true => b.config("enable-module-command", "local"),
            false => b, // 6.2 has MODULE for everybody
        },
        |server| {
            let mut c = server.connect();
            fill(&mut c);
            let why = refusal(&mut c, "MODULE UNLOAD ratelimit");
            assert!(why.contains("data types"), "{why}");
            let modules: Vec<Vec<Value>> = ask(&mut c, "MODULE LIST");
            let ours =
                |module: &Vec<Value>| module.contains(&Value::BulkString("ratelimit".into()));
            assert_eq!(modules.iter().filter(|module| ours(module)).count(), 1);
            assert_eq!(remaining(&mut c, "RL.CHECK k 5/h"), 1);
        },
    );
}
