//! Damaged files. A server that cannot have its data says why and ends by itself; a command of the
//! AOF that cannot be right is left out.

mod dump;
mod server;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use dump::{Dump, assert_calm, length, unpacked};
use redis::{Cmd, Connection, cmd};
use server::Server;
use tempfile::TempDir;

const RULES: [&str; 3] = ["100/h", "bucket:100/h,name=b", "fixed:100/h,keep=3"];

fn remaining_after_check(c: &mut Connection, key: &str) -> i64 {
    let reply: [i64; 5] = cmd("RL.CHECK").arg(key).arg(&RULES).query(c).unwrap();
    reply[2]
}

/// Runs a test on each server with a key `k` that was checked once.
fn on_all_with_a_value(body: impl Fn(&mut Server, &Dump)) {
    server::on_all_with(unpacked, |server| {
        let mut c = server.connect();
        assert_eq!(remaining_after_check(&mut c, "k"), 99);
        let dump = Dump::of(&mut c, "k");
        body(server, &dump);
    });
}

/// A folder with one file in it, for a server to start in.
fn folder_with(name: &str, bytes: &[u8]) -> TempDir {
    let folder = TempDir::with_prefix("ratelimit-").expect("a temporary folder");
    fs::write(folder.path().join(name), bytes).expect("the file is written");
    folder
}

/// What the log says of a server that does not start; it must end by itself.
fn refusal(server: &Server, folder: &Path) -> String {
    let start = Instant::now();
    let builder = server.flavor().builder().dir(folder);
    let started = catch_unwind(AssertUnwindSafe(|| builder.start()));
    let panic = started.err().expect("the server must not start");
    assert!(start.elapsed() < Duration::from_secs(15), "the server did not end");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn a_damaged_value_in_an_rdb_file_keeps_the_server_from_starting() {
    on_all_with_a_value(|server, dump| {
        let () = cmd("SAVE").query(&mut server.connect()).unwrap();
        let rdb = fs::read(server.dir().join("dump.rdb")).unwrap();
        let value = dump.value();
        let at = rdb.windows(value.len()).position(|bytes| bytes == value).expect("it is saved");
        let with_value = |value: &[u8]| {
            let rdb = [&rdb[..at], value, &rdb[at + dump.value().len()..]].concat();
            folder_with("dump.rdb", &rdb)
        };

        let whole = with_value(&value);
        let restarted = server.flavor().builder().dir(whole.path()).start();
        assert_eq!(remaining_after_check(&mut restarted.connect(), "k"), 98);
        drop(restarted);

        let payload = &dump.payload;
        let other_payload = |payload: &[u8]| dump.with_payload(payload).value();
        for (damaged, why) in [
            (other_payload(&[]), "payload is empty"),
            (other_payload(&payload[..payload.len() / 2]), "payload cannot be read"),
            (other_payload(&[&payload[..], &[0]].concat()), "1 bytes are left over"),
            (other_payload(&[&[99], &payload[1..]].concat()), "version 99"),
            (other_payload(&[&[1, 253], &[0xff; 8][..]].concat()), "payload cannot be read"),
            (Dump { id: dump.id ^ 2, ..dump.clone() }.value(), "encoding 3 of a rate limiter"),
            (dump.value_of_length(&length(1 << 40)), "payload ends too early"),
            (dump.value_of_length(&length(u64::MAX)), "payload ends too early"),
            (dump.value_of_length(&[0xff]), "Unknown RDB string encoding"),
        ] {
            let log = refusal(server, with_value(&damaged).path());
            for part in ["ratelimit", why] {
                assert!(log.contains(part), "«{log}» does not say «{part}»");
            }
            assert_calm(&log);
        }
    });
}

#[test]
fn what_is_wrong_in_an_aof_is_left_out_and_logged() {
    on_all_with_a_value(|server, dump| {
        let payload = &dump.payload;
        let load = |key: &str, payload: &[u8]| cmd("RL.LOAD").arg(key).arg(payload).to_owned();
        let apply = |words: &[&str]| cmd("RL.APPLY").arg(words).to_owned();
        let mut wrong = vec![
            load("wrong", &[]),
            load("wrong", &payload[..payload.len() - 1]),
            load("wrong", &[&payload[..], &[0]].concat()),
            load("wrong", &[&[1, 253], &[0xff; 8][..]].concat()),
            // What was there before stays.
            load("good", &payload[1..]),
            apply(&["wrong", "x", "admit", "1", "0", "5/m"]),
            apply(&["wrong", "1", "forge", "1", "0", "5/m"]),
            apply(&["wrong", "1", "admit", "1000000001", "0", "5/m"]),
            apply(&["wrong", "1", "admit", "1", "-2", "5/m"]),
            apply(&["wrong", "1", "admit", "1", "0", "5/x"]),
            apply(&["wrong", "1", "admit", "1", "0"]),
        ];
        if !server.flavor().is_valkey() {
            // Valkey counts the arguments here, and does not start. Redis leaves it to the command.
            wrong.extend([apply(&["wrong"]), apply(&[]), cmd("RL.LOAD")]);
            wrong.push(cmd("RL.LOAD").arg("wrong").to_owned());
        }
        let commands = [&[load("good", payload)], &wrong[..], &[load("last", payload)]].concat();
        let aof: Vec<u8> = commands.iter().flat_map(Cmd::get_packed_command).collect();
        let folder = folder_with("appendonly.aof", &aof);
        // From 7.0 on this is an AOF of the old kind, which the server takes over.
        let builder = unpacked(server.flavor().builder()).dir(folder.path());
        let loaded = builder.config("appendonly", "yes").start();

        let mut c = loaded.connect();
        let keys: i64 = cmd("DBSIZE").query(&mut c).unwrap();
        assert_eq!(keys, 2);
        for key in ["good", "last"] {
            assert_eq!(Dump::of(&mut c, key).payload, *payload, "{key}");
            assert_eq!(remaining_after_check(&mut c, key), 98);
        }
        let log = loaded.log();
        let complaints = log.lines().filter(|line| line.contains("error to its AOF-loading"));
        assert_eq!(complaints.count(), wrong.len(), "{log}");
        assert_calm(&log);
    });
}
