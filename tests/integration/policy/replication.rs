//! Policies on replicas: a replica follows the policies of its primary, and no effect names a policy.

use redis::{Connection, Pipeline, Value, pipe};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::client::{
    self, ask, command, digest, exists, let_in, lock_out, refusal, remaining,
};
use crate::support::files::{aof, eventually_saved, with_aof};
use crate::support::policies::{known, known_by_replica, policies, set};
use crate::support::server::{self, Builder, Server, eventually};
use crate::support::workload::link::{in_step, number, offset, quiet, replica_of};

/// The commands in the AOF.
fn written(primary: &Server) -> Vec<Vec<String>> {
    let text = aof(primary);
    let mut lines = text.split("\r\n");
    let mut commands = Vec::new();
    while let Some(count) = lines.next().and_then(|line| line.strip_prefix('*')) {
        let count: usize = count.parse().expect("a number");
        let word = |_| lines.nth(1).expect("a length, a word").to_string();
        commands.push((0..count).map(word).collect());
    }
    commands
}

#[test]
fn effects_of_checks_by_policy_have_the_texts_of_rules() {
    server::on_all_with(
        |builder| with_aof(quiet(builder), false).config("appendfsync", "always"),
        |primary| {
            let replica = replica_of(primary);
            let (mut p, mut r) = (primary.connect(), replica.connect());
            set(&mut p, &["free 20/m 800/d", "burst bucket:5/s,burst=9"]);
            in_step(primary, &replica);
            // The replica has other policies of these names, which must not matter.
            let () = ask(&mut r, "CONFIG SET replica-read-only no");
            set(&mut r, &["free 1/ms"]);
            let _: i64 = ask(&mut r, "RL.POLICY DEL burst FORCE");
            for (line, rules) in [
                ("RL.CHECK a @free", &["LOG:20/1M LOG:800/1D"][..]),
                (
                    "RL.CHECK b META who @free 5/s @burst",
                    &["LOG:20/1M LOG:800/1D 5/S BUCKET:5/1S,BURST=9"],
                ),
                ("RL.CHECK a 7/h @burst", &["7/H BUCKET:5/1S,BURST=9"]),
                ("RL.MCHECK 2 c d @burst", &["BUCKET:5/1S,BURST=9"; 2]),
                ("RL.MCHECK 2 c d 9/d NEXT @free 4/h", &["9/D", "LOG:20/1M LOG:800/1D 4/H"]),
                ("RL.REFUND a 1 @free", &["LOG:20/1M LOG:800/1D"]),
            ] {
                let before = written(primary).len();
                let _: Value = ask(&mut p, line);
                let effects: Vec<_> = written(primary)
                    .split_off(before)
                    .into_iter()
                    .filter(|words| words[0] == "RL.APPLY")
                    .map(|words| words.join(" "))
                    .collect();
                assert_eq!(effects.len(), rules.len(), "{line}: {effects:?}");
                for (effect, rules) in effects.iter().zip(rules) {
                    assert!(effect.ends_with(&format!(" {rules}")), "{line}: {effect}");
                }
            }
            assert!(!aof(primary).contains('@'));
            in_step(primary, &replica);
            assert_eq!(digest(&mut r), digest(&mut p));
        },
    );
}

/// Checks by policies, with commands in between that set, change and delete policies.
fn random_commands(random: &mut fastrand::Rng, count: usize) -> Pipeline {
    const RULES: [&str; 7] = [
        "5/h",
        "bucket:9/m,burst=20",
        "fixed:50/d,count=all",
        "window:30/m,res=6",
        "leaky:40/h",
        "3/10ms,name=short",
        "9/h,ban=1h,name=ban",
    ];
    let mut commands = pipe();
    for _ in 0..count {
        let name = random.u32(0..6);
        let (key, other) = (random.u32(0..20), random.u32(20..40));
        let rule = random.choice(RULES).expect("a rule");
        let line = match random.u32(0..20) {
            0..3 => format!("RL.POLICY SET p{name} {rule} {}/w,name=n{name}", random.u32(1..50)),
            3 => format!("RL.POLICY DEL p{name} FORCE"),
            4..10 => format!("RL.CHECK k{key} COST {} @p{name}", random.u32(0..4)),
            10..13 => format!("RL.CHECK k{key} META who @p{name} {rule}"),
            13 => format!("RL.CHECK k{key} @p{name} @p{}", random.u32(0..6)),
            14..16 => format!("RL.MCHECK 2 k{key} k{other} @p{name}"),
            16 => format!("RL.MCHECK 2 k{key} k{other} @p{name} NEXT {rule} @p{name}"),
            17 => format!("RL.REFUND k{key} 1 @p{name}"),
            18 => format!("RL.PEEK k{key} @p{name}"),
            _ => format!("RL.RESET k{key}"),
        };
        commands.add_command(command(&line));
    }
    commands.ignore_errors();
    commands
}

