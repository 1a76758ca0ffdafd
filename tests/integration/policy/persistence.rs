//! Policies survive restarts and crashes in the RDB file and in both forms of the AOF, and override
//! those in the arguments of `loadmodule`.

use std::fs;

use redis::{Connection, Value, pipe};

use crate::support::client::{
    ask, calls, digest, info, refusal, remaining, replica_of, replicated,
};
use crate::support::files::{
    aof, crash, eventually_saved, has_preamble, restart_from_aof, save_slowly, with_aof,
};
use crate::support::policies::{Policies, known, known_by_replica, policies, set};
use crate::support::server::{self, Builder, Server};

const BOTH_FORMS: [bool; 2] = [true, false];

/// Sets policies with every kind of rule, makes checks under them, and changes and deletes
/// some.
fn fill(c: &mut Connection) -> Policies {
    let lines = [
        "free log:20/1m log:800/1d",
        "log log:5/1h,count=all,shadow",
        "window window:7/1d,res=6,name=w",
        "fixed fixed:9/1w,tz=+05:30 fixed:100/1h,keep=3,name=f",
        "bucket bucket:5/1m,burst=40,name=b-1",
        "leaky leaky:3/1s,queue=9",
        "a-name.of_32-characters-and-long log:1/1ms",
        "ban log:5/1h,ban=10m",
    ];
    set(c, &["changed 1/s", "deleted 1/s", "free 9/s"]);
    set(c, &lines);
    set(c, &["changed 2/s"]);
    let _: i64 = ask(c, "RL.POLICY DEL deleted FORCE");
    for _ in 0..3 {
        let _: Value = ask(c, "RL.CHECK k @free 50/h @bucket");
    }
    let mut expected = policies(&lines);
    expected.extend(policies(&["changed log:2/1s"]));
    assert_eq!(known(c), expected);
    expected
}

/// Checks that a server has these policies, and the key of [`fill`] with its counts.
fn assert_kept(server: &Server, expected: &Policies, when: &str) {
    let mut c = server.connect();
    assert_eq!(known(&mut c), *expected, "{when}");
    assert_eq!(remaining(&mut c, "RL.PEEK k 50/h"), 47, "{when}");
    assert_eq!(remaining(&mut c, "RL.PEEK k @free @bucket 50/h"), 17, "{when}");
}

#[test]
fn policies_survive_in_the_rdb_file() {
    server::on_all(|server| {
        let expected = fill(&mut server.connect());
        server.restart();
        assert_kept(server, &expected, "restarted");
        let mut c = server.connect();
        let () = ask(&mut c, "DEBUG RELOAD");
        assert_kept(server, &expected, "reloaded");
        save_slowly(&mut c, "BGSAVE", |c| {
            set(c, &["free 1/s", "new 1/s"]);
            let _: i64 = ask(c, "RL.POLICY DEL bucket FORCE");
        });
        crash(server);
        assert_kept(server, &expected, "as when the save began");
        // A file without policies loads without policies.
        let mut c = server.connect();
        for name in expected.keys() {
            let _: i64 = ask(&mut c, &format!("RL.POLICY DEL {name} FORCE"));
        }
        server.restart();
        assert_eq!(known(&mut server.connect()), policies(&[]));
    });
}

#[test]
fn policies_survive_in_the_aof() {
    for preamble in BOTH_FORMS {
        server::on_all_with(
            |builder| with_aof(builder, preamble),
            |server| {
                let mut expected = fill(&mut server.connect());
                restart_from_aof(server);
                assert_kept(server, &expected, "from commands");

                let mut c = server.connect();
                let () = ask(&mut c, "BGREWRITEAOF");
                eventually_saved(&mut c);
                assert_eq!(has_preamble(server), preamble);
                restart_from_aof(server);
                assert_kept(server, &expected, "rewritten");
                let mut c = server.connect();
                let () = ask(&mut c, "DEBUG LOADAOF");
                assert_kept(server, &expected, "loaded at run time");

                save_slowly(&mut c, "BGREWRITEAOF", |c| {
                    set(c, &["changed 1/d", "new 1/s", "newer 1/s", "passing 1/s"]);
                    let _: i64 = ask(c, "RL.POLICY DEL leaky FORCE");
                    let _: i64 = ask(c, "RL.POLICY DEL passing FORCE");
                    set(c, &["changed 3/d"]);
                });
                expected.remove("leaky");
                let later = ["changed log:3/1d", "new log:1/1s", "newer log:1/1s"];
                expected.extend(policies(&later));
                restart_from_aof(server);
                assert_kept(server, &expected, "rewritten during changes");
            },
        );
    }
}

