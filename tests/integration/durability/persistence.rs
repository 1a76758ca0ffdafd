//! Restarts from RDB files and AOFs preserve values, expiries and decisions. So does moving a
//! `DUMP` or a file to any other server.

pub mod fill;
pub mod snapshot;

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use fill::{Filler, fill};
use redis::{Connection, RedisResult, cmd, pipe};
use snapshot::{assert_same, snapshot};

use crate::support::client::{ask, expires_ms, is_saving, now_us, refusal, verdict};
use crate::support::files::{
    aof_files, crash, eventually_saved, has_preamble, restart_from_aof, saved_rdb, with_aof,
};
use crate::support::rdb_version::{self, takes};
use crate::support::server::{self, Builder, Server, eventually};

/// Saves in the background while other commands keep coming.
fn save_under_load(c: &mut Connection, filler: &mut Filler, command: &str) {
    // Saves so slowly that a few thousand commands come meanwhile.
    let delay = |c: &mut Connection, us: u32| {
        let () = cmd("CONFIG").arg("SET").arg("rdb-key-save-delay").arg(us).query(c).unwrap();
    };
    delay(c, 20_000);
    let () = cmd(command).query(c).unwrap();
    let mut commands = 0;
    eventually(&format!("{command} to end"), || {
        filler.send(c, 200);
        commands += 200;
        !is_saving(c)
    });
    delay(c, 0);
    assert!(commands > 200, "no command came during {command}");
    eventually_saved(c);
}

#[test]
fn a_restart_from_an_rdb_file_loses_nothing() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        let filler = fill(&mut c);
        let before = snapshot(&mut c, server.flavor(), &filler.telling_times_us());
        server.restart();
        let after = snapshot(&mut server.connect(), server.flavor(), &filler.telling_times_us());
        assert_same(&after, &before, "restarted");
    });
}

#[test]
fn an_rdb_file_saved_under_load_has_the_data_from_when_the_save_began() {
    server::on_all_with(Builder::allow_at, |server| {
        let mut c = server.connect();
        let mut filler = fill(&mut c);
        let times_us = filler.telling_times_us();
        let before = snapshot(&mut c, server.flavor(), &times_us);
        save_under_load(&mut c, &mut filler, "BGSAVE");
        crash(server);
        let after = snapshot(&mut server.connect(), server.flavor(), &times_us);
        assert_same(&after, &before, "BGSAVE");
    });
}

/// Restarts from an AOF of commands, then from an AOF rewritten under load.
fn assert_aof_loses_nothing(preamble: bool) {
    server::on_all_with(
        |builder| with_aof(builder.allow_at(), preamble),
        |server| {
            let mut c = server.connect();
            let mut filler = fill(&mut c);
            let before = snapshot(&mut c, server.flavor(), &filler.telling_times_us());
            restart_from_aof(server);
            let mut c = server.connect();
            let after = snapshot(&mut c, server.flavor(), &filler.telling_times_us());
            assert_same(&after, &before, "from commands");

            save_under_load(&mut c, &mut filler, "BGREWRITEAOF");
            assert_eq!(has_preamble(server), preamble, "the form of the AOF");
            let before = snapshot(&mut c, server.flavor(), &filler.telling_times_us());
            restart_from_aof(server);
            let after =
                snapshot(&mut server.connect(), server.flavor(), &filler.telling_times_us());
            assert_same(&after, &before, "rewritten");
        },
    );
}

#[test]
fn a_restart_from_an_aof_with_a_preamble_loses_nothing() {
    assert_aof_loses_nothing(true);
}

#[test]
fn a_restart_from_an_aof_without_a_preamble_loses_nothing() {
    assert_aof_loses_nothing(false);
}

#[test]
fn a_key_that_expired_while_the_server_was_down_is_gone() {
    for appendonly in ["no", "yes"] {
        let configure = |builder: Builder| builder.config("appendonly", appendonly);
        server::on_all_with(configure, |server| {
            let mut c = server.connect();
            assert_eq!(verdict(&mut c, "RL.CHECK long 1/h"), 0);
            let long_ms = expires_ms(&mut c, server.flavor(), "long");
            let mut short_ms = -2;
            while short_ms == -2 {
                assert_eq!(verdict(&mut c, "RL.CHECK short 1/10ms"), 0);
                short_ms = expires_ms(&mut c, server.flavor(), "short");
            }
            assert!(short_ms > 0 && long_ms > short_ms, "{short_ms} and {long_ms}");
            server.stop();
            eventually("the expiry to pass", || {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
                now.as_millis() > short_ms as u128
            });
            server.resume();
            let mut c = server.connect();
            let exists: [i64; 2] =
                pipe().cmd("EXISTS").arg("short").cmd("EXISTS").arg("long").query(&mut c).unwrap();
            assert_eq!(exists, [0, 1]);
            assert_eq!(expires_ms(&mut c, server.flavor(), "long"), long_ms);
        });
    }
}

