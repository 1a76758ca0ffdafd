//! Effects: every version that was ever written to an append-only file or a replication stream is
//! read for good, and one yet to come stops who cannot read it before anything is lost.
//!
//! `fixtures/effects/vN/FORM.*` was recorded in Redis 6.2 with a build of the module that wrote
//! effects in this form:
//!
//! ```text
//! .aof         an append-only file without an RDB file in front
//! .rdb         the snapshot that a replica was sent after the first half
//! .stream      what it was sent then
//! .expected    what that server answered: COMMAND -> REPLY, expiries, blocks and exemptions
//! .script      the commands, from version 2 on
//! ```
//!
//! All happens in the year 2100, so that nothing expires meanwhile. THESE FILES ARE NEVER EDITED,
//! ONLY ADDED TO: when a test fails, what someone has on disk is read wrong, and it is the code that
//! has to change. A change of what is written is a new version, with a new folder.

mod player;
mod recording;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use player::Player;
use recording::{Golden, all};
use redis::{Connection, RedisResult, Value, cmd};
use tempfile::TempDir;

use crate::support::client::{ask, info, raw_reply, refusal, replicated};
use crate::support::dump::{Dump, unpacked};
use crate::support::server::{self, Builder, Flavor, Server, eventually};

fn replaying(builder: Builder) -> Builder {
    builder.module_args(&["allow-at", "yes"])
}

fn folder_with(file: &str, bytes: &[u8]) -> TempDir {
    let folder = TempDir::with_prefix("ratelimit-").expect("a temporary folder");
    fs::write(folder.path().join(file), bytes).expect("the file is written");
    folder
}

/// A server that has this as its append-only file. From 7.0 on it is one of the old kind, which the
/// server takes over.
fn with_aof(flavor: Flavor, folder: &Path) -> Builder {
    replaying(flavor.builder()).dir(folder).config("appendonly", "yes")
}

