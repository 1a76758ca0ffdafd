//! Replicas and their clients: reads give the same answers as on the primary, writes are
//! refused, and a promoted replica continues.

use redis::{Connection, RedisResult, Value, cmd, from_redis_value, pipe};

use crate::support::client::{ask, command, digest, exists, info_text, now_us, refusal};
use crate::support::server::{self, Server, eventually};
use crate::support::workload::{
    Workload,
    link::{assert_alike, in_step, number, offset, quiet, replica_of},
};

type Reply = [i64; 5];

/// Lets clients write to a replica.
fn let_write(replica: &Server) {
    let () = ask(&mut replica.connect(), "CONFIG SET replica-read-only no");
}

#[test]
fn a_promoted_replica_continues_where_its_primary_stopped() {
    server::on_all_with(quiet, |primary| {
        let replica = replica_of(primary);
        let (mut p, mut r) = (primary.connect(), replica.connect());
        let mut workload = Workload::lasting(5);
        workload.run(5_000, &mut p);
        let () = ask(&mut p, "SELECT 0");
        let rule = "log:100/h";
        assert_eq!(ask::<Reply>(&mut p, &format!("RL.CHECK user COST 60 {rule}"))[2], 40);
        in_step(primary, &replica);
        let at_us = now_us(&mut p) + 1_000_000;
        let before = workload.peek(at_us, &mut p);
        primary.kill9();

        let () = ask(&mut r, "REPLICAOF NO ONE");
        assert_eq!(workload.peek(at_us, &mut r), before);
        let () = ask(&mut r, "SELECT 0");
        let allowed = |_: &u32| ask::<Reply>(&mut r, &format!("RL.CHECK user {rule}"))[0] == 0;
        assert_eq!((0..60).filter(allowed).count(), 40);
    });
}

#[test]
fn peeks_on_a_replica_equal_those_on_its_primary() {
    server::on_all_with(quiet, |primary| {
        let replica = replica_of(primary);
        let (mut p, mut r) = (primary.connect(), replica.connect());
        let mut workload = Workload::lasting(6);
        workload.run(5_000, &mut p);
        in_step(primary, &replica);
        let at_us = now_us(&mut p);
        let (before, sent) = (digest(&mut r), offset(&mut r));
        assert_eq!(workload.peek(at_us, &mut r), workload.peek(at_us, &mut p));
        assert_eq!(digest(&mut r), before);
        assert_eq!(offset(&mut r), sent, "a peek was replicated");
        assert_eq!(ask::<Vec<String>>(&mut r, "RL.EXPLAIN 5/h").len(), 1);
    });
}

#[test]
fn a_replica_refuses_checks_refunds_and_resets() {
    server::on_all_with(quiet, |primary| {
        let replica = replica_of(primary);
        let _: Reply = ask(&mut primary.connect(), "RL.CHECK k 5/h");
        in_step(primary, &replica);
        let mut r = replica.connect();
        let before = digest(&mut r);
        for line in ["RL.CHECK k 5/h", "RL.REFUND k 1", "RL.RESET k"] {
            let error = refusal(&mut r, line);
            assert!(error.contains("read only replica"), "{line}: {error}");
            let () = ask(&mut r, "MULTI");
            let error = refusal(&mut r, line);
            assert!(error.contains("read only replica"), "{line}: {error}");
            let _ = refusal(&mut r, "EXEC");
            let error = in_script(&mut r, line).expect_err(line).to_string();
            assert!(error.contains("read only replica"), "{line}: {error}");
        }
        assert_eq!(digest(&mut r), before);
    });
}

/// A command called by a script. The key is its first argument.
fn in_script(c: &mut Connection, line: &str) -> RedisResult<Value> {
    let words: Vec<&str> = line.split(' ').collect();
    let mut script = cmd("EVAL");
    script.arg("return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))").arg(1);
    script.arg(words[1]).arg(words[0]).arg(&words[2..]).query(c)
}