#[test]
fn replicas_equal_their_primary_while_policies_change() {
    server::on_all_with(quiet, |primary| {
        let middle = replica_of(primary);
        let last = replica_of(&middle);
        let mut p = primary.connect();
        let () = ask(&mut p, "DEBUG SET-ACTIVE-EXPIRE 0");
        let mut random = fastrand::Rng::with_seed(7);
        for round in 0..5 {
            let replies: Vec<Value> = random_commands(&mut random, 1_000).query(&mut p).unwrap();
            let failed = replies.iter().filter(|reply| matches!(reply, Value::ServerError(_)));
            assert!(failed.count() < 700, "most commands failed");
            for replica in [&middle, &last] {
                in_step(primary, replica);
                assert_eq!(digest(&mut replica.connect()), digest(&mut p), "round {round}");
                assert_eq!(known_by_replica(replica), known(&mut p), "round {round}");
            }
        }
        assert!(client::info(&mut p, "ratelimit", "ratelimit_allowed") > 300.0);
        assert!(client::info(&mut p, "ratelimit", "ratelimit_limited") > 100.0);
    });
}

/// Makes a server a replica of another, and waits until it has caught up.
fn follow(replica: &Server, primary: &Server) {
    let () = ask(&mut replica.connect(), &format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    in_step(primary, replica);
}

/// Sets whether the primary's child sends snapshots over a second connection, which Redis 8 and
/// Valkey 8 support.
fn with_channel(builder: Builder, yes_or_no: &str) -> Builder {
    match builder.flavor() {
        flavor if flavor.version < (8, 0) => builder,
        flavor if flavor.is_valkey() => {
            builder.config("dual-channel-replication-enabled", yes_or_no)
        }
        _ => builder.config("repl-rdb-channel", yes_or_no),
    }
}

#[test]
fn a_full_synchronization_replaces_all_policies() {
    const WAYS: [(&str, &str, &str); 4] = [
        ("no", "disabled", "no"),
        ("yes", "disabled", "no"),
        ("yes", "swapdb", "no"),
        ("yes", "swapdb", "yes"),
    ];
    for (diskless, load, channel) in WAYS {
        let configured = |builder: Builder| {
            with_channel(quiet(builder).config("repl-diskless-sync", diskless), channel)
        };
        server::on_all_with(configured, |primary| {
            let replica = configured(primary.flavor().builder())
                .module_args(&["policy", "configured=5/h", "policy", "free=5/h"])
                .config("repl-diskless-load", load)
                .start();
            set(&mut replica.connect(), &["own 5/h"]);
            // First from a primary without policies.
            follow(&replica, primary);
            assert_eq!(known_by_replica(&replica), policies(&[]), "{diskless} {load}");

            let (mut p, mut r) = (primary.connect(), replica.connect());
            let () = ask(&mut r, "REPLICAOF NO ONE");
            set(&mut r, &["own 5/h", "free 1/h"]);
            set(&mut p, &["free 7/h", "pro 9/h"]);
            let _: Value = ask(&mut p, "RL.CHECK k @free");
            // The replica's own writes force a full synchronization.
            follow(&replica, primary);
            assert_eq!(number(&mut p, "stats", "sync_full"), 2);
            let expected = policies(&["free log:7/1h", "pro log:9/1h"]);
            assert_eq!(known_by_replica(&replica), expected, "{diskless} {load}");
            assert_eq!(remaining(&mut r, "RL.PEEK k @free"), 6);
            // From then on, the replica follows changes.
            set(&mut p, &["free 8/h"]);
            in_step(primary, &replica);
            assert_eq!(remaining(&mut r, "RL.PEEK k @free"), 7);
        });
    }
}

/// Cuts the link to a replica while `meanwhile` runs.
fn while_cut_off(replica: &Server, primary: &Server, meanwhile: impl FnOnce(&mut Connection)) {
    let mut p = primary.connect();
    replica.while_frozen(|| {
        assert_eq!(ask::<i64>(&mut p, "CLIENT KILL TYPE replica"), 1);
        meanwhile(&mut p);
    });
}

#[test]
fn a_partial_synchronization_brings_missed_changes() {
    server::on_all_with(quiet, |primary| {
        let replica = replica_of(primary);
        set(&mut primary.connect(), &["free 5/h", "old 5/h", "same 5/h"]);
        in_step(primary, &replica);
        while_cut_off(&replica, primary, |p| {
            set(p, &["free 6/h", "new 7/h"]);
            let _: i64 = ask(p, "RL.POLICY DEL old FORCE");
            let _: Value = ask(p, "RL.CHECK k @free");
        });
        in_step(primary, &replica);
        let mut p = primary.connect();
        assert_eq!(
            (number(&mut p, "stats", "sync_full"), number(&mut p, "stats", "sync_partial_ok")),
            (1, 1)
        );
        assert_eq!(known_by_replica(&replica), known(&mut p));
        assert_eq!(remaining(&mut replica.connect(), "RL.PEEK k @free"), 5);
    });
}

/// Runs a test while a replica loads a snapshot slowly and still serves its old data. Its link
/// was cut until it needed a snapshot, and policies changed meanwhile.
fn on_all_loading_beside(channel: &str, body: impl Fn(&mut Server, &Server)) {
    let configured = |builder: Builder| with_channel(quiet(builder), channel);
    server::on_all_with(
        |builder| {
            configured(builder).config("repl-diskless-sync", "yes").config("rdbcompression", "no")
        },
        |primary| {
            let replica = configured(primary.flavor().builder())
                .config("repl-diskless-load", "swapdb")
                .replica_of(primary)
                .start();
            let mut p = primary.connect();
            set(&mut p, &["free 5/h", "old 5/h"]);
            let _: Value = ask(&mut p, "RL.CHECK k @free");
            in_step(primary, &replica);
            if replica.flavor().is_7_or_later() {
                // The replica loads each key slowly, and serves clients after each. 6.2 answers
                // no client while it loads.
                let mut r = replica.connect();
                let () = ask(&mut r, "CONFIG SET loading-process-events-interval-bytes 1024");
                let () = ask(&mut r, "CONFIG SET key-load-delay 50000");
            }
            let () = ask(&mut p, "CONFIG SET repl-backlog-size 16kb");
            let () = ask(&mut p, "CONFIG SET rdb-key-save-delay 10000");
            let logged = replica.log().len();
            while_cut_off(&replica, primary, |p| {
                set(p, &["free 9/h", "new 9/h"]);
                let _: i64 = ask(p, "RL.POLICY DEL old FORCE");
                for key in 0..150 {
                    let () = ask(p, &format!("SET filler{key} {}", "x".repeat(4_000)));
                }
            });
            eventually("the replica to load", || {
                replica.log()[logged..].contains("Loading DB in memory")
            });
            body(primary, &replica);
        },
    );
}

#[test]
fn policies_of_a_snapshot_take_effect_together_with_its_keys() {
    on_all_loading_beside("no", |primary, replica| {
        let mut r = replica.connect();
        if primary.flavor().is_7_or_later() {
            let info: String = ask(&mut r, "INFO persistence");
            assert!(info.contains("async_loading:1"), "{info}");
            assert_eq!(known(&mut r), policies(&["free log:5/1h", "old log:5/1h"]));
            assert_eq!(remaining(&mut r, "RL.PEEK k @free"), 4);
            let () = ask(&mut r, "CONFIG SET key-load-delay 0");
        }
        in_step(primary, replica);
        assert_eq!(known_by_replica(replica), policies(&["free log:9/1h", "new log:9/1h"]));
        assert_eq!(remaining(&mut r, "RL.PEEK k @free"), 8);
        assert_eq!(number(&mut primary.connect(), "stats", "sync_full"), 2);
    });
}

fn has_stopped_loading(replica: &Server) -> bool {
    let info: String = command("INFO").query(&mut replica.connect()).unwrap_or_default();
    ["\nloading:0", "master_link_status:down", "master_sync_in_progress:0"]
        .iter()
        .all(|field| info.contains(field))
        && !info.contains("async_loading:1")
}

#[test]
fn policies_of_a_failed_load_are_dropped() {
    on_all_loading_beside("no", |primary, replica| {
        primary.kill9();
        eventually("the load to fail", || has_stopped_loading(replica));
        let mut r = replica.connect();
        assert!(!exists(&mut r, "filler0"), "the load succeeded: {}", replica.log());
        assert_eq!(known_by_replica(replica), policies(&["free log:5/1h", "old log:5/1h"]));
        assert_eq!(remaining(&mut r, "RL.PEEK k @free"), 4);
        // The next synchronization succeeds.
        primary.resume();
        let mut p = primary.connect();
        set(&mut p, &["free 7/h"]);
        in_step(primary, replica);
        assert_eq!(known_by_replica(replica), policies(&["free log:7/1h"]));
    });
}

/// Over a second connection a load continues without the primary, and fails when the primary's
/// child dies.
#[test]
fn policies_of_a_load_whose_connection_broke_are_dropped() {
    on_all_loading_beside("yes", |primary, replica| {
        if primary.flavor().version < (8, 0) {
            return; // It has no second connection.
        }
        let mut r = replica.connect();
        lock_out(&mut r); // otherwise the replica would load again at once
        kill_child(primary);
        eventually("the load to fail", || has_stopped_loading(replica));
        assert!(!exists(&mut r, "filler0"), "the load succeeded: {}", replica.log());
        assert_eq!(known(&mut r), policies(&["free log:5/1h", "old log:5/1h"]));
        assert_eq!(remaining(&mut r, "RL.PEEK k @free"), 4);

        let () = ask(&mut r, "CONFIG SET key-load-delay 0");
        let_in(&mut r);
        in_step(primary, replica);
        assert_eq!(known_by_replica(replica), policies(&["free log:9/1h", "new log:9/1h"]));
        assert_eq!(remaining(&mut r, "RL.PEEK k @free"), 8);
    });
}

/// Kills the child that sends the snapshot.
fn kill_child(primary: &Server) {
    let log = primary.log();
    let (_, last) = log.rsplit_once("Background RDB transfer started by pid ").expect("a child");
    let pid = last.split([' ', '\n']).next().expect("a word").parse().expect("a number");
    let pid = Pid::from_raw(pid).expect("no process is 0");
    kill_process(pid, Signal::KILL).expect("the child runs");
}

#[test]
fn a_promoted_replica_has_the_policies_and_replicates_them() {
    server::on_all_with(quiet, |primary| {
        let middle = replica_of(primary);
        let last = replica_of(&middle);
        let mut p = primary.connect();
        set(&mut p, &["free 5/h", "old 5/h"]);
        let _: Value = ask(&mut p, "RL.CHECK k COST 2 @free");
        [&middle, &last].iter().for_each(|replica| in_step(primary, replica));
        primary.kill9();

        let mut m = middle.connect();
        let () = ask(&mut m, "REPLICAOF NO ONE");
        assert_eq!(remaining(&mut m, "RL.CHECK k @free"), 2);
        set(&mut m, &["free 9/h"]);
        let _: i64 = ask(&mut m, "RL.POLICY DEL old FORCE");
        assert_eq!(remaining(&mut m, "RL.CHECK k @free"), 5);
        in_step(&middle, &last);
        assert_eq!(known_by_replica(&last), policies(&["free log:9/1h"]));
        assert_eq!(digest(&mut last.connect()), digest(&mut m));
        // The old primary returns as a replica.
        primary.resume();
        set(&mut primary.connect(), &["mine 1/s"]);
        follow(primary, &middle);
        assert_eq!(known_by_replica(primary), policies(&["free log:9/1h"]));
    });
}

#[test]
fn a_replicas_aof_has_policies_and_its_rewrite_propagates_nothing() {
    for preamble in [true, false] {
        server::on_all_with(quiet, |primary| {
            let mut p = primary.connect();
            set(&mut p, &["free 5/h", "old 5/h"]);
            let mut middle = with_aof(quiet(primary.flavor().builder()), preamble)
                .config("appendfsync", "always")
                .replica_of(primary)
                .start();
            in_step(primary, &middle);
            let last = replica_of(&middle);
            let mut m = middle.connect();
            eventually_saved(&mut m); // the replica rewrites its AOF after the snapshot
            set(&mut p, &["free 6/h"]);
            let _: i64 = ask(&mut p, "RL.POLICY DEL old FORCE");
            in_step(primary, &middle);
            let sent = offset(&mut m);
            let () = ask(&mut m, "BGREWRITEAOF");
            eventually_saved(&mut m);
            assert_eq!(offset(&mut m), sent, "the rewrite was replicated");
            in_step(primary, &last);
            assert_eq!(known_by_replica(&last), policies(&["free log:6/1h"]));

            primary.kill9();
            middle.kill9();
            middle.resume();
            assert_eq!(known_by_replica(&middle), policies(&["free log:6/1h"]));
        });
    }
}

#[test]
fn policy_help_refuses_wrong_arguments_while_loading() {
    server::on_all(|primary| {
        if !primary.flavor().is_7_or_later() {
            return; // 6.2 has no subcommands, and refuses RL.POLICY while it loads.
        }
        let replica = primary.flavor().start();
        let (mut p, mut r) = (primary.connect(), replica.connect());
        for key in 0..150 {
            let () = ask(&mut p, &format!("SET filler{key} {}", "x".repeat(400)));
        }
        let () = ask(&mut r, "CONFIG SET loading-process-events-interval-bytes 1024");
        let () = ask(&mut r, "CONFIG SET key-load-delay 50000");
        let () = ask(&mut r, &format!("REPLICAOF 127.0.0.1 {}", primary.port()));
        eventually("the replica to load", || {
            ask::<String>(&mut r, "INFO persistence").contains("\nloading:1")
        });
        let error = refusal(&mut r, "RL.POLICY HELP me");
        assert!(error.contains("wrong number of arguments"), "{error}");
        assert!(
            ask::<String>(&mut r, "INFO persistence").contains("\nloading:1"),
            "loading ended too early"
        );
        let () = ask(&mut r, "CONFIG SET key-load-delay 0");
        in_step(primary, &replica);
    });
}
