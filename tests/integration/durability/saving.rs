//! A value that cannot be saved, by a fault of the module, makes the save fail, so that the good
//! file from before is kept. The fault is one that a build for this test has.

use std::fs;

use redis::{Connection, RedisResult, cmd};

use crate::support::client::{ask, exists, info, is_saving, refusal, remaining};
use crate::support::files::{aof_files, with_aof};
use crate::support::server::{self, Builder, Server, eventually};

/// Blocks a key so that it cannot be saved any more.
fn break_saving(c: &mut Connection) {
    let () = ask(c, "RL.BLOCK bad REASON panic-while-saved");
}

fn status(c: &mut Connection, field: &str) -> String {
    let told: String = ask(c, "INFO persistence");
    let value = told.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("no {field}: {told}")).to_string()
}

/// Ends a server as a crash would, and checks that what it saved before is loaded.
fn assert_good_is_loaded(server: &mut Server, name: &str) {
    server.kill9();
    server.resume();
    assert_eq!(remaining(&mut server.connect(), "RL.PEEK good 5/h"), 4, "{name}");
}

#[test]
fn a_panic_while_a_value_is_saved_keeps_the_rdb_file() {
    server::on_all_with(Builder::faulty, |server| {
        let mut c = server.connect();
        assert_eq!(remaining(&mut c, "RL.CHECK good 5/h"), 4);
        let () = ask(&mut c, "SAVE");
        let file = server.dir().join("dump.rdb");
        let good = fs::read(&file).expect("it is saved");
        break_saving(&mut c);
        for save in ["SAVE", "BGSAVE", "SHUTDOWN SAVE", "DEBUG RELOAD"] {
            let reply: RedisResult<String> = cmd(save.split(' ').next().expect("a word"))
                .arg(&save.split(' ').collect::<Vec<_>>()[1..])
                .query(&mut c);
            if save == "BGSAVE" {
                reply.expect("it begins");
                eventually("the end of saving", || !is_saving(&mut c));
                assert_eq!(status(&mut c, "rdb_last_bgsave_status"), "err");
            } else {
                assert!(reply.is_err(), "{save}: {reply:?}");
            }
            assert_eq!(fs::read(&file).expect("the file"), good, "{save}");
            assert!(exists(&mut c, "bad") && exists(&mut c, "good"), "{save}");
        }
        assert!(server.log().contains("internal error, please report"), "{}", server.log());
        assert_good_is_loaded(server, "the file from before");
        // Without the value that cannot be saved all is well again.
        let mut c = server.connect();
        break_saving(&mut c);
        let _ = refusal(&mut c, "SAVE");
        let () = ask(&mut c, "DEL bad");
        let () = ask(&mut c, "SAVE");
        assert_good_is_loaded(server, "the next file");
    });
}

#[test]
fn a_panic_while_a_value_is_rewritten_keeps_the_append_only_file() {
    for preamble in [true, false] {
        server::on_all_with(
            |builder| with_aof(builder.faulty(), preamble).config("appendfsync", "always"),
            |server| {
                let mut c = server.connect();
                assert_eq!(remaining(&mut c, "RL.CHECK good 5/h"), 4);
                break_saving(&mut c);
                let files = aof_files(server);
                let () = ask(&mut c, "BGREWRITEAOF");
                eventually("the end of rewriting", || {
                    info(&mut c, "persistence", "aof_rewrite_in_progress") == 0.0
                        && info(&mut c, "persistence", "aof_rewrite_scheduled") == 0.0
                });
                assert_eq!(status(&mut c, "aof_last_bgrewrite_status"), "err");
                let kept = aof_files(server);
                assert!(files.iter().all(|file| kept.contains(file)), "{files:?} {kept:?}");
                assert!(exists(&mut c, "bad"));
                assert_good_is_loaded(server, "the append-only file");
                assert!(exists(&mut server.connect(), "bad"));
            },
        );
    }
}

#[test]
fn a_dump_of_a_value_that_cannot_be_saved_restores_nothing() {
    server::on_all_with(Builder::faulty, |server| {
        let mut c = server.connect();
        break_saving(&mut c);
        let dump: Vec<u8> = ask(&mut c, "DUMP bad");
        let reply: RedisResult<()> = cmd("RESTORE").arg("copy").arg(0).arg(dump).query(&mut c);
        assert!(reply.is_err() && !exists(&mut c, "copy"), "{reply:?}");
    });
}