#[test]
fn checks_on_a_writable_replica_stay_there() {
    server::on_all_with(quiet, |primary| {
        let replica = replica_of(primary);
        let_write(&replica);
        let (mut p, mut r) = (primary.connect(), replica.connect());
        let _: Reply = ask(&mut p, "RL.CHECK k 5/h");
        in_step(primary, &replica);
        let before = digest(&mut p);
        let left = |c: &mut Connection, line: &str| ask::<Reply>(c, line)[2];
        assert_eq!(left(&mut r, "RL.CHECK k 5/h"), 3);
        assert_eq!(left(&mut r, "RL.CHECK own bucket:5/h"), 4);
        assert_eq!(left(&mut r, "RL.PEEK own bucket:5/h"), 4);
        assert_eq!(digest(&mut p), before);
        // The replica adds the primary's consumption to its own.
        assert_eq!(left(&mut p, "RL.CHECK k COST 2 5/h"), 2);
        in_step(primary, &replica);
        assert_eq!(left(&mut r, "RL.PEEK k 5/h"), 1);
    });
}

/// Commands that only a primary may send to its replica.
const INTERNAL: [&str; 3] = [
    "RL.APPLY k v1:1700000000000000:0:admit:1 5/h",
    "RL.APPLY k v1:1700000000000000:-1:refund:1",
    "RL.LOAD k x",
];

/// Tries every way in which a client could send [`INTERNAL`].
fn assert_refuses_internal_commands(c: &mut Connection) {
    let before = digest(c);
    let is_refusal = |error: String| assert!(error.contains("is internal"), "{error}");
    for line in INTERNAL {
        is_refusal(refusal(c, line));
        is_refusal(in_script(c, line).expect_err(line).to_string());
        let mut transaction = pipe();
        transaction.add_command(command("MULTI")).add_command(command(line));
        transaction.add_command(command("EXEC")).ignore_errors();
        let [_, _, executed]: [Value; 3] = transaction.query(c).expect("replies");
        let [reply]: [RedisResult<Value>; 1] = from_redis_value(executed).expect("one reply");
        is_refusal(reply.expect_err(line).to_string());
    }
    assert_eq!(digest(c), before);
}

#[test]
fn internal_commands_are_refused_on_primaries_and_replicas() {
    server::on_all_with(quiet, |primary| {
        let replica = replica_of(primary);
        let _: Reply = ask(&mut primary.connect(), "RL.CHECK k 5/h");
        in_step(primary, &replica);
        assert_refuses_internal_commands(&mut primary.connect());
        for line in INTERNAL {
            let error = refusal(&mut replica.connect(), line);
            assert!(error.contains("read only replica"), "{error}");
        }
        let_write(&replica);
        assert_refuses_internal_commands(&mut replica.connect());
    });
}

/// Makes a replica load a new snapshot slowly while it serves its old data: cuts its link until
/// the primary's backlog no longer covers what it missed.
fn begin_slow_reload(replica: &Server, primary: &Server) {
    let (mut p, mut r) = (primary.connect(), replica.connect());
    let () = ask(&mut p, "CONFIG SET repl-backlog-size 16kb");
    let () = ask(&mut r, "CONFIG SET key-load-delay 2000");
    let () = ask(&mut r, "CONFIG SET loading-process-events-interval-bytes 1024");
    let mut checks = pipe();
    for n in 0..3_000 {
        checks.cmd("RL.CHECK").arg(format!("new{n}")).arg(&["5/h", "bucket:5/h"]).ignore();
    }
    replica.while_frozen(|| {
        assert_eq!(ask::<i64>(&mut p, "CLIENT KILL TYPE replica"), 1);
        let () = checks.query(&mut p).expect("replies");
    });
}

