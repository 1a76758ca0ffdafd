//! Memory: what keys take, how it is freed, eviction, and servers that have run out.

use std::collections::HashSet;

use redis::{Connection, Value};

use crate::support::client::{allowed, ask, command, dump, exists, info, refusal, remaining};
use crate::support::server::{self, Server};

fn used_memory(c: &mut Connection) -> f64 {
    info(c, "memory", "used_memory")
}

/// How many values a background thread freed, instead of the command that removed them.
fn freed_by_thread(c: &mut Connection) -> f64 {
    server::eventually("the thread to free all values", || {
        info(c, "memory", "lazyfree_pending_objects") == 0.0
    });
    info(c, "memory", "lazyfreed_objects")
}

/// Makes the key `k` with a value of hundreds of allocations.
fn many_states(c: &mut Connection) {
    let rules: Vec<String> = (0..300).map(|n| format!("window:9/h,res=60,name=n{n}")).collect();
    let reply: [i64; 5] = command("RL.CHECK k").arg(rules).query(c).unwrap();
    assert_eq!(reply[0], 0);
}

/// Makes the key `k` with a value of a few allocations, two of them of 400 KB.
fn long_log(c: &mut Connection) {
    let script = "for i = 1, 100000 do
        redis.call('RL.CHECK', KEYS[1], 'COST', 2, '200000/h')
    end";
    let () = command("EVAL").arg(script).arg(&[1]).arg("k").query(c).unwrap();
    assert_eq!(remaining(c, "RL.PEEK k 200000/h"), 0);
    assert!(ask::<i64>(c, "MEMORY USAGE k") > 800_000);
}

fn on_all_with_large_values(body: impl Fn(&mut Server)) {
    server::on_all_with(
        |b| {
            let args = ["max-rules", "1000", "max-states", "1000", "max-log-entries", "1000000"];
            b.module_args(&args)
        },
        body,
    );
}

fn set_all_lazyfree(c: &mut Connection, to: &str) {
    for what in ["eviction", "expire", "server-del", "user-del", "user-flush"] {
        let () = ask(c, &format!("CONFIG SET lazyfree-lazy-{what} {to}"));
    }
}

/// Makes buffers and tables as large as they will get, so that memory can be compared.
fn warm_up(c: &mut Connection, fill: fn(&mut Connection)) {
    fill(c);
    let () = ask(c, "DEL k");
}

/// Commands that remove a key, and whether a thread frees the value even if the configuration
/// does not ask for it.
const REMOVALS: [(&str, bool); 4] =
    [("UNLINK k", true), ("DEL k", false), ("RENAME other k", false), ("PEXPIRE k 1", false)];

#[test]
fn a_thread_frees_a_value_of_many_allocations() {
    on_all_with_large_values(|server| {
        let mut c = server.connect();
        warm_up(&mut c, many_states);
        for (configured, lazily) in [("no", false), ("yes", true)] {
            set_all_lazyfree(&mut c, configured);
            for (line, always_lazily) in REMOVALS {
                let () = ask(&mut c, "DEL k");
                let () = ask(&mut c, "SET other x");
                let (freed, used) = (freed_by_thread(&mut c), used_memory(&mut c));
                many_states(&mut c);
                assert!(used_memory(&mut c) > used + 100_000.0);
                let _: Value = ask(&mut c, line);
                server::eventually("the value to be gone", || {
                    ask::<String>(&mut c, "TYPE k") != "ratelimit"
                });
                let by_thread = freed_by_thread(&mut c) - freed == 1.0;
                assert_eq!(by_thread, lazily || always_lazily, "{line}, lazyfree {configured}");
                server::eventually("the memory to return", || {
                    used_memory(&mut c) < used + 50_000.0
                });
            }
        }
    });
}

#[test]
fn a_long_value_of_few_allocations_is_freed_at_once() {
    server::oldest_and_newest();
    // The server lets a thread free values of more than 64 allocations.
    on_all_with_large_values(|server| {
        let mut c = server.connect();
        set_all_lazyfree(&mut c, "yes");
        warm_up(&mut c, long_log);
        let (freed, used) = (freed_by_thread(&mut c), used_memory(&mut c));
        for line in ["UNLINK k", "DEL k"] {
            long_log(&mut c);
            let () = ask(&mut c, line);
            assert_eq!(freed_by_thread(&mut c), freed, "{line}");
            server::eventually("the memory to return", || used_memory(&mut c) < used + 100_000.0);
        }
    });
}