#[test]
fn commands_that_change_nothing_are_not_written_to_the_aof() {
    // The server writes before it replies, so the length of the file shows each write.
    let configure =
        |builder: Builder| with_aof(builder.allow_at(), true).config("appendfsync", "always");
    server::on_all_with(configure, |server| {
        let mut c = server.connect();
        let [at, later] = [0, 7_200_000_000].map(|us| (now_us(&mut c) + us).to_string());
        let aof_len = || -> u64 {
            aof_files(server).iter().map(|path| fs::metadata(path).unwrap().len()).sum()
        };
        let mut growth = |command: &str, args: &[&str]| {
            let before = aof_len();
            let () = cmd(command).arg(args).query(&mut c).unwrap();
            aof_len() - before
        };
        let script = "return redis.call('RL.CHECK', KEYS[1], unpack(ARGV))";
        for rule in [
            "log:2/h",
            "window:2/h",
            "fixed:2/h",
            "bucket:2/h",
            "bucket:2/h,refill=interval",
            "leaky:2/h,queue=1",
        ] {
            assert!(growth("RL.CHECK", &[rule, "COST", "2", "AT", &at, rule]) > 0, "{rule}");
            // Redis 6.2 writes an empty transaction for a script that changes nothing.
            let idle = growth("EVAL", &["return redis.call('DEL', KEYS[1])", "1", "other"]);
            assert!(idle == 0 || !server.flavor().is_7_or_later(), "{idle} bytes");
            for args in [
                &[rule, "AT", &at, rule][..],
                &[rule, "COST", "3", "AT", &at, rule],
                &[rule, "COST", "0", "AT", &at, rule],
                &[rule, "AT", &at, "FULL", rule],
                &[rule, "AT", &at, "fixed:9/d", rule],
                &["other", "AT", &at, "fixed:0/w", rule],
            ] {
                assert_eq!(growth("RL.CHECK", args), 0, "RL.CHECK {args:?}");
                assert_eq!(growth("RL.PEEK", args), 0, "RL.PEEK {args:?}");
                let eval = [&[script, "1"], args].concat();
                assert_eq!(growth("EVAL", &eval), idle, "EVAL RL.CHECK {args:?}");
            }
            assert_eq!(growth("RL.REFUND", &[rule, "1", "AT", &at, "fixed:9/w"]), 0);
            assert_eq!(growth("RL.REFUND", &["other", "1", "AT", &at]), 0);
            // At `later`, all units have come back. The refund below has an earlier time.
            assert_eq!(growth("RL.REFUND", &[rule, "1", "AT", &later, rule]), 0);
            assert_eq!(growth("RL.RESET", &["other"]), 0);
            for lift in ["RL.UNBLOCK", "RL.UNEXEMPT"] {
                assert_eq!(growth(lift, &[rule]), 0, "{lift} of a free key");
                assert_eq!(growth(lift, &["other"]), 0, "{lift} of no key");
            }
            // Commands that change something must be written.
            assert!(growth("RL.REFUND", &[rule, "1", "AT", &at, rule]) > 0, "{rule}");
            assert!(growth("RL.RESET", &[rule]) > 0, "{rule}");
        }
        for (option, denied) in [("count=all", "charged"), ("ban=1h", "banned")] {
            let check = [option, "AT", &at, &format!("fixed:1/h,{option}")];
            assert!(growth("RL.CHECK", &check) > 0, "allowed");
            assert!(growth("RL.CHECK", &check) > 0, "denied, but {denied}");
        }
        assert_eq!(growth("RL.CHECK", &["ban=1h", "AT", &at, "9/h"]), 0, "blocked");
        assert_eq!(growth("RL.UNEXEMPT", &["ban=1h"]), 0, "blocked, not exempt");
        for denied in ["ban=1h", "denied"] {
            let check = [denied, "META", "who", "AT", &at, "0/h"];
            assert!(growth("RL.CHECK", &check) > 0, "{denied}, with an entry in the history");
        }
        for (set, lift) in [("RL.BLOCK", "RL.UNBLOCK"), ("RL.EXEMPT", "RL.UNEXEMPT")] {
            assert!(growth(set, &["ban=1h", "REASON", "abuse"]) > 0, "{set}");
            assert_eq!(growth("RL.CHECK", &["ban=1h", "COST", "9", "0/h"]), 0, "{set}");
            assert!(growth(lift, &["ban=1h"]) > 0, "{lift}");
        }
        for read in [&["RL.LOG", "denied"][..], &["RL.INFO", "denied"], &["RL.BLOCKS", "0"]] {
            assert_eq!(growth(read[0], &read[1..]), 0, "{read:?}");
        }
        assert_eq!(growth("RL.TOP", &["RESET"]), 0);
    });
}

#[test]
fn a_ban_that_ends_after_the_last_time_that_at_accepts_survives_in_the_aof() {
    server::on_all_with(
        |builder| with_aof(builder.allow_at(), true),
        |server| {
            // The last time that AT accepts. A ban that starts at this time ends after it.
            const LAST_US: &str = "253402300799999999";
            let state = |c: &mut Connection| -> (Vec<String>, [i64; 5]) {
                let digest = cmd("DEBUG").arg("DIGEST-VALUE").arg("k").query(c).unwrap();
                let mut peek = cmd("RL.PEEK");
                (digest, peek.arg("k").arg("AT").arg(LAST_US).arg("5/h").query(c).unwrap())
            };
            let mut c = server.connect();
            let check = ["k", "AT", LAST_US, "META", "who", "fixed:0/366d,ban=366d"];
            let () = cmd("RL.CHECK").arg(&check).query(&mut c).unwrap();
            let before = state(&mut c);
            restart_from_aof(server);
            assert_eq!(state(&mut server.connect()), before);
        },
    );
}

