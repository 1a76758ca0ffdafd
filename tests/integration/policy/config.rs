//! Policies of a server's own file: beside those that were saved, as the setting `policies` says,
//! and on its replicas.

use std::fs;

use redis::{Connection, Value, cmd};

use crate::support::client::{ask, remaining};
use crate::support::files::{self, crash, restart_from_aof, saved, with_aof};
use crate::support::policies::{Policies, known, known_by_replica, policies, set};
use crate::support::server::{self, Builder, Server, eventually};
use crate::support::workload::link;

const FILE: [&str; 4] = ["policy", "free=20/m", "policy", "pro=bucket:5/s,burst=9"];
const OF_FILE: [&str; 2] = ["free log:20/1m", "pro bucket:5/1s,burst=9"];

fn configured(builder: Builder) -> Builder {
    builder.module_args(&["policies", "config"]).module_args(&FILE)
}

/// What is in force after `free` was changed, `pro` deleted and `own` set live.
fn change_live(c: &mut Connection) -> Policies {
    set(c, &["free 30/m", "own 5/h"]);
    let _: i64 = ask(c, "RL.POLICY DEL pro");
    let changed = policies(&["free log:30/1m", "own log:5/1h"]);
    assert_eq!(known(c), changed);
    changed
}

fn with_own() -> Policies {
    policies(&[OF_FILE[0], "own log:5/1h", OF_FILE[1]])
}

#[test]
fn configured_policies_override_saved_ones_with_policies_config() {
    server::on_all_with(configured, |server| {
        change_live(&mut server.connect());
        server.restart();
        assert_eq!(known(&mut server.connect()), with_own(), "from the RDB file");
        // Changed live they stay changed, as long as the server runs.
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
                change_live(&mut server.connect());
                restart_from_aof(server);
                assert_eq!(known(&mut server.connect()), with_own(), "from the AOF");
                let mut c = server.connect();
                change_live(&mut c);
                let () = ask(&mut c, "BGREWRITEAOF");
                saved(&mut c);
                restart_from_aof(server);
                assert_eq!(known(&mut server.connect()), with_own(), "rewritten");
            },
        );
    }
}

#[test]
fn the_setting_in_the_servers_file_counts() {
    server::on_all_with(
        |builder| {
            let builder = builder.module_args(&FILE);
            match builder.flavor().is_7_or_later() {
                true => builder.config("ratelimit.policies", "config"),
                false => builder.module_args(&["policies", "config"]),
            }
        },
        |server| {
            change_live(&mut server.connect());
            server.restart();
            assert_eq!(known(&mut server.connect()), with_own());
        },
    );
}

fn linked(replica: &Server) -> bool {
    let told: String = ask(&mut replica.connect(), "INFO replication");
    told.contains("master_link_status:up")
}

fn knows(replica: &Server, expected: &Policies) {
    eventually("the replica to know them", || known_by_replica(replica) == *expected);
}

#[test]
fn a_replica_has_the_policies_of_its_primary_whatever_its_own_file_says() {
    server::on_all_with(configured, |primary| {
        let mut replica = primary
            .flavor()
            .builder()
            .module_args(&["policies", "config", "policy", "free=1/h", "policy", "other=1/h"])
            .replica_of(primary)
            .start();
        let expected = policies(&OF_FILE);
        eventually("the link", || linked(&replica));
        knows(&replica, &expected);
        // Started again, it may go on without a full synchronization.
        replica.restart();
        eventually("the link", || linked(&replica));
        let known = known_by_replica(&replica);
        assert_eq!(known["free"], expected["free"], "{known:?}");
        let mut r = replica.connect();
        let () = ask(&mut r, "REPLICAOF NO ONE");
        assert_eq!(remaining(&mut r, "RL.CHECK k @free"), 19, "promoted");
    });
}

/// Starts the server again with its file changed, and all that it holds.
fn restart_with(server: &mut Server, edit: impl Fn(&str) -> Option<String>) {
    server.stop();
    let file = server.dir().join("server.conf");
    let text = fs::read_to_string(&file).expect("the file");
    let lines: Vec<_> = text.lines().filter_map(edit).collect();
    fs::write(&file, lines.join("\n")).expect("the file is written");
    server.resume();
}