#[test]
fn checks_are_served_while_a_thread_frees_everything() {
    server::oldest_and_newest();
    const KEYS: i64 = 20_000;
    on_all_with_large_values(|server| {
        let mut c = server.connect();
        let fill = format!(
            "for i = 1, {KEYS} do redis.call('RL.CHECK', 'k' .. i, '5/h', 'fixed:9/d,name=f') end"
        );
        for round in 0..3 {
            let () = command("EVAL").arg(&fill).arg(0).query(&mut c).unwrap();
            assert_eq!(ask::<i64>(&mut c, "DBSIZE"), KEYS);
            let (full, freed) = (used_memory(&mut c), info(&mut c, "memory", "lazyfreed_objects"));
            let () = ask(&mut c, "FLUSHALL ASYNC");
            let mut checks = redis::pipe();
            for n in 0..1_000 {
                checks.add_command(command(&format!("RL.CHECK k{n} 5/h")));
            }
            let replies: Vec<[i64; 5]> = checks.query(&mut c).unwrap();
            assert!(replies.iter().all(|reply| reply[..3] == [0, 5, 4]));
            assert_eq!(freed_by_thread(&mut c) - freed, KEYS as f64, "round {round}");
            server::eventually("the memory to return", || {
                used_memory(&mut c) < full - KEYS as f64 * 100.0
            });
            let () = ask(&mut c, "FLUSHALL SYNC");
        }
    });
}

/// The eviction policies that a server lists when it is given an unknown one.
fn eviction_policies(c: &mut Connection) -> Vec<String> {
    let offer = refusal(c, "CONFIG SET maxmemory-policy none");
    let (_, list) = offer.split_once("following: ").expect("a list of policies");
    list.split(", ").map(|name| name.trim().to_string()).filter(|p| p != "noeviction").collect()
}

#[test]
fn keys_are_evicted_under_every_policy() {
    const KEYS: usize = 1_500;
    server::on_all(|server| {
        let mut c = server.connect();
        let () = ask(&mut c, "CONFIG SET maxmemory-samples 20");
        let policies = eviction_policies(&mut c);
        assert!(policies.len() >= 7, "{policies:?}");
        for policy in policies {
            let () = ask(&mut c, "CONFIG SET maxmemory 0");
            let () = ask(&mut c, "FLUSHALL SYNC");
            let () = ask(&mut c, &format!("CONFIG SET maxmemory-policy {policy}"));
            let () = ask(&mut c, "SET without-ttl x");
            for n in 0..5 {
                assert!(allowed(&mut c, &format!("RL.CHECK month{n} fixed:5/30d")));
            }
            let evicted = info(&mut c, "stats", "evicted_keys");
            let room = used_memory(&mut c) + 300_000.0;
            let () = ask(&mut c, &format!("CONFIG SET maxmemory {room}"));
            let names: Vec<String> = (0..KEYS).map(|n| format!("hour{n}")).collect();
            for names in names.chunks(50) {
                let mut checks = redis::pipe();
                for name in names {
                    checks.add_command(command(&format!("RL.CHECK {name} window:5/h,res=60")));
                }
                let replies: Vec<[i64; 5]> = checks.query(&mut c).unwrap();
                assert!(replies.iter().all(|reply| reply[..3] == [0, 5, 4]), "{policy}");
            }
            assert!(info(&mut c, "stats", "evicted_keys") > evicted, "{policy}");

            let left: HashSet<String> = ask(&mut c, "KEYS *");
            if policy.starts_with("volatile") {
                assert!(left.contains("without-ttl"), "{policy}: keys of this module have a TTL");
            }
            if policy == "volatile-ttl" {
                let long = left.iter().filter(|name| name.starts_with("month")).count();
                assert_eq!(long, 5, "keys that expire sooner go first");
            }
            let gone = names.iter().find(|name| !left.contains(*name)).expect("an evicted key");
            assert_eq!(remaining(&mut c, &format!("RL.CHECK {gone} 5/h")), 4, "{policy}");
        }
    });
}

