//! A panic while the server saves makes the save fail, so the previous file stays.

use std::fs;

use redis::{Connection, RedisResult, cmd};

use crate::support::client::{
    ask, attempt, eventually_linked, exists, info_text, is_saving, remaining,
};
use crate::support::faults::{MOMENTS, Moment, until_panic, while_panicking};
use crate::support::files::{aof_files, crash, eventually_saved, with_aof};
use crate::support::policies::{known, policies, set};
use crate::support::server::{self, Builder, Flavor, Server, eventually};

/// The callback that saves the data outside of keys. From 7.2 on, it saves nothing if there is no
/// such data.
fn save_of_policies(flavor: Flavor) -> &'static str {
    match flavor.version >= (7, 2) {
        true => "datatype::saved::save_aux_if_any",
        false => "datatype::saved::save_aux",
    }
}

/// A key and a policy, so that every callback has something to save.
fn fill(c: &mut Connection) {
    assert_eq!(remaining(c, "RL.CHECK good 5/h"), 4);
    set(c, &["free 9/h"]);
}

/// Kills a server and checks that it loads what it saved before.
fn assert_good_is_loaded(server: &mut Server, name: &str) {
    crash(server);
    let mut c = server.connect();
    assert_eq!(remaining(&mut c, "RL.PEEK good 5/h"), 4, "{name}");
    assert_eq!(known(&mut c), policies(&["free log:9/1h"]), "{name}");
}

#[test]
fn a_panic_during_a_save_keeps_the_rdb_file() {
    server::on_all_with(Builder::faulty, |server| {
        let file = server.dir().join("dump.rdb");
        for callback in ["datatype::saved::save", save_of_policies(server.flavor())] {
            for moment in MOMENTS {
                let mut c = server.connect();
                let () = ask(&mut c, "FLUSHALL");
                fill(&mut c);
                let () = ask(&mut c, "SAVE");
                let good = fs::read(&file).expect("it is saved");
                for save in ["SAVE", "BGSAVE", "SHUTDOWN SAVE", "DEBUG RELOAD"] {
                    let what = format!("{save}, {callback}, {moment:?}");
                    while_panicking(server, moment, callback, || {
                        let reply = attempt(&mut c, save);
                        if save == "BGSAVE" {
                            reply.expect("the save begins");
                            eventually("the end of saving", || !is_saving(&mut c));
                            let status = info_text(&mut c, "persistence", "rdb_last_bgsave_status");
                            assert_eq!(status, "err", "{what}");
                        } else {
                            assert!(reply.is_err(), "{what}: {reply:?}");
                        }
                    });
                    assert_eq!(fs::read(&file).expect("the file"), good, "{what}");
                    assert!(exists(&mut c, "good"), "{what}");
                }
                assert_good_is_loaded(server, "the file from before");
                // The next save succeeds.
                let mut c = server.connect();
                let () = ask(&mut c, "SET also there");
                let () = ask(&mut c, "SAVE");
                assert_good_is_loaded(server, "the next file");
                assert!(exists(&mut server.connect(), "also"));
            }
        }
    });
}

#[test]
fn a_panic_during_a_rewrite_keeps_the_append_only_file() {
    for preamble in [true, false] {
        let configure =
            |builder: Builder| with_aof(builder.faulty(), preamble).config("appendfsync", "always");
        server::on_all_with(configure, |server| {
            fill(&mut server.connect());
            let callbacks = match preamble {
                true => ["datatype::saved::save", save_of_policies(server.flavor())],
                // An event tells the child that it must write the policies.
                false => ["datatype::saved::rewrite", "server::events::on_event"],
            };
            for callback in callbacks {
                for moment in MOMENTS {
                    let what = format!("{callback}, {moment:?}");
                    let files = aof_files(server);
                    let mut c = server.connect();
                    while_panicking(server, moment, callback, || {
                        let () = ask(&mut c, "BGREWRITEAOF");
                        eventually("the end of the rewrite", || !is_saving(&mut c));
                        let status = info_text(&mut c, "persistence", "aof_last_bgrewrite_status");
                        assert_eq!(status, "err", "{what}");
                    });
                    let kept = aof_files(server);
                    assert!(files.iter().all(|file| kept.contains(file)), "{files:?} {kept:?}");
                    assert_good_is_loaded(server, &what);
                }
            }
        });
    }
}

#[test]
fn policies_follow_a_rewrite_whose_timer_panicked() {
    server::on_all_with(
        |builder| with_aof(builder.faulty(), false).config("appendfsync", "always"),
        |server| {
            for moment in MOMENTS {
                let callback = "server::alarm::on_time";
                let mut c = server.connect();
                set(&mut c, &["free 9/h"]);
                while_panicking(server, moment, callback, || {
                    let () = ask(&mut c, "BGREWRITEAOF");
                    eventually_saved(&mut c);
                });
                eventually("the policies in the file", || {
                    let written = aof_files(server).into_iter().map(fs::read);
                    let text: Vec<u8> = written.flat_map(|bytes| bytes.expect("a file")).collect();
                    String::from_utf8_lossy(&text).contains("log:9/1h")
                });
                crash(server);
                assert_eq!(known(&mut server.connect()), policies(&["free log:9/1h"]));
            }
        },
    );
}

#[test]
fn a_dump_of_a_value_that_cannot_be_saved_is_refused() {
    server::on_all_with(Builder::faulty, |server| {
        let mut c = server.connect();
        fill(&mut c);
        for moment in MOMENTS {
            let dump: Vec<u8> = while_panicking(server, moment, "datatype::saved::save", || {
                ask(&mut c, "DUMP good")
            });
            let reply: RedisResult<()> = cmd("RESTORE").arg("copy").arg(0).arg(dump).query(&mut c);
            assert!(reply.is_err() && !exists(&mut c, "copy"), "{moment:?}: {reply:?}");
        }
    });
}

#[test]
fn a_replica_gets_all_data_or_none() {
    for diskless in ["yes", "no"] {
        server::on_all_with(
            |builder| builder.faulty().config("repl-diskless-sync", diskless),
            |server| {
                let mut c = server.connect();
                fill(&mut c);
                for callback in ["datatype::saved::save", save_of_policies(server.flavor())] {
                    let replica = server.flavor().builder().start();
                    let mut r = replica.connect();
                    while_panicking(server, Moment::BeforeItsBody, callback, || {
                        until_panic(server, callback, || {
                            let () = ask(&mut r, &format!("REPLICAOF 127.0.0.1 {}", server.port()));
                        });
                        let status = info_text(&mut r, "replication", "master_link_status");
                        assert_eq!(status, "down", "{callback}");
                        assert!(!exists(&mut r, "good"), "{callback}");
                    });
                    eventually_linked(&replica);
                    assert_eq!(remaining(&mut r, "RL.PEEK good 5/h"), 4, "{callback}");
                }
            },
        );
    }
}
