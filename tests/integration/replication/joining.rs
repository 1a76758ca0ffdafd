//! Replicas that join a busy server, and append-only files that are switched on, while the
//! module propagates nothing. They must get every effect after their snapshot.

use std::thread;

use redis::{Connection, Value, pipe};

use crate::support::client::{
    ask, calls, command, digest, info, is_saving, replica_of, replicated,
};
use crate::support::files::crash;
use crate::support::server::{self, Server, eventually};
use crate::support::traffic::Flag;

const RULES: [&str; 3] = ["log:1000/d", "bucket:1000000/d", "fixed:1000000/d,count=all"];

/// Sends a batch of checks.
fn checks(c: &mut Connection, rng: &mut fastrand::Rng) {
    let mut batch = pipe();
    for _ in 0..50 {
        let rule = rng.usize(..RULES.len());
        let key = format!("{rule}:{}", rng.u32(..20));
        batch.cmd("RL.CHECK").arg(key).arg(RULES[rule]);
    }
    let _: Vec<Value> = batch.query(c).unwrap();
}

/// Runs `body` while clients keep the server busy.
fn under_load<T>(server: &Server, body: impl FnOnce() -> T) -> T {
    let ended = Flag::default();
    thread::scope(|scope| {
        for seed in 0..2 {
            let (mut c, ended) = (server.connect(), &ended);
            let mut rng = fastrand::Rng::with_seed(seed);
            scope.spawn(move || {
                while !ended.is_up() {
                    checks(&mut c, &mut rng);
                }
            });
        }
        let _ended_at_the_end = ended.raise_on_drop();
        body()
    })
}

fn begin_to_save(c: &mut Connection) {
    let begin = |c: &mut Connection| command("BGSAVE").query::<Value>(c).is_ok();
    eventually("no other child", || begin(c));
}

/// Saves in a child process, and waits for its end.
fn save_in_background(c: &mut Connection) {
    begin_to_save(c);
    eventually("the child to end", || !is_saving(c));
}

/// Waits until the server has nobody to propagate to, and the module has noticed.
fn eventually_without_replicas(server: &Server) {
    let mut c = server.connect();
    let backlog = |c: &mut Connection| info(c, "replication", "repl_backlog_active");
    eventually("the backlog to be freed", || backlog(&mut c) == 0.0);
    save_in_background(&mut c);
}

#[test]
fn a_replica_that_joins_a_busy_server_misses_nothing() {
    server::oldest_and_newest();
    for diskless in ["yes", "no"] {
        server::on_all_with(
            |builder| {
                builder.config("repl-diskless-sync", diskless).config("repl-backlog-ttl", "1")
            },
            |primary| {
                let (mut c, mut rng) = (primary.connect(), fastrand::Rng::with_seed(2));
                for round in 0..3 {
                    eventually_without_replicas(primary);
                    let replica = under_load(primary, || {
                        if round == 1 {
                            // The replica cannot use the file of this child.
                            begin_to_save(&mut c);
                        }
                        let replica = replica_of(primary);
                        (0..3).for_each(|_| checks(&mut c, &mut rng));
                        if round == 2 {
                            // A child ends while there is a replica.
                            save_in_background(&mut c);
                        }
                        replica
                    });
                    let _: Value = ask(&mut c, "RL.CHECK last 5/d");
                    replicated(&mut c);
                    let theirs = digest(&mut replica.connect());
                    assert_eq!(theirs, digest(&mut c), "round {round}");
                }
            },
        );
    }
}

#[test]
fn a_replica_misses_nothing_after_a_restart_of_its_primary() {
    server::on_all_with(
        |builder| builder.config("repl-ping-replica-period", "3600"),
        |primary| {
            let replica = replica_of(primary);
            let (mut c, mut r) = (primary.connect(), replica.connect());
            let _: Value = ask(&mut c, "RL.CHECK k 5/d");
            replicated(&mut c);
            primary.restart();

            let mut c = primary.connect();
            eventually("the replica to be back", || {
                info(&mut c, "replication", "connected_slaves") == 1.0
                    && ask::<Vec<Value>>(&mut r, "ROLE")[3]
                        == Value::BulkString(b"connected".into())
            });
            if primary.flavor().is_7_or_later() {
                // 6.2 loses its backlog, so it sends a snapshot.
                assert_eq!(
                    info(&mut c, "stats", "sync_partial_ok"),
                    1.0,
                    "the replica got a snapshot"
                );
            }
            let before = calls(&mut r, "rl.check");
            for line in
                ["RL.CHECK k 5/d", "RL.MCHECK 2 a b bucket:5/d,ban=1h", "RL.CHECK c 0/d,ban=1h"]
            {
                let _: Value = ask(&mut c, line);
            }
            replicated(&mut c);
            assert_eq!(digest(&mut r), digest(&mut c));
            assert_eq!(calls(&mut r, "rl.check"), before, "a replica decides nothing");
        },
    );
}

#[test]
fn an_append_only_file_switched_on_under_load_misses_nothing() {
    server::oldest_and_newest();
    for preamble in ["yes", "no"] {
        server::on_all_with(
            |builder| {
                builder
                    .config("aof-use-rdb-preamble", preamble)
                    .config("appendfsync", "always")
                    .config("appendonly", "no")
            },
            |server| {
                let mut c = server.connect();
                eventually_without_replicas(server);
                under_load(server, || {
                    let () = ask(&mut c, "CONFIG SET appendonly yes");
                    eventually("the file to be written", || !is_saving(&mut c));
                });
                let () = ask(&mut c, "CONFIG REWRITE");
                let before = digest(&mut c);
                crash(server);
                assert_eq!(digest(&mut server.connect()), before);
            },
        );
    }
}

#[test]
fn changes_that_are_not_propagated_count_toward_save_points() {
    server::on_all(|server| {
        let mut c = server.connect();
        let changes = |c: &mut Connection| info(c, "persistence", "rdb_changes_since_last_save");
        eventually_without_replicas(server);
        assert_eq!(changes(&mut c), 0.0);
        for line in ["RL.CHECK k 2/d", "RL.CHECK k 2/d", "RL.CHECK k 2/d", "RL.PEEK k 2/d"] {
            let _: Value = ask(&mut c, line);
        }
        assert_eq!(changes(&mut c), 2.0, "the third was denied");
        let _: Value = ask(&mut c, "RL.BLOCK k");
        assert_eq!(changes(&mut c), 3.0);
    });
}
