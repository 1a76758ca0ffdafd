//! Effects: the module reads every version ever written to an append-only file or a replication
//! stream. A server that meets a newer version stops before it loses data.
//!
//! `fixtures/effects/vN/FORM.*` was recorded on Redis 6.2 with a build of the module that wrote
//! effects in this form:
//!
//! ```text
//! .aof         an append-only file without an RDB preamble
//! .rdb         the snapshot that a replica received after the first half of the commands
//! .stream      the stream that it received afterwards
//! .expected    replies of that server: COMMAND -> REPLY, expiries, counts of bans, blocks and exemptions
//! .script      the commands, which a test sends again, of the newest form alone; v1/head has the same,
//!              and in .expected of older forms, comments list them
//! ```
//!
//! All times are in the year 2100, so that no key expires while a test runs. FROM 0.1.0-rc.1 ON, THESE
//! FILES ARE NEVER EDITED; NEW ONES ARE ADDED. A test that fails means that the code misreads users'
//! data, and the code has to change. A change of the written form is a new version, with a new folder.

mod player;
mod recording;

use std::fs;
use std::path::Path;

use player::Player;
use recording::{Recording, all};
use redis::{Connection, RedisResult, Value, cmd};

use crate::support::client::{ask, eventually_linked, info, raw_reply, refusal, replicated};
use crate::support::dump::{Dump, uncompressed};
use crate::support::files::{appended_aof, folder_with, with_synced_aof};
use crate::support::server::{self, Builder, Flavor, Server, eventually};

/// A server that loads the AOF in this folder. From 7.0 on, servers convert an AOF of a single
/// file.
fn with_aof(flavor: Flavor, folder: &Path) -> Builder {
    flavor.builder().allow_at().dir(folder).config("appendonly", "yes")
}

#[test]
fn append_only_files_of_every_version_load() {
    for flavor in server::all() {
        for recording in all() {
            let preceded = [recording.snapshot(), recording.stream()].concat();
            for aof in [recording.aof(), preceded] {
                let folder = folder_with("appendonly.aof", &aof);
                let loaded = with_aof(flavor, folder.path()).start();
                recording.assert_held(&mut loaded.connect(), flavor, false);
                assert!(!loaded.log().contains("error to its AOF"), "{}", loaded.log());
            }
        }
    }
}

/// A replica that has read a recording of this length to its end.
fn replica_of(player: &Player, builder: Builder, length: usize) -> Server {
    let replica = builder.allow_at().config("replicaof", &player.address()).start();
    let mut c = replica.connect();
    eventually("the replica to have all", || {
        info(&mut c, "replication", "slave_repl_offset") == length as f64
    });
    replica
}

#[test]
fn replicas_follow_streams_of_every_version() {
    for flavor in server::all() {
        for recording in all() {
            let (snapshot, stream) = (recording.snapshot(), recording.stream());
            let length = stream.len();
            let player = Player::new(snapshot, stream);
            let replica = replica_of(&player, flavor.builder(), length);
            let mut c = replica.connect();
            recording.assert_held(&mut c, flavor, true);
            assert_eq!(info(&mut c, "ratelimit", "ratelimit_unreadable_effects"), 0.0);
            // After its promotion it gives the same answers.
            let () = ask(&mut c, "REPLICAOF NO ONE");
            recording.assert_held(&mut c, flavor, false);
        }
    }
}

/// The module's commands in an append-only file, with `NOW` in place of times of the clock.
/// Times from the script stay.
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
fn effects_are_written_as_in_the_newest_recording() {
    let recording = Recording::newest();
    server::on_all_with(
        |builder| with_synced_aof(builder.allow_at()),
        |server| {
            let mut c = server.connect();
            for line in recording.script().lines() {
                let _: Value = ask(&mut c, line);
            }
            let written = fs::read(appended_aof(server)).expect("the append-only file");
            let (written, expected) = (effects(&written), effects(&recording.aof()));
            assert!(expected.len() > 30, "{expected:?}");
            assert_eq!(written, expected, "a change of what is written is a new version");
        },
    );
}