#[test]
fn without_memory_checks_are_refused_and_other_commands_work() {
    server::on_all_with(
        |builder| builder.config("maxmemory-policy", "noeviction"),
        |server| {
            let mut c = server.connect();
            assert!(allowed(&mut c, "RL.CHECK k COST 3 5/h bucket:9/h,name=b"));
            let before = dump(&mut c, "k");
            let () = ask(&mut c, "CONFIG SET maxmemory 1");
            for check in ["RL.CHECK k 5/h", "RL.CHECK k 0/h", "RL.CHECK new 5/h"] {
                assert!(refusal(&mut c, check).contains("OOM"), "{check}");
            }
            let script = "return redis.call('RL.CHECK', KEYS[1], '5/h')";
            let in_script = command("EVAL").arg(script).arg(&[1]).arg("k").query::<Value>(&mut c);
            let error = in_script.unwrap_err().to_string();
            assert!(error.contains("'maxmemory'"), "{error}");
            let () = ask(&mut c, "MULTI");
            assert!(refusal(&mut c, "RL.CHECK k 5/h").contains("OOM"));
            let _ = refusal(&mut c, "EXEC");
            assert_eq!(dump(&mut c, "k"), before);
            assert!(!exists(&mut c, "new"));

            assert_eq!(remaining(&mut c, "RL.PEEK k 5/h"), 2);
            assert_eq!(ask::<i64>(&mut c, "RL.REFUND k 1"), 1);
            assert_eq!(remaining(&mut c, "RL.PEEK k 5/h"), 3);
            assert_eq!(ask::<i64>(&mut c, "RL.RESET k"), 1);
            assert!(!exists(&mut c, "k"));

            let () = ask(&mut c, "CONFIG SET maxmemory 0");
            assert_eq!(remaining(&mut c, "RL.CHECK k 5/h"), 4);
        },
    );
}

#[test]
fn keys_can_be_blocked_and_exempted_when_memory_is_full() {
    server::on_all_with(
        |builder| builder.config("maxmemory-policy", "noeviction"),
        |server| {
            let mut c = server.connect();
            assert_eq!(remaining(&mut c, "RL.CHECK known 5/h"), 4);
            let () = ask(&mut c, "CONFIG SET maxmemory 1");
            assert!(refusal(&mut c, "RL.CHECK new 5/h").contains("OOM"));
            for key in ["known", "new"] {
                assert_eq!(ask::<String>(&mut c, &format!("RL.BLOCK {key} EX 3600")), "OK");
                assert_eq!(ask::<[i64; 5]>(&mut c, &format!("RL.PEEK {key} 5/h"))[0], 2, "{key}");
                assert_eq!(ask::<String>(&mut c, &format!("RL.EXEMPT {key}")), "OK");
                let exempt: [i64; 5] = ask(&mut c, &format!("RL.PEEK {key} 5/h"));
                assert_eq!(exempt, [0, -1, -1, 0, 0], "{key}");
            }
        },
    );
}

/// Sends one denied check for each of this many keys, whose names have this length.
fn deny(c: &mut Connection, keys: usize, name_len: usize) {
    let beginning = "x".repeat(name_len - 8);
    let at_once = (8 << 20) / name_len;
    for first in (0..keys).step_by(at_once) {
        let mut checks = redis::pipe();
        for n in first..keys.min(first + at_once) {
            checks.cmd("RL.CHECK").arg(format!("{beginning}{n:08}")).arg("0/h").ignore();
        }
        let () = checks.query(c).unwrap();
    }
}

#[test]
fn denials_of_long_names_evict_no_key() {
    server::oldest_and_newest();
    const KEYS: i64 = 5_000;
    const LONG: usize = 4 << 20;
    server::on_all(|server| {
        let mut c = server.connect();
        let () = ask(&mut c, &format!("DEBUG POPULATE {KEYS} k 100"));
        // The server's buffers hold the denied request about twice.
        let room = used_memory(&mut c) + (20 * LONG) as f64;
        let () = ask(&mut c, "CONFIG SET maxmemory-policy allkeys-lru");
        let () = ask(&mut c, &format!("CONFIG SET maxmemory {room}"));
        deny(&mut c, 60, LONG);
        assert_eq!(info(&mut c, "stats", "evicted_keys"), 0.0);
        assert_eq!(ask::<i64>(&mut c, "DBSIZE"), KEYS);
        let rows: Vec<(String, i64, i64)> = ask(&mut c, "RL.TOP COUNT 100");
        assert_eq!(rows.len(), 60);
        assert!(rows.iter().all(|(name, ..)| name.ends_with(" (4194304 bytes)")), "{rows:?}");
    });
}

