//! Holds in RDB files, append-only files and `DUMP` payloads settle like holds that were never
//! saved.

use redis::{Connection, Value, cmd};

use crate::support::client::{ask, digest, expiries_ms, now_ms, remaining};
use crate::support::files::{
    crash as crash_server, has_preamble, restart_from_aof, save_slowly, with_aof, with_synced_aof,
};
use crate::support::holds::{COUNT, assert_settles, keys, settled_at_once, take, taken};
use crate::support::server::{self, Builder, Server, eventually};

const PREFIX: &str = "k:";

/// A digest of all data, and when each key with holds expires.
fn state(server: &Server, c: &mut Connection) -> (String, Vec<i64>) {
    (digest(c), expiries_ms(c, server.flavor(), &keys(PREFIX)))
}

#[test]
fn holds_survive_a_restart_from_an_rdb_file() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        let expected = settled_at_once(&mut c);
        take(&mut c, PREFIX);
        let before = state(server, &mut c);
        let () = ask(&mut c, "SAVE");
        crash_server(server);
        let mut c = server.connect();
        assert_eq!(state(server, &mut c), before);
        assert_settles(&mut c, PREFIX, &expected, "from the RDB file");
    });
}

/// Restarts from an AOF of commands, and from one that was rewritten while the test took half of the
/// holds.
fn assert_aof_keeps_holds(preamble: bool) {
    server::on_all_with(
        |builder| with_aof(builder.allow_at(), preamble),
        |server| {
            let mut c = server.connect();
            let expected = settled_at_once(&mut c);
            for rewritten in [false, true] {
                let () = ask(&mut c, "FLUSHALL");
                let mut lines = taken(PREFIX);
                let mut take = |c: &mut Connection, count: usize| {
                    for line in lines.by_ref().take(count) {
                        let _: Value = ask(c, &line);
                    }
                };
                take(&mut c, COUNT / 2);
                if rewritten {
                    save_slowly(&mut c, "BGREWRITEAOF", |c| take(c, COUNT));
                    assert_eq!(has_preamble(server), preamble, "the form of the AOF");
                } else {
                    take(&mut c, COUNT);
                }
                let before = state(server, &mut c);
                restart_from_aof(server);
                c = server.connect();
                assert_eq!(state(server, &mut c), before, "rewritten: {rewritten}");
                assert_settles(&mut c, PREFIX, &expected, "from the AOF");
            }
        },
    );
}

#[test]
fn holds_survive_a_restart_from_an_aof_with_a_preamble() {
    assert_aof_keeps_holds(true);
}

#[test]
fn holds_survive_a_restart_from_an_aof_without_a_preamble() {
    assert_aof_keeps_holds(false);
}

/// Copies or moves the value of a key to another key.
type Move = fn(&mut Connection, &str, &str);

const MOVES: [(&str, Move); 3] = [
    ("RESTORE", |c, from, to| {
        let payload: Vec<u8> = ask(c, &format!("DUMP {from}"));
        let expires_ms = now_ms(c) + ask::<i64>(c, &format!("PTTL {from}"));
        let mut restore = cmd("RESTORE");
        let () = restore.arg(to).arg(expires_ms).arg(payload).arg("ABSTTL").query(c).expect("OK");
    }),
    ("COPY", |c, from, to| assert!(ask::<bool>(c, &format!("COPY {from} {to}")))),
    ("RENAME", |c, from, to| ask(c, &format!("RENAME {from} {to}"))),
];

#[test]
fn copied_renamed_and_restored_holds_settle_as_their_originals() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        let expected = settled_at_once(&mut c);
        for (name, bring) in MOVES {
            take(&mut c, PREFIX);
            let moved = format!("{name}:");
            for (from, to) in keys(PREFIX).iter().zip(keys(&moved)) {
                bring(&mut c, from, &to);
            }
            assert_settles(&mut c, &moved, &expected, name);
            if name != "RENAME" {
                // Changing a copy does not change the original.
                assert_settles(&mut c, PREFIX, &expected, name);
                let _: i64 = cmd("DEL").arg(keys(PREFIX)).query(&mut c).unwrap();
            }
        }
    });
}

#[test]
fn holds_migrate_to_another_server() {
    server::on_all_with(Builder::allow_at, |server| {
        let target = server.flavor().builder().allow_at().start();
        let (mut c, mut t) = (server.connect(), target.connect());
        let expected = settled_at_once(&mut c);
        take(&mut c, PREFIX);
        let mut migrate = cmd("MIGRATE");
        migrate.arg("127.0.0.1").arg(target.port()).arg("").arg(0).arg(10_000).arg("KEYS");
        let () = migrate.arg(keys(PREFIX)).query(&mut c).expect("OK");
        assert_settles(&mut t, PREFIX, &expected, "migrated");
    });
}

#[test]
fn a_hold_that_ended_while_the_server_was_down_has_lapsed() {
    let configure = |builder: Builder| with_synced_aof(builder.allow_at());
    server::on_all_with(configure, |server| {
        let mut c = server.connect();
        for (key, refund) in [("back", " REFUND"), ("charged", "")] {
            let rules = "slots:5 fixed:9/366d";
            let _: Value =
                ask(&mut c, &format!("RL.CHECK {key} HOLD h PX 300{refund} COST 4 {rules}"));
        }
        let end_ms = now_ms(&mut c) + 300;
        server.kill9();
        eventually("the end to pass", || {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.expect("a clock").as_millis() > end_ms as u128
        });
        server.resume();
        let mut c = server.connect();
        for (key, left) in [("back", 9), ("charged", 5)] {
            assert_eq!(remaining(&mut c, &format!("RL.PEEK {key} fixed:9/366d")), left);
            assert_eq!(remaining(&mut c, &format!("RL.PEEK {key} slots:5")), 5);
            assert!(!ask::<bool>(&mut c, &format!("RL.RENEW {key} h EX 9")));
            assert!(!ask::<bool>(&mut c, &format!("RL.SETTLE {key} h REFUND")));
            assert_eq!(remaining(&mut c, &format!("RL.PEEK {key} fixed:9/366d")), left);
        }
    });
}