/// An effect as the next version may write it, and a policy and a value of a later version.
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
fn a_newer_append_only_file_keeps_the_server_from_starting() {
    for flavor in server::all() {
        for newer in NEWER {
            let aof = [packed(&["SET", "plain", "text"]), packed(newer)].concat();
            let folder = folder_with("appendonly.aof", &aof);
            let log = with_aof(flavor, folder.path()).refusal();
            for part in [REMEDY, "upgrade this server first", "append-only file"] {
                assert!(log.contains(part), "{}: «{log}» does not say «{part}»", flavor.name);
            }
            // The file stays in place for a version that can read it.
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

const READS: [&str; 4] = ["RL.PEEK log 5/h", "RL.INFO log", "RL.LOG log", "RL.BLOCKS 0"];

fn assert_refuses_reads(c: &mut Connection) {
    for read in READS {
        let error = refusal(c, read);
        assert!(error.contains("upgrade this server"), "{read}: {error}");
    }
}

fn assert_answers_reads(c: &mut Connection) {
    for read in READS {
        let reply = raw_reply(c, read);
        assert!(!matches!(reply, Value::ServerError(_)), "{read}: {reply:?}");
    }
}

/// Runs a test on a replica of each server. Its stream has a command of a newer version, with
/// other data before and after it.
fn on_replicas_that_skipped(newer: &[&str], body: impl Fn(&Server)) {
    for flavor in server::all() {
        let recording = Recording::newest();
        let newer = [packed(newer), packed(&["SET", "plain", "text"])].concat();
        let stream = [recording.stream(), newer].concat();
        let length = stream.len();
        let player = Player::new(recording.snapshot(), stream);
        body(&replica_of(&player, flavor.builder(), length));
    }
}

#[test]
fn a_replica_that_skipped_an_effect_refuses_reads_until_promoted() {
    on_replicas_that_skipped(NEWER[0], |replica| {
        let mut c = replica.connect();
        assert_refuses_reads(&mut c);
        assert_eq!(info(&mut c, "ratelimit", "ratelimit_unreadable_effects"), 1.0);
        assert_eq!(ask::<String>(&mut c, "GET plain"), "text", "other data is not replicated");
        let log = replica.log();
        for part in [REMEDY, "this replica skips what its primary does", "version 2"] {
            assert!(log.contains(part), "«{log}» does not say «{part}»");
        }
        let () = ask(&mut c, "REPLICAOF NO ONE");
        assert_answers_reads(&mut c);
        Recording::newest().assert_held(&mut c, replica.flavor(), false);
        assert!(replica.log().contains("promoted after it skipped"), "{}", replica.log());
    });
}

/// Effects and values that no version writes: a number out of range, an unknown word, a missing
/// argument, and a payload that is not a value.
const DAMAGED: [&[&str]; 4] = [
    &["RL.APPLY", "k", "v1:4102444800000000:0:admit:1000000001", "5/h"],
    &["RL.APPLY", "k", "v1:4102444800000000:0:admin:1", "5/h"],
    &["RL.APPLY", "k", "v1:4102444800000000:0:admit:1"],
    &["RL.LOAD", "k", "\u{1}x"],
];

#[test]
fn a_replica_that_cannot_read_an_effect_says_so() {
    for damaged in DAMAGED {
        on_replicas_that_skipped(damaged, |replica| {
            let mut c = replica.connect();
            assert_refuses_reads(&mut c);
            assert_eq!(info(&mut c, "ratelimit", "ratelimit_unreadable_effects"), 1.0);
            assert_eq!(ask::<String>(&mut c, "GET plain"), "text", "other data is not replicated");
            assert!(replica.log().contains("this replica skips what its primary does"));
            let () = ask(&mut c, "REPLICAOF NO ONE");
            assert_answers_reads(&mut c);
        });
    }
}

#[test]
fn damaged_effects_in_an_append_only_file_are_all_counted_but_logged_once() {
    for flavor in server::all() {
        let damaged = DAMAGED.map(packed).concat();
        let last = [&["SET", "plain", "text"][..], &["RL.APPLY", "k", "v1:5:0:block:-1", "why"]];
        let aof = [damaged, last.map(packed).concat()].concat();
        let folder = folder_with("appendonly.aof", &aof);
        let server = with_aof(flavor, folder.path()).start();
        let mut c = server.connect();
        assert_eq!(info(&mut c, "ratelimit", "ratelimit_unreadable_effects"), 4.0);
        assert_eq!(ask::<[i64; 5]>(&mut c, "RL.PEEK k 5/h")[0], 2, "the file is read to its end");
        assert_eq!(ask::<String>(&mut c, "GET plain"), "text");
        let log = server.log();
        assert_eq!(log.matches("cannot be read, 1 since the start: units is").count(), 1, "{log}");
        assert_eq!(log.matches("skipped an effect").count(), 1, "{log}");
    }
}

#[test]
fn a_replica_that_skipped_a_policy_refuses_reads() {
    on_replicas_that_skipped(NEWER[1], |replica| {
        assert_refuses_reads(&mut replica.connect());
        let log = replica.log();
        for part in [REMEDY, "this replica skips what its primary does", "quantum"] {
            assert!(log.contains(part), "«{log}» does not say «{part}»");
        }
    });
}

#[test]
fn a_full_synchronization_ends_the_refusal_of_reads() {
    on_replicas_that_skipped(NEWER[0], |replica| {
        let mut c = replica.connect();
        assert_refuses_reads(&mut c);
        let primary = replica.flavor().start();
        let () = ask(&mut c, &format!("REPLICAOF 127.0.0.1 {}", primary.port()));
        eventually_linked(replica);
        let mut p = primary.connect();
        let _: Value = ask(&mut p, "RL.CHECK log 5/h");
        replicated(&mut p);
        assert_answers_reads(&mut c);
    });
}

/// A snapshot of a primary that writes effects of version 3.
fn newer_snapshot() -> Vec<u8> {
    let mut snapshot = Recording::newest().snapshot();
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
            let builder = uncompressed(flavor.builder()).allow_at();
            let mut replica = builder.config("repl-diskless-load", load).start();
            let mut c = replica.connect();
            let _: Value = ask(&mut c, "RL.CHECK own COST 2 5/h");
            let () = ask(&mut c, &format!("REPLICAOF {}", player.address()));
            eventually("the refusal", || replica.log().contains("the primary runs a newer"));
            let log = replica.log();
            assert!(log.contains("version 3, expected 2 or older; upgrade this server"), "{log}");
            if load == "disabled" {
                // The replica loads from a file and ends, as with any file that does not load.
                eventually("the end of the server", || replica.has_ended());
            } else {
                let () = ask(&mut c, "REPLICAOF NO ONE");
                assert_eq!(ask::<[i64; 5]>(&mut c, "RL.PEEK own 5/h")[2], 3, "{name}");
            }
        }
    }
}

#[test]
fn a_newer_rdb_file_loads_if_its_values_can_be_read() {
    for flavor in server::all() {
        let folder = folder_with("dump.rdb", &newer_snapshot());
        let loaded = uncompressed(flavor.builder()).allow_at().dir(folder.path()).start();
        let reply: [i64; 5] = ask(&mut loaded.connect(), "RL.PEEK log AT 4102444809000000 5/h");
        assert_eq!(reply[2], 2, "{}", flavor.name);
    }
}