#[test]
fn acknowledged_policies_survive_a_crash() {
    for preamble in BOTH_FORMS {
        server::on_all_with(
            |builder| with_aof(builder, preamble).config("appendfsync", "always"),
            |server| {
                let expected = fill(&mut server.connect());
                crash(server);
                assert_kept(server, &expected, "from commands");
                let mut c = server.connect();
                save_slowly(&mut c, "BGREWRITEAOF", |_| {});
                crash(server);
                assert_kept(server, &expected, "after a rewrite");
                // After a crash during a rewrite, the old AOF and what was appended to it
                // remain.
                let mut c = server.connect();
                let () = ask(&mut c, "CONFIG SET rdb-key-save-delay 1000000");
                let () = ask(&mut c, "BGREWRITEAOF");
                set(&mut c, &["new 1/s"]);
                assert_eq!(info(&mut c, "persistence", "aof_rewrite_in_progress"), 1.0);
                crash(server);
                let mut with_new = expected.clone();
                with_new.extend(policies(&["new log:1/1s"]));
                assert_kept(server, &with_new, "during a rewrite");
            },
        );
    }
}

#[test]
fn an_aof_begun_at_run_time_has_earlier_policies() {
    for preamble in BOTH_FORMS {
        let preamble_is = if preamble { "yes" } else { "no" };
        server::on_all_with(
            |builder| builder.config("aof-use-rdb-preamble", preamble_is),
            |server| {
                let mut c = server.connect();
                let mut expected = fill(&mut c);
                save_slowly(&mut c, "CONFIG SET appendonly yes", |c| {
                    set(c, &["new 1/s"]);
                    let _: i64 = ask(c, "RL.POLICY DEL leaky FORCE");
                });
                expected.remove("leaky");
                expected.extend(policies(&["new log:1/1s"]));
                let () = ask(&mut c, "CONFIG REWRITE");
                let _ = fs::remove_file(server.dir().join("dump.rdb"));
                // With fsync always, the reply comes after all earlier writes.
                let () = ask(&mut c, "CONFIG SET appendfsync always");
                set(&mut c, &["new 1/s"]);
                crash(server);
                assert_kept(server, &expected, "begun at run time");
            },
        );
    }
}

/// A rewrite writes policies and propagates nothing, however it begins.
#[test]
fn a_rewrite_propagates_no_command() {
    for preamble in BOTH_FORMS {
        server::on_all_with(
            |builder| with_aof(builder, preamble).config("appendfsync", "always"),
            |primary| {
                let replica = replica_of(primary);
                let (mut c, mut r) = (primary.connect(), replica.connect());
                let expected = fill(&mut c);
                let rewrites: [&dyn Fn(&mut Connection); 3] = [
                    &|c| ask(c, "BGREWRITEAOF"),
                    &|c| {
                        let mut transaction = pipe();
                        transaction.atomic().cmd("SET").arg("x").arg("1").cmd("BGREWRITEAOF");
                        transaction.cmd("RL.POLICY").arg(&["SET", "last", "5/h"]).cmd("PING");
                        let _: Value = transaction.query(c).unwrap();
                    },
                    &|c| {
                        let mut pipeline = pipe();
                        pipeline
                            .cmd("BGREWRITEAOF")
                            .cmd("RL.POLICY")
                            .arg(&["DEL", "last", "FORCE"]);
                        let _: Value = pipeline.query(c).unwrap();
                    },
                ];
                for rewrite in rewrites {
                    rewrite(&mut c);
                    eventually_saved(&mut c);
                }
                replicated(&mut c);
                let written = aof(primary);
                assert!(!written.contains("BGREWRITEAOF"), "the rewrite is in the AOF");
                assert!(!written.contains("CONFIG"), "a CONFIG command is in the AOF");
                assert_eq!(calls(&mut r, "bgrewriteaof"), 0, "on the replica");
                assert_eq!(calls(&mut r, "config"), 0, "on the replica");
                assert_eq!(digest(&mut r), digest(&mut c));
                assert_eq!(known_by_replica(&replica), expected);
                crash(primary);
                assert_kept(primary, &expected, "after these rewrites");
            },
        );
    }
}