#[test]
fn every_server_restores_dumps_of_every_other() {
    let servers: Vec<Server> =
        server::all().into_iter().map(|flavor| flavor.builder().allow_at().start()).collect();
    let dump =
        |c: &mut Connection, key: &str| -> Vec<u8> { cmd("DUMP").arg(key).query(c).unwrap() };
    let own_version = |server: &Server| -> u16 {
        let mut c = server.connect();
        let () = cmd("RL.CHECK").arg("own").arg("5/h").query(&mut c).unwrap();
        let dumped = dump(&mut c, "own");
        let () = cmd("DEL").arg("own").query(&mut c).unwrap();
        rdb_version::of_dump(&dumped)
    };
    for (index, from) in servers.iter().enumerate() {
        let mut source = from.connect();
        let filler = fill(&mut source);
        let before = snapshot(&mut source, from.flavor(), &filler.telling_times_us());
        for to in &servers {
            let pair = format!("{} to {}", from.flavor().name, to.flavor().name);
            let own = own_version(to);
            let mut c = to.connect();
            // Keys are restored under their own names, so each source gets its own database.
            let () = cmd("SELECT").arg(index + 1).query(&mut c).unwrap();
            for (key, value) in &before {
                let dumped = dump(&mut source, key);
                let restore = |c: &mut Connection, dumped: &[u8]| -> RedisResult<()> {
                    let ttl = value.expires_ms.max(0);
                    cmd("RESTORE").arg(key).arg(ttl).arg(dumped).arg("ABSTTL").query(c)
                };
                let restored = restore(&mut c, &dumped);
                if takes(to.flavor(), own, rdb_version::of_dump(&dumped)) {
                    restored.unwrap_or_else(|error| panic!("{pair}: {key}: {error}"));
                } else {
                    // The server refuses the version at the end of the dump, before it reads
                    // the value.
                    let error = restored.expect_err(&pair).to_string();
                    assert!(error.contains("DUMP payload version"), "{pair}: {error}");
                    let sealed = rdb_version::in_dump(&dumped, own);
                    restore(&mut c, &sealed)
                        .unwrap_or_else(|error| panic!("{pair}: {key}: {error}"));
                }
                let again = dump(&mut c, key);
                assert_eq!(
                    rdb_version::value(&again),
                    rdb_version::value(&dumped),
                    "{pair}: {key}"
                );
            }
            assert_same(&snapshot(&mut c, to.flavor(), &filler.telling_times_us()), &before, &pair);
        }
    }
}

#[test]
fn every_server_loads_rdb_files_of_every_other() {
    let saved: Vec<_> = server::all()
        .into_iter()
        .map(|flavor| {
            let server = flavor.builder().allow_at().start();
            let mut c = server.connect();
            let filler = fill(&mut c);
            let times_us = filler.telling_times_us();
            let before = snapshot(&mut c, flavor, &times_us);
            (flavor, saved_rdb(&server), before, times_us)
        })
        .collect();
    for (from, file, before, times_us) in &saved {
        for (to, own_file, ..) in &saved {
            let own = rdb_version::of_file(own_file);
            let dir = tempfile::tempdir().unwrap();
            let dump = dir.path().join("dump.rdb");
            if takes(*to, own, rdb_version::of_file(file)) {
                fs::write(dump, file).unwrap();
            } else {
                // The server refuses only the version at the start of the file.
                fs::write(dump, rdb_version::in_file(file, own_file)).unwrap();
            }
            let server = to.builder().allow_at().dir(dir.path()).start();
            let after = snapshot(&mut server.connect(), *to, times_us);
            assert_same(&after, before, &format!("{} to {}", from.name, to.name));
        }
    }
}

/// Only Valkey from 9.2 on knows the option.
#[test]
fn other_servers_ignore_forkless_save() {
    let forkless = |builder: Builder| builder.module_args(&["forkless-save", "yes"]);
    server::on_all_with(forkless, |server| {
        let mut c = server.connect();
        assert_eq!(verdict(&mut c, "RL.CHECK k 2/d"), 0);
        let () = ask(&mut c, "BGSAVE");
        eventually("the save to end", || !is_saving(&mut c));
        eventually_saved(&mut c);
        if server.flavor().is_7_or_later() {
            let setting: Vec<String> = ask(&mut c, "CONFIG GET ratelimit.forkless-save");
            assert_eq!(setting[1], "yes");
            let error = refusal(&mut c, "CONFIG SET ratelimit.forkless-save no");
            assert!(error.contains("immutable"), "{error}");
        }
        crash(server);
        let mut c = server.connect();
        assert_eq!(["RL.CHECK k 2/d"; 2].map(|line| verdict(&mut c, line)), [0, 1]);
    });
}
