//! Policies in an RDB file: which servers load it, and what happens if it is damaged.
//!
//! ```text
//! | 247 | module and encoding version | 2: when | 1: before the keys | 5: a string | length |
//! | effects VERSION LF | name=rule[;rule ...] LF for each policy | 0: the end |
//! ```

use redis::Value;

use crate::support::client::{ask, refusal, remaining};
use crate::support::dump::{assert_calm, length, uncompressed};
use crate::support::files::{folder_with, saved_rdb};
use crate::support::policies::{known, policies, set};
use crate::support::rdb_version::{in_file, of_file, takes};
use crate::support::server::{self, Flavor, Server};

#[test]
fn every_server_loads_policies_that_another_saved() {
    let servers: Vec<Server> = server::all().into_iter().map(Flavor::start).collect();
    let own: Vec<_> = servers.iter().map(saved_rdb).collect();
    for writer in &servers {
        let mut c = writer.connect();
        set(&mut c, &["free 20/m 5/h", "pro bucket:5/s,burst=9"]);
        let _: Value = ask(&mut c, "RL.CHECK k COST 2 @free");
        let file = saved_rdb(writer);
        for (reader, own) in servers.iter().zip(&own) {
            let pair = format!("{} -> {}", writer.flavor().name, reader.flavor().name);
            // If the reader refuses the writer's RDB version, the test writes the reader's into the file.
            let file = match takes(reader.flavor(), of_file(own), of_file(&file)) {
                true => file.clone(),
                false => in_file(&file, own),
            };
            let folder = folder_with("dump.rdb", &file);
            let loaded = reader.flavor().builder().dir(folder.path()).start();
            let mut c = loaded.connect();
            let expected = policies(&["free log:20/1m log:5/1h", "pro bucket:5/1s,burst=9"]);
            assert_eq!(known(&mut c), expected, "{pair}");
            assert_eq!(remaining(&mut c, "RL.PEEK k @free"), 3, "{pair}");
        }
    }
}

/// Whether the server leaves the module out of a file without policies, as Redis 7.2 and Valkey
/// 8 do. Older servers name each module in every file.
fn can_omit_the_module(flavor: Flavor) -> bool {
    flavor.version >= (7, 2)
}

/// Starts the server again from its RDB file without the module. Returns whether it started.
fn starts_without_the_module(server: &mut Server) -> bool {
    let () = ask(&mut server.connect(), "SAVE");
    server.remove_module();
    server.kill9();
    let started = server.try_resume();
    if let Err(log) = &started {
        assert!(log.contains("ratelimit"), "the log does not name the module: {log}");
    }
    started.is_ok()
}

#[test]
fn a_file_without_policies_and_values_loads_without_the_module() {
    for flavor in server::all() {
        for policy in ["", "free 20/m"] {
            let mut server = flavor.start();
            let mut c = server.connect();
            let () = ask(&mut c, "SET plain text");
            // Deleted policies and keys must leave nothing.
            set(&mut c, &["old 5/h"]);
            let _: Value = ask(&mut c, "RL.CHECK k @old");
            let _: Value = ask(&mut c, "RL.RESET k");
            let _: i64 = ask(&mut c, "RL.POLICY DEL old FORCE");
            if !policy.is_empty() {
                set(&mut c, &[policy]);
            }
            let expected = policy.is_empty() && can_omit_the_module(flavor);
            let name = flavor.name;
            assert_eq!(starts_without_the_module(&mut server), expected, "{name} «{policy}»");
            if expected {
                let mut c = server.connect();
                assert_eq!(ask::<String>(&mut c, "GET plain"), "text", "{name}");
                assert!(refusal(&mut c, "RL.POLICY LIST").contains("unknown command"), "{name}");
            }
        }
    }
}

const PAYLOAD: &[u8] = b"effects 2\nfree=log:20/1m\n";

/// Where [`PAYLOAD`] begins and ends in an RDB file.
fn field(rdb: &[u8]) -> (usize, usize) {
    let at = rdb.windows(PAYLOAD.len()).position(|bytes| bytes == PAYLOAD).expect("it is saved");
    let key = rdb.windows(4).position(|bytes| bytes == b"aKey").expect("a key");
    assert!(at < key, "policies come before keys");
    (at, at + PAYLOAD.len())
}