/// What the log says of a server that must not start.
fn refused(builder: Builder) -> String {
    let started = catch_unwind(AssertUnwindSafe(|| builder.start()));
    let panic = started.err().expect("the server must not start");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn append_only_files_of_every_version_are_loaded() {
    for flavor in server::all() {
        for golden in all() {
            let preceded = [golden.snapshot(), golden.stream()].concat();
            for aof in [golden.aof(), preceded] {
                let folder = folder_with("appendonly.aof", &aof);
                let loaded = with_aof(flavor, folder.path()).start();
                golden.assert_held(&mut loaded.connect(), flavor, false);
                assert!(!loaded.log().contains("error to its AOF"), "{}", loaded.log());
            }
        }
    }
}

/// A replica of a recording, when it has been sent all of it.
fn replica_of(player: &Player, builder: Builder, length: usize) -> Server {
    let replica = replaying(builder).config("replicaof", &player.address()).start();
    let mut c = replica.connect();
    eventually("the replica to have all", || {
        info(&mut c, "replication", "slave_repl_offset") == length as f64
    });
    replica
}

#[test]
fn replication_streams_of_every_version_are_replicated() {
    for flavor in server::all() {
        for golden in all() {
            let (snapshot, stream) = (golden.snapshot(), golden.stream());
            let length = stream.len();
            let player = Player::new(snapshot, stream);
            let replica = replica_of(&player, flavor.builder(), length);
            let mut c = replica.connect();
            golden.assert_held(&mut c, flavor, true);
            assert_eq!(info(&mut c, "ratelimit", "ratelimit_unreadable_effects"), 0.0);
            // Promoted, it goes on from there.
            let () = ask(&mut c, "REPLICAOF NO ONE");
            golden.assert_held(&mut c, flavor, false);
        }
    }
}

/// The commands of the module in an append-only file. What is told as of now, in place of a time
/// of the script, is `NOW`.
fn effects(aof: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(aof).replace("\r\n", "\n");
    let commands = text.split("\n*").map(|command| {
        let words = command.split('\n').skip(1).collect::<Vec<_>>();
        words.chunks(2).filter_map(|pair| pair.get(1)).map(ToString::to_string).collect::<Vec<_>>()
    });
    let is_now = |field: &&str| field.len() == 16 && !field.starts_with("41");
    commands
        .filter(|words| words.first().is_some_and(|name| name.to_uppercase().starts_with("RL.")))
        .map(|words| {
            let fields = words.join(" ");
            let now = fields.split([':', ' ']).find(is_now).unwrap_or("none").to_string();
            fields.replace(&now, "NOW")
        })
        .collect()
}

#[test]
fn effects_are_written_as_the_newest_version_has_them() {
    let golden = Golden::newest();
    server::on_all_with(
        |builder| replaying(builder).config("appendonly", "yes").config("appendfsync", "always"),
        |server| {
            let mut c = server.connect();
            for line in golden.script().lines() {
                let _: Value = ask(&mut c, line);
            }
            let file = match server.flavor().is_7_or_later() {
                true => "appendonlydir/appendonly.aof.1.incr.aof",
                false => "appendonly.aof",
            };
            let written = fs::read(server.dir().join(file)).expect("the append-only file");
            let (written, expected) = (effects(&written), effects(&golden.aof()));
            assert!(expected.len() > 30, "{expected:?}");
            assert_eq!(written, expected, "a change of what is written is a new version");
        },
    );
}

/// An effect as the next version may write it, and a policy and a value of any later one.
const NEWER: [&[&str]; 3] = [
    &["RL.APPLY", "k", "v3:4102444800000000:0:admit:1", "5/h"],
    &["RL.POLICY", "SET", "free", "quantum:5/h"],
    &["RL.LOAD", "k", "\u{7f}x"],
];

fn packed(words: &[&str]) -> Vec<u8> {
    cmd(words[0]).arg(&words[1..]).get_packed_command()
}

const REMEDY: &str = "written by a newer version of the module";

#[test]
fn an_append_only_file_of_a_newer_version_keeps_the_server_from_starting() {
    for flavor in server::all() {
        for newer in NEWER {
            let aof = [packed(&["SET", "plain", "text"]), packed(newer)].concat();
            let folder = folder_with("appendonly.aof", &aof);
            let log = refused(with_aof(flavor, folder.path()));
            for part in [REMEDY, "upgrade this server first", "append-only file"] {
                assert!(log.contains(part), "{}: «{log}» does not say «{part}»", flavor.name);
            }
            // What cannot be read is kept for the version that can.
            let moved = folder.path().join("appendonlydir/appendonly.aof");
            let kept = fs::read(folder.path().join("appendonly.aof")).or(fs::read(moved));
            assert_eq!(kept.expect("the file"), aof, "{}", flavor.name);
        }
    }
}

#[test]
fn a_value_of_a_newer_version_is_refused_with_the_remedy() {
    server::on_all(|server| {
        let mut c = server.connect();
        let _: Value = ask(&mut c, "RL.CHECK k 5/h");
        let newer = Dump::of(&mut c, "k").with_payload(b"\x7fx");
        let restored: RedisResult<()> =
            cmd("RESTORE").arg("copy").arg(0).arg(newer.bytes()).query(&mut c);
        assert!(restored.is_err());
        let log = server.log();
        for part in ["version 127", REMEDY, "upgrade this server first"] {
            assert!(log.contains(part), "«{log}» does not say «{part}»");
        }
    });
}

const QUESTIONS: [&str; 4] = ["RL.PEEK log 5/h", "RL.INFO log", "RL.LOG log", "RL.BLOCKS 0"];

fn assert_refuses_questions(c: &mut Connection) {
    for question in QUESTIONS {
        let error = refusal(c, question);
        assert!(error.contains("upgrade this server"), "{question}: {error}");
    }
}

fn assert_answers_questions(c: &mut Connection) {
    for question in QUESTIONS {
        let reply = raw_reply(c, question);
        assert!(!matches!(reply, Value::ServerError(_)), "{question}: {reply:?}");
    }
}

/// Has a replica skip what a newer version did, with other data before and behind it.
fn with_a_replica_that_skipped(newer: &[&str], body: impl Fn(&Server)) {
    for flavor in server::all() {
        let golden = Golden::newest();
        let newer = [packed(newer), packed(&["SET", "plain", "text"])].concat();
        let stream = [golden.stream(), newer].concat();
        let length = stream.len();
        let player = Player::new(golden.snapshot(), stream);
        body(&replica_of(&player, flavor.builder(), length));
    }
}

#[test]
fn a_replica_that_skipped_an_effect_refuses_questions_until_it_is_promoted() {
    with_a_replica_that_skipped(NEWER[0], |replica| {
        let mut c = replica.connect();
        assert_refuses_questions(&mut c);
        assert_eq!(info(&mut c, "ratelimit", "ratelimit_unreadable_effects"), 1.0);
        assert_eq!(ask::<String>(&mut c, "GET plain"), "text", "other data goes on");
        let log = replica.log();
        for part in [REMEDY, "this replica skips what its primary does", "version 3"] {
            assert!(log.contains(part), "«{log}» does not say «{part}»");
        }
        let () = ask(&mut c, "REPLICAOF NO ONE");
        assert_answers_questions(&mut c);
        Golden::newest().assert_held(&mut c, replica.flavor(), false);
        assert!(replica.log().contains("promoted after it skipped"), "{}", replica.log());
    });
}

#[test]
fn a_replica_that_skipped_a_policy_says_so() {
    with_a_replica_that_skipped(NEWER[1], |replica| {
        assert_refuses_questions(&mut replica.connect());
        let log = replica.log();
        for part in [REMEDY, "this replica skips what its primary does", "quantum"] {
            assert!(log.contains(part), "«{log}» does not say «{part}»");
        }
    });
}

#[test]
fn a_replica_that_skipped_an_effect_answers_again_when_it_was_synchronized() {
    with_a_replica_that_skipped(NEWER[0], |replica| {
        let mut c = replica.connect();
        assert_refuses_questions(&mut c);
        let primary = replica.flavor().start();
        let () = ask(&mut c, &format!("REPLICAOF 127.0.0.1 {}", primary.port()));
        eventually("the link to be up", || {
            let told: String = ask(&mut c, "INFO replication");
            told.contains("master_link_status:up")
        });
        let mut p = primary.connect();
        let _: Value = ask(&mut p, "RL.CHECK log 5/h");
        replicated(&mut p);
        assert_answers_questions(&mut c);
    });
}

/// A snapshot of a primary that writes effects of version 3.
fn newer_snapshot() -> Vec<u8> {
    let mut snapshot = Golden::newest().snapshot();
    let line = b"effects 2\n";
    let at = snapshot.windows(line.len()).position(|bytes| bytes == line).expect("the version");
    snapshot[at + line.len() - 2] = b'3';
    snapshot
}

#[test]
fn a_snapshot_of_a_newer_primary_is_refused_before_data_is_lost() {
    for flavor in server::all() {
        let player = Player::new(newer_snapshot(), Vec::new());
        for load in ["disabled", "swapdb"] {
            let name = format!("{} {load}", flavor.name);
            let builder = replaying(unpacked(flavor.builder()));
            let mut replica = builder.config("repl-diskless-load", load).start();
            let mut c = replica.connect();
            let _: Value = ask(&mut c, "RL.CHECK own COST 2 5/h");
            let () = ask(&mut c, &format!("REPLICAOF {}", player.address()));
            eventually("the refusal", || replica.log().contains("the primary runs a newer"));
            let log = replica.log();
            assert!(log.contains("version 3, expected 2 or older; upgrade this server"), "{log}");
            if load == "disabled" {
                // From a file, as a server does with one that it cannot load.
                eventually("the end of the server", || replica.has_ended());
            } else {
                let () = ask(&mut c, "REPLICAOF NO ONE");
                assert_eq!(ask::<[i64; 5]>(&mut c, "RL.PEEK own 5/h")[2], 3, "{name}");
            }
        }
    }
}

#[test]
fn a_file_of_a_newer_version_is_loaded_at_start_if_its_values_can_be_read() {
    for flavor in server::all() {
        let folder = folder_with("dump.rdb", &newer_snapshot());
        let loaded = replaying(unpacked(flavor.builder())).dir(folder.path()).start();
        let reply: [i64; 5] = ask(&mut loaded.connect(), "RL.PEEK log AT 4102444809000000 5/h");
        assert_eq!(reply[2], 1, "{}", flavor.name);
    }
}
