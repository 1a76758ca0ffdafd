//! Damaged files: a server that cannot load an RDB file logs why and ends. Wrong commands in an
//! AOF are skipped and logged.

use redis::{Cmd, Connection, cmd};

use crate::support::client::blocks;
use crate::support::dump::{Dump, assert_calm, length, uncompressed};
use crate::support::files::{folder_with, saved_rdb};
use crate::support::server::{self, Server};

const RULES: [&str; 3] = ["100/h", "bucket:100/h,name=b", "fixed:100/h,keep=3"];

fn remaining_after_check(c: &mut Connection, key: &str) -> i64 {
    let mut check = cmd("RL.CHECK");
    let reply: [i64; 5] = check.arg(key).arg(&["META", "who"]).arg(&RULES).query(c).unwrap();
    reply[2]
}

/// Some effects that no primary writes, and the log's message for each.
const WRONG_EFFECTS: [(&str, &str); 8] = [
    ("wrong v1:x:0:admit:1 5/m", "time is 'x'"),
    ("wrong v1:1:0:admit:1000000001 5/m", "units is '1000000001'"),
    ("wrong v1:1:0:admit:1 5/x", "rule '5/x'"),
    ("wrong v1:1:0:charge:1", "wrong number of arguments"),
    ("wrong v1:1:0:refuse:1:x who 5/m", "keep is 'x'"),
    ("wrong v1:1:0:block:-2 abuse", "the end is '-2'"),
    ("good v1:1:0:reset:1", "unexpected '1'"),
    ("good v1:1:0:admit:1 @free", "unknown policy"),
];

/// Runs a test on each server with a key `k` that has a history and one consumed unit under each rule.
fn on_all_with_a_value(body: impl Fn(&mut Server, &Dump)) {
    server::on_all_with(uncompressed, |server| {
        let mut c = server.connect();
        assert_eq!(remaining_after_check(&mut c, "k"), 99);
        let dump = Dump::of(&mut c, "k");
        body(server, &dump);
    });
}

#[test]
fn a_damaged_rdb_value_keeps_the_server_from_starting() {
    on_all_with_a_value(|server, dump| {
        let rdb = saved_rdb(server);
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
            (other_payload(&payload[..payload.len() - 1]), "payload cannot be read"),
            (other_payload(&[&payload[..], &[0]].concat()), "1 bytes are left over"),
            (other_payload(&[&[99], &payload[1..]].concat()), "version 99"),
            (other_payload(&[&[1, 253], &[0xff; 8][..]].concat()), "payload cannot be read"),
            (
                other_payload(&[1, 0, 0, 1, 0, 0, 0, 0, 0]),
                "the length of a history is out of range",
            ),
            (Dump { id: dump.id ^ 2, ..dump.clone() }.value(), "encoding 3 of a rate limiter"),
            (dump.value_of_length(&length(1 << 40)), "payload ends too early"),
            (dump.value_of_length(&length(u64::MAX)), "payload ends too early"),
            (dump.value_of_length(&[0xff]), "Unknown RDB string encoding"),
        ] {
            let folder = with_value(&damaged);
            let log = server.flavor().builder().dir(folder.path()).refusal();
            for part in ["ratelimit", why] {
                assert!(log.contains(part), "«{log}» does not say «{part}»");
            }
            assert_calm(&log);
        }
    });
}

#[test]
fn wrong_commands_in_an_aof_are_skipped_and_logged() {
    on_all_with_a_value(|server, dump| {
        let payload = &dump.payload;
        let load = |key: &str, payload: &[u8]| cmd("RL.LOAD").arg(key).arg(payload).to_owned();
        let apply = |words: &[&str]| cmd("RL.APPLY").arg(words).to_owned();
        let mut wrong = vec![
            (load("wrong", &[]), "payload is empty"),
            (load("wrong", &payload[..payload.len() - 1]), "payload cannot be read"),
            (load("wrong", &[&payload[..], &[0]].concat()), "1 bytes are left over"),
            (load("wrong", &[&[1, 253], &[0xff; 8][..]].concat()), "payload cannot be read"),
            // The key keeps its earlier value.
            (load("good", &[&[0], &payload[1..]].concat()), "version 0"),
        ];
        wrong.extend(
            WRONG_EFFECTS.map(|(words, why)| (apply(&words.split(' ').collect::<Vec<_>>()), why)),
        );
        if !server.flavor().is_valkey() {
            // Valkey itself checks the number of arguments in an AOF, and does not start.
            let load_nothing = cmd("RL.LOAD").arg("wrong").to_owned();
            for few in [apply(&["wrong"]), apply(&[]), cmd("RL.LOAD"), load_nothing] {
                wrong.push((few, "wrong number of arguments"));
            }
        }
        let wrong_commands: Vec<_> = wrong.iter().map(|(command, _)| command.clone()).collect();
        let right = [
            apply(&["both", "v1:1605916800000000:-1:admit:2", "bucket:9/h"]),
            apply(&["both", "v1:1605916800000000:0:exempt:-1", ""]),
            apply(&["both", "v1:1605916800000000:-1:block:-1", "abuse"]),
        ];
        let commands =
            [&[load("good", payload)], &wrong_commands[..], &right[..], &[load("last", payload)]]
                .concat();
        let aof: Vec<u8> = commands.iter().flat_map(Cmd::get_packed_command).collect();
        let folder = folder_with("appendonly.aof", &aof);
        // From 7.0 on, the server converts an AOF of a single file.
        let builder = uncompressed(server.flavor().builder()).dir(folder.path());
        let loaded = builder.config("appendonly", "yes").start();

        let mut c = loaded.connect();
        let keys: i64 = cmd("DBSIZE").query(&mut c).unwrap();
        assert_eq!(keys, 3);
        for key in ["good", "last"] {
            assert_eq!(Dump::of(&mut c, key).payload, *payload, "{key}");
            assert_eq!(remaining_after_check(&mut c, key), 98);
        }
        assert_eq!(blocks(&mut c, ""), [("both".into(), "blocked".into(), -1, "abuse".into())]);

        let log = loaded.log();
        let complaints = log.lines().filter(|line| line.contains("error to its AOF-loading"));
        let complaints: Vec<&str> = complaints.collect();
        assert_eq!(complaints.len(), wrong.len(), "{log}");
        for (complaint, (_, why)) in complaints.into_iter().zip(&wrong) {
            assert!(complaint.contains(why), "«{complaint}» does not say «{why}»");
        }
        assert_calm(&log);
    });
}
