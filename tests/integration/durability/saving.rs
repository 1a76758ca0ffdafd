//! A value that the module cannot save makes the save fail, so that the good file from before stays.
//! A build for this test panics while it saves (`make faulty`).

use std::fs;

use redis::{Connection, RedisResult, cmd};

use crate::support::client::{ask, attempt, exists, info_text, is_saving, refusal, remaining};
use crate::support::files::{aof_files, crash, with_aof};
use crate::support::server::{self, Builder, Server, eventually};

/// Blocks a key so that its value can no longer be saved.
fn break_saving(c: &mut Connection) {
    let () = ask(c, "RL.BLOCK bad REASON panic-while-saved");
}

/// Kills a server and checks that it loads what it saved before.
fn assert_good_is_loaded(server: &mut Server, name: &str) {
    crash(server);
    assert_eq!(remaining(&mut server.connect(), "RL.PEEK good 5/h"), 4, "{name}");
}

#[test]
fn a_panic_during_a_save_keeps_the_rdb_file() {
    server::on_all_with(Builder::faulty, |server| {
        let mut c = server.connect();
        assert_eq!(remaining(&mut c, "RL.CHECK good 5/h"), 4);
        let () = ask(&mut c, "SAVE");
        let file = server.dir().join("dump.rdb");
        let good = fs::read(&file).expect("it is saved");
        break_saving(&mut c);
        for save in ["SAVE", "BGSAVE", "SHUTDOWN SAVE", "DEBUG RELOAD"] {
            let reply = attempt(&mut c, save);
            if save == "BGSAVE" {
                reply.expect("the save begins");
                eventually("the end of saving", || !is_saving(&mut c));
                assert_eq!(info_text(&mut c, "persistence", "rdb_last_bgsave_status"), "err");
            } else {
                assert!(reply.is_err(), "{save}: {reply:?}");
            }
            assert_eq!(fs::read(&file).expect("the file"), good, "{save}");
            assert!(exists(&mut c, "bad") && exists(&mut c, "good"), "{save}");
        }
        assert!(server.log().contains("internal error, please report"), "{}", server.log());
        assert_good_is_loaded(server, "the file from before");
        // Without that value a save succeeds.
        let mut c = server.connect();
        break_saving(&mut c);
        let _ = refusal(&mut c, "SAVE");
        let () = ask(&mut c, "DEL bad");
        let () = ask(&mut c, "SAVE");
        assert_good_is_loaded(server, "the next file");
    });
}

#[test]
fn a_panic_during_a_rewrite_keeps_the_append_only_file() {
    for preamble in [true, false] {
        server::on_all_with(
            |builder| with_aof(builder.faulty(), preamble).config("appendfsync", "always"),
            |server| {
                let mut c = server.connect();
                assert_eq!(remaining(&mut c, "RL.CHECK good 5/h"), 4);
                break_saving(&mut c);
                let files = aof_files(server);
                let () = ask(&mut c, "BGREWRITEAOF");
                eventually("the end of the rewrite", || !is_saving(&mut c));
                assert_eq!(info_text(&mut c, "persistence", "aof_last_bgrewrite_status"), "err");
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
fn a_dump_of_a_value_that_cannot_be_saved_is_refused() {
    server::on_all_with(Builder::faulty, |server| {
        let mut c = server.connect();
        break_saving(&mut c);
        let dump: Vec<u8> = ask(&mut c, "DUMP bad");
        let reply: RedisResult<()> = cmd("RESTORE").arg("copy").arg(0).arg(dump).query(&mut c);
        assert!(reply.is_err() && !exists(&mut c, "copy"), "{reply:?}");
    });
}