/// An RDB file with a policy and a key, and where [`PAYLOAD`] begins and ends in it.
fn saved_with_a_policy(server: &mut Server) -> (Vec<u8>, usize, usize) {
    let mut c = server.connect();
    set(&mut c, &["free 20/m"]);
    let () = ask(&mut c, "SET aKey text");
    let rdb = saved_rdb(server);
    let (start, end) = field(&rdb);
    (rdb, start, end)
}

#[test]
fn damaged_policies_keep_the_server_from_starting() {
    server::on_all_with(uncompressed, |server| {
        let (rdb, start, end) = saved_with_a_policy(server);
        let (head, tail) = (&rdb[..start - 1], &rdb[end..]); // without the length, which is one byte
        let with_string = |string: &[u8]| [head, string, tail].concat();
        let with =
            |payload: &[u8]| with_string(&[&length(payload.len() as u64)[..], payload].concat());

        for (payload, expected) in [
            (PAYLOAD, &["free log:20/1m"][..]),
            (b"effects 1\n", &[]),
            (b"effects 99\nfree=20/m\n", &["free log:20/1m"]),
            (
                b"effects 1\nfree=20/m;5/h\nb=bucket:5/s\n",
                &["b bucket:5/1s", "free log:20/1m log:5/1h"],
            ),
        ] {
            let folder = folder_with("dump.rdb", &with(payload));
            let loaded = uncompressed(server.flavor().builder()).dir(folder.path()).start();
            assert_eq!(known(&mut loaded.connect()), policies(expected));
        }

        let mut damaged: Vec<(Vec<u8>, &str)> = [
            (&b""[..], "the version of effects cannot be read"),
            (b"free=20/m\n", "the version of effects cannot be read"),
            (b"effects 1", "the version of effects cannot be read"),
            (b"effects \n", "the version of effects cannot be read"),
            (b"\xff\xfe\x00garbage", "the version of effects cannot be read"),
        ]
        .map(|(payload, why)| (with(payload), why))
        .into();
        let long = [b"x".repeat(100_000), b"=5/s\n".to_vec()].concat();
        let lines: [(&[u8], &str); 16] = [
            (b"free=log:20/1", "rule 'log:20/1'"),
            (b"free=log:20/", "rule 'log:20/'"),
            (b"free=", "unexpected ''"),
            (b"effects 1\n", "the policy's name is 'effects 1'"),
            (b"free", "unexpected ''"),
            (b"=5/s\n", "the policy's name is ''"),
            (b"\n", "the policy's name is ''"),
            (b"free=5/s\n\n", "the policy's name is ''"),
            (b"free=5/s\nfr/ee=5/s\n", "the policy's name is 'fr/ee'"),
            (b"free=5/s;\n", "unexpected ''"),
            (b"free=frob:5/s\n", "unknown algorithm 'frob'"),
            (b"free=5/s,frob\n", "unknown option 'frob'"),
            (b"free=@pro\n", "a policy may not name another"),
            (b"free=5/s\0\n", "rule '5/s"),
            (b"\xff\xfe\x00garbage", "the policy's name is "),
            (&long, "the policy's name is 'xxx"),
        ];
        for (line, why) in lines {
            damaged.push((with(&[b"effects 1\n", line].concat()), why));
        }
        for forged in [length(1 << 40), length(u64::MAX)] {
            damaged.push((with_string(&forged), "the policies end too early"));
        }
        damaged.push((with_string(&[0xff]), "Unknown RDB string encoding"));
        // The encoding version is in the last byte of the module's id.
        let mut other_version = rdb.clone();
        other_version[start - 5] ^= 2;
        damaged.push((other_version, "encoding 3 of policies, expected 1"));

        for (rdb, why) in damaged {
            let folder = folder_with("dump.rdb", &rdb);
            let log = uncompressed(server.flavor().builder()).dir(folder.path()).refusal();
            for part in ["ratelimit", why] {
                assert!(log.contains(part), "«{log}» does not say «{part}»");
            }
            assert!(log.len() < 20_000, "the log is too long");
            assert_calm(&log);
        }
    });
}

#[test]
fn a_policy_with_one_identity_twice_prevents_the_start() {
    server::on_all_with(uncompressed, |server| {
        let (rdb, start, end) = saved_with_a_policy(server);
        let payload = b"effects 1\nfree=5/h;6/h\n";
        let rdb = [&rdb[..start - 1], &[payload.len() as u8], payload, &rdb[end..]].concat();
        let folder = folder_with("dump.rdb", &rdb);
        let log = uncompressed(server.flavor().builder()).dir(folder.path()).refusal();
        assert!(log.contains("same identity"), "{log}");
    });
}
