//! What wakes the first in line: a change of its key, of all keys, or of policies.

use std::time::{Duration, Instant};

use redis::{Connection, cmd};

use crate::support::client::{ask, attempt, dump, verdict};
use crate::support::clock::let_server_act;
use crate::support::server;
use crate::support::waiters::{wait_in_line, waiting};

/// Commands that end a client's wait for `k` under a rule of one request an hour, and the client's
/// verdict.
const WAKES: &[(&str, i64)] = &[
    ("DEL k", 0),
    ("UNLINK k", 0),
    ("RENAME k other", 0),
    ("MOVE k 7", 0),
    ("FLUSHALL", 0),
    ("FLUSHALL ASYNC", 0),
    ("FLUSHDB", 0),
    ("SWAPDB 0 7", 0),
    ("SWAPDB 7 0", 0),
    ("PEXPIRE k 20", 0),
    ("EXPIRE k -1", 0),
    ("RL.RESET k", 0),
    ("RL.REFUND k 1", 0),
    ("RL.SETTLE k receipt REFUND", 0),
    ("RL.EXEMPT k", 0),
    ("RL.BLOCK k", 2),
    ("COPY fresh k REPLACE", 0),
    ("RENAME fresh k", 0),
    ("RL.POLICY SET one 2/h", 0),
];

#[test]
fn each_change_of_the_key_wakes_the_first() {
    server::on_all(|server| {
        let mut c = server.connect();
        for &(line, expected) in WAKES {
            let () = ask(&mut c, "FLUSHALL");
            let () = ask(&mut c, "RL.POLICY SET one 1/h");
            assert_eq!(verdict(&mut c, "RL.CHECK k HOLD receipt EX 3000 @one"), 0);
            assert_eq!(verdict(&mut c, "RL.CHECK fresh bucket:9/h"), 0);
            let waiter = wait_in_line(server, "RL.WAIT k 3600000 @one");
            let start = Instant::now();
            attempt(&mut c, line).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert_eq!(waiter.verdict(), expected, "{line}");
            let took = start.elapsed();
            // The server looks for expired keys ten times a second, in samples.
            let most = if line.starts_with("PEXPIRE") { 5_000 } else { 1_000 };
            assert!(took < Duration::from_millis(most), "{line}: {took:?}");
            assert_eq!(waiting(&mut c), 0, "{line}");
        }
    });
}

#[test]
fn a_restored_key_wakes_the_first() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK like 9/h"), 0);
        let payload = dump(&mut c, "like").unwrap();
        assert_eq!(verdict(&mut c, "RL.CHECK k COST 2 2/h"), 0);
        let waiter = wait_in_line(server, "RL.WAIT k 3600000 2/h");
        let () = cmd("RESTORE").arg("k").arg(0).arg(payload).arg("REPLACE").query(&mut c).unwrap();
        assert_eq!(waiter.answer::<[i64; 5]>()[..3], [0, 2, 0]);
    });
}

#[test]
fn an_overwritten_key_and_a_deleted_policy_are_errors() {
    server::on_all(|server| {
        let mut c = server.connect();
        let () = ask(&mut c, "RL.POLICY SET one 1/h");
        for (line, says) in
            [("SET k text", "WRONGTYPE"), ("RL.POLICY DEL one FORCE", "unknown policy")]
        {
            let () = ask(&mut c, "DEL k");
            assert_eq!(verdict(&mut c, "RL.CHECK k @one"), 0);
            let waiter = wait_in_line(server, "RL.WAIT k 3600000 @one");
            attempt(&mut c, line).unwrap();
            let refusal = waiter.refusal();
            assert!(refusal.contains(says), "{line}: {refusal}");
        }
    });
}

#[test]
fn commands_that_free_nothing_admit_no_waiting_client() {
    server::on_all(|server| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK k COST 2 2/h"), 0);
        assert_eq!(verdict(&mut c, "RL.CHECK other 2/h"), 0);
        let waiter = wait_in_line(server, "RL.WAIT k 3600000 COST 2 2/h");
        for line in [
            "RL.REFUND k 1",
            "RL.CHECK k 2/h",
            "DEL other",
            "RL.POLICY SET one 1/h",
            "SWAPDB 5 6",
            "RL.CHECK k HOLD x EX 50 bucket:9/h",
            "RL.RENEW k x EX 60",
            "RL.SETTLE k x",
        ] {
            attempt(&mut c, line).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        let_server_act(&mut c);
        assert_eq!(waiting(&mut c), 1);
        assert_eq!(left(&mut c), 0, "looking at the waiting client takes nothing");
        let () = ask(&mut c, "DEL k");
        assert_eq!(waiter.verdict(), 0);
    });
}

fn left(c: &mut Connection) -> i64 {
    ask::<[i64; 5]>(c, "RL.PEEK k 2/h")[2]
}
