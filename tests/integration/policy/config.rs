//! Policies in the arguments of `loadmodule`: next to saved ones, under the setting `policies`,
//! and on replicas.

use redis::{Connection, Value, cmd};

use crate::support::client::{ask, eventually_linked, remaining};
use crate::support::files::{self, crash, eventually_saved, restart_from_aof, with_aof};
use crate::support::policies::{Policies, known, known_by_replica, policies, set};
use crate::support::server::{self, Builder, Server, eventually};
use crate::support::workload::link::{in_step, number, quiet, replica_of};

const ARGUMENTS: [&str; 4] = ["policy", "free=20/m", "policy", "pro=bucket:5/s,burst=9"];
const CONFIGURED: [&str; 2] = ["free log:20/1m", "pro bucket:5/1s,burst=9"];

fn configured(builder: Builder) -> Builder {
    builder.module_args(&["policies", "config"]).module_args(&ARGUMENTS)
}

/// Changes `free`, deletes `pro` and sets `own`; returns the policies then in effect.
fn change_at_run_time(c: &mut Connection) -> Policies {
    set(c, &["free 30/m", "own 5/h"]);
    let _: i64 = ask(c, "RL.POLICY DEL pro FORCE");
    let changed = policies(&["free log:30/1m", "own log:5/1h"]);
    assert_eq!(known(c), changed);
    changed
}

fn with_own() -> Policies {
    policies(&[CONFIGURED[0], "own log:5/1h", CONFIGURED[1]])
}

#[test]
fn configured_policies_override_saved_ones_if_the_setting_policies_is_config() {
    server::on_all_with(configured, |server| {
        change_at_run_time(&mut server.connect());
        server.restart();
        assert_eq!(known(&mut server.connect()), with_own(), "from the RDB file");
        // A change at run time holds until the restart.
        let mut c = server.connect();
        set(&mut c, &["free 30/m"]);
        assert_eq!(remaining(&mut c, "RL.CHECK k @free"), 29);
        server.restart();
        assert_eq!(remaining(&mut server.connect(), "RL.PEEK k @free"), 19);
    });
    for preamble in [true, false] {
        server::on_all_with(
            |builder| with_aof(configured(builder), preamble),
            |server| {
                change_at_run_time(&mut server.connect());
                restart_from_aof(server);
                assert_eq!(known(&mut server.connect()), with_own(), "from the AOF");
                let mut c = server.connect();
                change_at_run_time(&mut c);
                let () = ask(&mut c, "BGREWRITEAOF");
                eventually_saved(&mut c);
                restart_from_aof(server);
                assert_eq!(known(&mut server.connect()), with_own(), "rewritten");
            },
        );
    }
}

#[test]
fn the_setting_policies_also_works_in_the_configuration_file() {
    server::on_all_with(
        |builder| {
            let builder = builder.module_args(&ARGUMENTS);
            match builder.flavor().is_7_or_later() {
                true => builder.config("ratelimit.policies", "config"),
                false => builder.module_args(&["policies", "config"]),
            }
        },
        |server| {
            change_at_run_time(&mut server.connect());
            server.restart();
            assert_eq!(known(&mut server.connect()), with_own());
        },
    );
}

fn eventually_known(replica: &Server, expected: &Policies) {
    eventually("the policies to reach the replica", || known_by_replica(replica) == *expected);
}

#[test]
fn a_replica_has_its_primarys_policies_not_configured_ones() {
    server::on_all_with(configured, |primary| {
        let mut replica = primary
            .flavor()
            .builder()
            .module_args(&["policies", "config", "policy", "free=1/h", "policy", "other=1/h"])
            .replica_of(primary)
            .start();
        let expected = policies(&CONFIGURED);
        eventually_linked(&replica);
        eventually_known(&replica, &expected);
        // After a restart the replica may continue without a full synchronization.
        replica.restart();
        eventually_linked(&replica);
        let known = known_by_replica(&replica);
        assert_eq!(known["free"], expected["free"], "{known:?}");
        let mut r = replica.connect();
        let () = ask(&mut r, "REPLICAOF NO ONE");
        assert_eq!(remaining(&mut r, "RL.CHECK k @free"), 19, "promoted");
    });
}