#[test]
fn a_smaller_top_size_frees_memory_at_once() {
    server::oldest_and_newest();
    const ROWS: usize = 20_000;
    server::on_all_with(
        |builder| builder.module_args(&["top-size", &ROWS.to_string()]),
        |server| {
            if !server.flavor().is_7_or_later() {
                return; // 6.2 cannot change this setting.
            }
            let mut c = server.connect();
            deny(&mut c, 2 * ROWS, 300);
            for (size, kept) in [("100", 100), ("0", 0)] {
                deny(&mut c, 2 * ROWS, 300);
                let full = used_memory(&mut c);
                let () = ask(&mut c, &format!("CONFIG SET ratelimit.top-size {size}"));
                let returned = full - used_memory(&mut c);
                assert!(returned > ROWS as f64 * 300.0, "top-size {size}: {returned} bytes");
                assert_eq!(ask::<Vec<Value>>(&mut c, "RL.TOP COUNT 100000").len(), kept);
                let () = ask(&mut c, &format!("CONFIG SET ratelimit.top-size {ROWS}"));
            }
        },
    );
}

#[test]
fn each_value_takes_no_more_memory_than_documented() {
    server::on_all(|server| {
        let mut c = server.connect();
        let usage =
            |c: &mut Connection, key: &str| -> i64 { ask(c, &format!("MEMORY USAGE {key}")) };
        // A string of a few bytes with a TTL takes at least as much as an empty value of the
        // module.
        let () = ask(&mut c, "SET string x EX 60");
        let floor = usage(&mut c, "string");
        for (rule, promised) in [
            ("5/m", 64 + 16),
            ("window:5/m", 64 + 16),
            ("fixed:5/m", 48),
            ("bucket:5/m", 48),
            ("bucket:5/m,refill=interval", 48),
            ("leaky:5/m", 48),
            ("bucket:5/m,name=a-name-of-thirty-two-characters", 96),
            ("bucket:5/m,name=throttle", 48),
        ] {
            // An allocator may reuse a larger allocation, so the least of several keys counts.
            let keys: Vec<String> = (10..30).map(|n| format!("key_{n}")).collect();
            let over = keys.iter().map(|key| {
                let _: Value = ask(&mut c, &format!("RL.CHECK {key} {rule}"));
                usage(&mut c, key) - floor
            });
            let over = over.min().expect("keys");
            let () = redis::cmd("DEL").arg(&keys).query(&mut c).unwrap();
            // Some allocators add 8 bytes to each of up to three allocations.
            assert!((1..=promised + 24).contains(&over), "{rule} takes {over} bytes");
        }
        // A sliding log takes 4 bytes an entry, and a quarter more to grow into.
        let mut pipe = redis::pipe();
        for _ in 0..10_000 {
            pipe.cmd("RL.CHECK").arg("log").arg("20000/h").ignore();
        }
        let () = pipe.query(&mut c).unwrap();
        let per_entry = (usage(&mut c, "log") - floor) as f64 / 10_000.0;
        assert!((4.0..=5.1).contains(&per_entry), "{per_entry} bytes an entry");
    });
}

/// After its oldest entries are gone, a log begins inside its allocation, not at the start.
#[test]
fn memory_usage_of_a_log_that_wrapped_is_that_of_its_allocations() {
    server::on_all(|server| {
        let mut c = server.connect();
        for cost in [1, 2] {
            let mut pipe = redis::pipe();
            for _ in 0..300 {
                // Charged denials fill the ring several times over; the newest 50 units stay.
                pipe.cmd("RL.CHECK").arg("k").arg("COST").arg(cost).arg("50/h,count=all").ignore();
            }
            let () = pipe.query(&mut c).unwrap();
            let bytes: i64 = ask(&mut c, "MEMORY USAGE k");
            assert!((100..4_000).contains(&bytes), "{bytes}");
        }
    });
}