#[test]
fn policies_survive_a_rewrite_while_clients_are_paused() {
    server::on_all_with(
        |builder| with_aof(builder, false).config("appendfsync", "always"),
        |server| {
            let mut c = server.connect();
            let expected = fill(&mut c);
            let () = ask(&mut c, "CLIENT PAUSE 20000 WRITE");
            let () = ask(&mut c, "BGREWRITEAOF");
            eventually_saved(&mut c);
            let () = ask(&mut c, "CLIENT UNPAUSE");
            // The server soon writes what it held back during the pause.
            server::eventually("the policies in the AOF", || aof(server).contains("BUCKET:5/1M"));
            crash(server);
            assert_kept(server, &expected, "rewritten during a pause");
        },
    );
}

const ARGUMENTS: [&str; 4] = ["policy", "free=20/m;800/d", "policy", "pro=bucket:5/s,burst=9"];

fn configured(builder: Builder) -> Builder {
    builder.module_args(&ARGUMENTS)
}

const CONFIGURED: [&str; 2] = ["free log:20/1m log:800/1d", "pro bucket:5/1s,burst=9"];

#[test]
fn saved_policies_override_configured_ones() {
    server::on_all_with(configured, |server| {
        let mut c = server.connect();
        assert_eq!(known(&mut c), policies(&CONFIGURED));
        assert_eq!(remaining(&mut c, "RL.CHECK k @free"), 19);
        set(&mut c, &["free 30/m", "own 5/h"]);
        let _: i64 = ask(&mut c, "RL.POLICY DEL pro FORCE");
        assert!(refusal(&mut c, "RL.PEEK k @pro").contains("unknown policy"));
        // Nothing was saved, so the configured policies are back.
        crash(server);
        assert_eq!(known(&mut server.connect()), policies(&CONFIGURED));

        let mut c = server.connect();
        set(&mut c, &["free 30/m", "own 5/h"]);
        let _: i64 = ask(&mut c, "RL.POLICY DEL pro FORCE");
        server.restart();
        // A deleted policy is not in the RDB file, so the configured one is back.
        let expected = policies(&["free log:30/1m", "own log:5/1h", CONFIGURED[1]]);
        assert_eq!(known(&mut server.connect()), expected);
    });
}

#[test]
fn an_aof_overrides_configured_policies_until_its_rewrite() {
    for preamble in BOTH_FORMS {
        server::on_all_with(
            |builder| configured(with_aof(builder, preamble)),
            |server| {
                let mut c = server.connect();
                set(&mut c, &["free 30/m"]);
                let _: i64 = ask(&mut c, "RL.POLICY DEL pro FORCE");
                restart_from_aof(server);
                let mut c = server.connect();
                assert_eq!(known(&mut c), policies(&["free log:30/1m"]));
                let () = ask(&mut c, "BGREWRITEAOF");
                eventually_saved(&mut c);
                restart_from_aof(server);
                let expected = policies(&["free log:30/1m", CONFIGURED[1]]);
                assert_eq!(known(&mut server.connect()), expected);
            },
        );
    }
}

#[test]
fn config_rewrite_keeps_configured_policies() {
    server::on_all_with(configured, |server| {
        for round in 0..3 {
            let mut c = server.connect();
            assert_eq!(known(&mut c), policies(&CONFIGURED), "round {round}");
            set(&mut c, &["live 5/h", "free 1/s"]);
            let () = ask(&mut c, "CONFIG REWRITE");
            crash(server);
        }
    });
}

#[test]
fn a_server_starts_with_the_line_of_the_guide() {
    let guide = include_str!("../../../docs/guide/policies.md");
    let line = guide.lines().find_map(|line| line.strip_prefix("loadmodule ")).expect("a line");
    let args: Vec<&str> = line.split(' ').skip(1).collect();
    server::on_all_with(
        |builder| builder.module_args(&args),
        |server| {
            let pro = "pro log:200/1m bucket:10/1s,burst=50,name=peak";
            assert_eq!(known(&mut server.connect()), policies(&[CONFIGURED[0], pro]));
        },
    );
}

#[test]
fn a_wrong_policy_keeps_the_server_from_starting() {
    for (args, says) in [
        (&["policy", "free=20/x"][..], "argument 'policy free=20/x': rule '20/x'"),
        (&["policy", "free"], "argument 'policy free': unexpected ''"),
        (&["policy", "fr/ee=20/m"], "the policy's name is 'fr/ee'"),
        (&["policy", "free=20/m;@pro"], "a policy may not name another"),
        (&["policy", "free=20/m;30/m"], "same identity"),
        (&["policy", "free=1/s;2/m;3/h", "max-rules", "2"], "(ratelimit.max-rules)"),
        (&["policy"], "'policy'"),
    ] {
        for flavor in server::all() {
            let log = flavor.builder().module_args(args).refusal();
            assert!(log.contains(says), "{} {args:?}: {log}", flavor.name);
        }
    }
}