#[test]
fn replicas_are_told_of_policies_that_their_primary_brought_with_it() {
    server::on_all_with(
        |builder| link::quiet(builder).module_args(&FILE),
        |primary| {
            let replica = link::replica_of(primary);
            link::in_step(primary, &replica);
            restart_with(primary, |line| {
                let is_load = line.starts_with("loadmodule ");
                let added = if is_load { " policy late=7/h" } else { "" };
                Some(format!("{line}{added}"))
            });
            eventually("the link", || linked(&replica));
            let expected = policies(&[OF_FILE[0], "late log:7/1h", OF_FILE[1]]);
            knows(&replica, &expected);
            if primary.flavor().is_7_or_later() {
                // 6.2 has no other way than all of it.
                let full = link::number(&mut primary.connect(), "sync_full");
                assert_eq!(full, 0, "the replica was sent all again");
            }
            // It keeps them when it takes over.
            primary.kill9();
            let mut r = replica.connect();
            let () = ask(&mut r, "REPLICAOF NO ONE");
            assert_eq!(remaining(&mut r, "RL.CHECK k @late"), 6);
        },
    );
}

#[test]
fn replicas_are_told_of_policies_that_come_with_module_load() {
    let allowing = |builder: Builder| match builder.flavor().is_7_or_later() {
        true => builder.config("enable-module-command", "yes"),
        false => builder, // 6.2 always allows it.
    };
    server::on_all_with(allowing, |primary| {
        let mut path = String::new();
        let text = fs::read_to_string(primary.dir().join("server.conf")).expect("the file");
        for line in text.lines().filter(|line| line.starts_with("loadmodule ")) {
            path = line.split('"').nth(1).expect("a path in quotes").to_string();
        }
        primary.kill9();
        let without: Vec<_> = text.lines().filter(|line| !line.contains("loadmodule")).collect();
        fs::write(primary.dir().join("server.conf"), without.join("\n")).expect("it is written");
        primary.resume();
        let replica = primary.flavor().builder().replica_of(primary).start();
        eventually("the link", || linked(&replica));
        let mut load = cmd("MODULE");
        load.arg("LOAD").arg(path).arg(&FILE);
        let () = load.query(&mut primary.connect()).expect("it is loaded");
        knows(&replica, &policies(&OF_FILE));
    });
}

/// All commands of the AOF that a server rewrote, in capital letters, or those of an RDB file.
fn rewritten(server: &Server) -> String {
    let () = ask(&mut server.connect(), "BGREWRITEAOF");
    saved(&mut server.connect());
    files::aof(server)
}

#[test]
fn a_rewritten_aof_has_the_policies_before_the_first_limiter() {
    server::on_all_with(
        // With the AOF off nothing can be appended to what the child wrote.
        |builder| builder.config("aof-use-rdb-preamble", "no"),
        |server| {
            let mut c = server.connect();
            set(&mut c, &["free 20/m 800/d", "pro bucket:5/s,burst=9"]);
            for key in 0..20 {
                let _: Value = ask(&mut c, &format!("RL.CHECK k{key} COST 2 @free"));
            }
            let written = rewritten(server);
            let place =
                |word: &str| written.find(word).unwrap_or_else(|| panic!("{word}: {written}"));
            assert!(place("RL.POLICY") < place("RL.LOAD"), "{written}");
            assert_eq!(written.matches("RL.POLICY").count(), 2, "each once");
            let file = server.dir().join("server.conf");
            let text = fs::read_to_string(&file).expect("the file");
            fs::write(&file, format!("{text}\nappendonly yes\n")).expect("the file is written");
            crash(server);
            let mut c = server.connect();
            let expected = policies(&["free log:20/1m log:800/1d", "pro bucket:5/1s,burst=9"]);
            assert_eq!(known(&mut c), expected);
            assert_eq!(remaining(&mut c, "RL.PEEK k7 @free"), 18);
        },
    );
}

#[test]
fn a_server_that_ends_in_a_pause_after_a_rewrite_has_its_policies() {
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