#[test]
fn replicas_get_the_policies_that_their_primary_starts_with() {
    server::on_all_with(
        |builder| quiet(builder).module_args(&ARGUMENTS),
        |primary| {
            let replica = replica_of(primary);
            in_step(primary, &replica);
            primary.edit_config(|lines| {
                let load = lines.iter_mut().find(|line| line.starts_with("loadmodule "));
                load.expect("a line for the module").push_str(" policy late=7/h");
            });
            primary.restart();
            eventually_linked(&replica);
            let expected = policies(&[CONFIGURED[0], "late log:7/1h", CONFIGURED[1]]);
            eventually_known(&replica, &expected);
            if primary.flavor().is_7_or_later() {
                // 6.2 always sends a snapshot.
                let full = number(&mut primary.connect(), "stats", "sync_full");
                assert_eq!(full, 0, "the replica got a snapshot");
            }
            // The replica keeps the policies when it is promoted.
            primary.kill9();
            let mut r = replica.connect();
            let () = ask(&mut r, "REPLICAOF NO ONE");
            assert_eq!(remaining(&mut r, "RL.CHECK k @late"), 6);
        },
    );
}

#[test]
fn replicas_get_the_policies_of_module_load() {
    server::on_all_with(Builder::allow_module_command, |primary| {
        let path = primary.remove_module();
        crash(primary);
        let replica = primary.flavor().builder().replica_of(primary).start();
        eventually_linked(&replica);
        let mut load = cmd("MODULE");
        load.arg("LOAD").arg(path).arg(&ARGUMENTS);
        let () = load.query(&mut primary.connect()).expect("it is loaded");
        eventually_known(&replica, &policies(&CONFIGURED));
    });
}

/// Rewrites the AOF, and returns it in upper case.
fn rewritten(server: &Server) -> String {
    let () = ask(&mut server.connect(), "BGREWRITEAOF");
    eventually_saved(&mut server.connect());
    files::aof(server)
}

#[test]
fn a_rewritten_aof_has_policies_before_values() {
    server::on_all_with(
        // While the AOF is off, nothing is appended to what the child writes.
        |builder| builder.config("aof-use-rdb-preamble", "no"),
        |server| {
            let mut c = server.connect();
            set(&mut c, &["free 20/m 800/d", "pro bucket:5/s,burst=9"]);
            for key in 0..20 {
                let _: Value = ask(&mut c, &format!("RL.CHECK k{key} COST 2 @free"));
            }
            let written = rewritten(server);
            let position =
                |word: &str| written.find(word).unwrap_or_else(|| panic!("{word}: {written}"));
            assert!(position("RL.POLICY") < position("RL.LOAD"), "{written}");
            assert_eq!(written.matches("RL.POLICY").count(), 2, "a policy is written twice");
            server.edit_config(|lines| lines.push("appendonly yes".to_string()));
            crash(server);
            let mut c = server.connect();
            let expected = policies(&["free log:20/1m log:800/1d", "pro bucket:5/1s,burst=9"]);
            assert_eq!(known(&mut c), expected);
            assert_eq!(remaining(&mut c, "RL.PEEK k7 @free"), 18);
        },
    );
}

#[test]
fn policies_survive_a_crash_after_a_rewrite_in_a_pause() {
    server::on_all_with(
        |builder| with_aof(builder, false).config("appendfsync", "always"),
        |server| {
            let mut c = server.connect();
            set(&mut c, &["free 20/m"]);
            let _: Value = ask(&mut c, "RL.CHECK k @free");
            let () = ask(&mut c, "CLIENT PAUSE 20000 WRITE");
            rewritten(server);
            crash(server);
            assert_eq!(known(&mut server.connect()), policies(&["free log:20/1m"]));
        },
    );
}