#[test]
fn a_replica_answers_from_the_old_data_during_a_background_load() {
    server::on_all_with(quiet, |primary| {
        if !primary.flavor().is_7_or_later() {
            return; // 6.2 answers no client while it loads.
        }
        let swapping = |b| quiet(b).replica_of(primary).config("repl-diskless-load", "swapdb");
        let replica = swapping(primary.flavor().builder()).start();
        let (mut p, mut r) = (primary.connect(), replica.connect());
        let _: Reply = ask(&mut p, "RL.CHECK k 5/h");
        in_step(primary, &replica);
        let_write(&replica);
        begin_slow_reload(&replica, primary);
        let _: Reply = ask(&mut p, "RL.CHECK k 5/h");

        eventually("loading in the background", || {
            info_text(&mut r, "persistence", "async_loading") == "1"
        });
        assert_eq!(ask::<Reply>(&mut r, "RL.PEEK k 5/h")[2], 4);
        assert!(!exists(&mut r, "new0"));
        assert_refuses_internal_commands(&mut r);
        assert_eq!(
            info_text(&mut r, "persistence", "async_loading"),
            "1",
            "loading ended too early"
        );

        let () = ask(&mut r, "CONFIG SET key-load-delay 0");
        assert_alike(primary, &[&replica], "after loading");
        assert_eq!(ask::<Reply>(&mut r, "RL.PEEK k 5/h")[2], 3);
        assert_eq!(number(&mut p, "stats", "sync_full"), 2);
    });
}

/// The digest of a value, expired or not; `None` without a value.
fn value(c: &mut Connection, key: &str) -> Option<String> {
    let [digest]: [String; 1] = ask(c, &format!("DEBUG DIGEST-VALUE {key}"));
    digest.contains(|digit| digit != '0').then_some(digest)
}

#[test]
fn a_key_that_expires_on_a_primary_is_deleted_on_its_replica() {
    server::on_all_with(quiet, |primary| {
        let replica = replica_of(primary);
        let (mut p, mut r) = (primary.connect(), replica.connect());
        let () = ask(&mut p, "DEBUG SET-ACTIVE-EXPIRE 0");
        let _: Reply = ask(&mut p, "RL.CHECK k 5/20ms");
        in_step(primary, &replica);
        assert!(value(&mut r, "k").is_some());
        // No client uses the key: the primary itself finds that it has expired.
        let () = ask(&mut p, "DEBUG SET-ACTIVE-EXPIRE 1");
        eventually("the value to be gone", || value(&mut r, "k").is_none());
        assert_alike(primary, &[&replica], "after the key expired");
    });
}

#[test]
fn an_expired_key_does_not_count_on_a_replica() {
    server::on_all_with(quiet, |primary| {
        let replica = replica_of(primary);
        let (mut p, mut r) = (primary.connect(), replica.connect());
        // The primary deletes the expired key only when a command uses it.
        let () = ask(&mut p, "DEBUG SET-ACTIVE-EXPIRE 0");
        let check = "RL.CHECK k COST 2 5/h bucket:5/h,name=x";
        let peek = "RL.PEEK k 5/h bucket:5/h,name=x";
        assert_eq!(ask::<Reply>(&mut p, check)[2], 3);
        in_step(primary, &replica);
        assert_eq!(ask::<Reply>(&mut r, peek)[2], 3);
        let _: i64 = ask(&mut p, "PEXPIRE k 30");
        in_step(primary, &replica);
        eventually("the key to expire on the replica", || ask::<Reply>(&mut r, peek)[2] == 5);
        assert!(
            value(&mut r, "k").is_some(),
            "a replica deleted a key that its primary has not deleted"
        );

        // A check then makes a new key on both.
        assert_eq!(ask::<Reply>(&mut p, check)[2], 3);
        in_step(primary, &replica);
        assert_eq!(ask::<Reply>(&mut r, peek)[2], 3);
        assert_alike(primary, &[&replica], "after a check of an expired key");
    });
}
