//! Holds on replicas: after a full synchronization, lapsed without a write, settled
//! on a promoted replica, and moved between the nodes of a cluster.

use std::collections::HashSet;

use redis::{Connection, Value};

use crate::support::client::{START_US, allowed, ask, calls, command, digest, now_us, remaining};
use crate::support::holds::{COUNT, assert_settles, keys, settled_at_once, take, taken};
use crate::support::server::{
    Builder, Server,
    cluster::{self, Cluster, Node},
    eventually, {self as server},
};
use crate::support::workload::link::{assert_alike, in_step, number, offset, quiet, replica_of};

const PREFIX: &str = "{k}";

fn promote(replica: &Server) -> Connection {
    let mut r = replica.connect();
    let () = ask(&mut r, "REPLICAOF NO ONE");
    r
}

#[test]
fn holds_settle_alike_after_a_full_synchronization() {
    server::on_all_with(quiet, |primary| {
        let mut c = primary.connect();
        let expected = settled_at_once(&mut c);
        let mut lines = taken(PREFIX);
        for line in lines.by_ref().take(COUNT / 2) {
            let _: Value = ask(&mut c, &line);
        }
        // Half of the holds come with the snapshot, half with the stream.
        let replicas = [replica_of(primary), replica_of(primary)];
        for line in lines {
            let _: Value = ask(&mut c, &line);
        }
        assert_alike(primary, &[&replicas[0], &replicas[1]], "while holds live");
        in_step(primary, &replicas[0]);
        assert_settles(&mut promote(&replicas[0]), PREFIX, &expected, "promoted");
        assert_settles(&mut c, PREFIX, &expected, "on the primary");
        assert_alike(primary, &[&replicas[1]], "after the holds were settled");
    });
}

#[test]
fn a_hold_lapses_on_a_replica_without_a_write() {
    server::on_all_with(quiet, |primary| {
        let replica = replica_of(primary);
        let (mut p, mut r) = (primary.connect(), replica.connect());
        let at = |seconds: u64| format!("AT {}", START_US + seconds * 1_000_000);
        let rules = "slots:5 fixed:9/h bucket:9/h";
        let hold = format!("RL.CHECK k {} HOLD h EX 30 REFUND COST 4 {rules}", at(0));
        let _: Value = ask(&mut p, &hold);
        in_step(primary, &replica);
        let before = (offset(&mut p), calls(&mut r, "rl.apply"), digest(&mut r));
        for rule in rules.split(' ') {
            let full = if rule.starts_with("slots") { 5 } else { 9 };
            for (second, left) in [(29, full - 4), (30, full), (29, full - 4), (31, full)] {
                let peek = format!("RL.PEEK k {} {rule}", at(second));
                assert_eq!(remaining(&mut r, &peek), left, "{peek}");
                assert_eq!(remaining(&mut p, &peek), left, "{peek}");
            }
        }
        let after = (offset(&mut p), calls(&mut r, "rl.apply"), digest(&mut r));
        assert_eq!(after, before, "a read was propagated");
        assert_eq!(digest(&mut p), digest(&mut r));

        // After its promotion, a check on the replica stores the lapse as its primary would.
        let check = format!("RL.CHECK k {} COST 6 fixed:9/h", at(40));
        let mut r = promote(&replica);
        for c in [&mut p, &mut r] {
            assert_eq!(remaining(c, &check), 3);
            assert!(!ask::<bool>(c, &format!("RL.SETTLE k h REFUND {}", at(40))));
        }
        assert_eq!(digest(&mut p), digest(&mut r));
    });
}

/// Evicting a key also removes its holds, so its slots are free, also on replicas.
#[test]
fn slots_of_evicted_keys_are_free() {
    server::oldest_and_newest();
    const KEYS: usize = 3_000;
    let held = "COST 2 slots:2,cost=1 100/h window:100/h,res=60 bucket:100/h";
    // A backlog takes memory that eviction cannot free.
    let quiet = |builder: Builder| quiet(builder).config("repl-backlog-size", "16kb");
    server::on_all_with(quiet, |primary| {
        let replica = replica_of(primary);
        let mut c = primary.connect();
        for policy in ["allkeys-lru", "allkeys-random"] {
            for line in ["CONFIG SET maxmemory 0", "FLUSHALL SYNC"] {
                let () = ask(&mut c, line);
            }
            let () = ask(&mut c, &format!("CONFIG SET maxmemory-policy {policy}"));
            let evicted = number(&mut c, "stats", "evicted_keys");
            let room = number(&mut c, "memory", "used_memory") + 1_000_000;
            let () = ask(&mut c, &format!("CONFIG SET maxmemory {room}"));
            let names: Vec<String> = (0..KEYS).map(|n| format!("k{n}")).collect();
            for names in names.chunks(10) {
                let mut checks = redis::pipe();
                for name in names {
                    for id in ["a", "b"] {
                        let check = format!("RL.CHECK {name} HOLD {id} EX 3600 REFUND {held}");
                        checks.add_command(command(&check));
                    }
                }
                // A key may be evicted between its two checks.
                let replies: Vec<[i64; 5]> = checks.query(&mut c).expect("replies");
                assert!(replies.iter().all(|&[verdict, limit, ..]| [verdict, limit] == [0, 2]));
            }
            // From now on nothing is evicted.
            let () = ask(&mut c, "CONFIG SET maxmemory 0");
            let gone = number(&mut c, "stats", "evicted_keys") - evicted;
            assert!(gone > 0, "{policy}: {KEYS} keys fit");
            assert_alike(primary, &[&replica], policy);
            let mut r = replica.connect();
            let left: HashSet<String> = ask(&mut c, "KEYS *");
            assert_eq!(ask::<HashSet<String>>(&mut r, "KEYS *"), left, "{policy}");
            // A key that was evicted between its checks exists again.
            assert!((KEYS - gone as usize..KEYS).contains(&left.len()), "{policy}");
            let (kept, gone): (Vec<&String>, Vec<&String>) =
                names.iter().partition(|name| left.contains(*name));
            for name in gone.iter().take(50) {
                assert_eq!(remaining(&mut r, &format!("RL.PEEK {name} slots:2")), 2, "{policy}");
                assert!(!ask::<bool>(&mut c, &format!("RL.SETTLE {name} a")), "{policy}");
                assert!(allowed(&mut c, &format!("RL.CHECK {name} HOLD c EX 60 {held}")));
            }
            // Whether the key was evicted between its checks, so that it has only the second hold.
            let torn = |c: &mut Connection, name: &str| {
                remaining(c, &format!("RL.PEEK {name} slots:2")) == 1
            };
            for name in kept.iter().take(50) {
                let free = torn(&mut c, name);
                assert_eq!(torn(&mut r, name), free, "{policy}");
                let check = format!("RL.CHECK {name} HOLD c EX 60 {held}");
                assert_eq!(allowed(&mut c, &check), free, "{policy}");
            }
            assert_alike(primary, &[&replica], policy);
        }
    });
}

#[test]
fn holds_settle_alike_after_slots_and_masters_changed() {
    server::oldest_and_newest();
    cluster::on_all_with(Builder::allow_at, |cluster| {
        let mut nodes = cluster.masters();
        let expected = settled_at_once(&mut cluster.connect(&owner(cluster, "{at-once}")));

        let held = owner(cluster, PREFIX);
        take(&mut cluster.connect(&held), PREFIX);
        nodes.retain(|node| node.id != held.id);
        migrate(cluster, &held, &nodes[0]);

        let held = owner(cluster, PREFIX);
        assert_eq!(held.id, nodes[0].id, "the slot did not move");
        let replica = cluster.replica_of(&held);
        cluster.fail_over_to(&replica);
        cluster.settled();
        atomic_migration(cluster, &replica, &nodes[1]);

        assert_settles(&mut cluster.connect(&owner(cluster, PREFIX)), PREFIX, &expected, "moved");
        cluster.replicas_agree();
    });
}

/// The master of the keys with a hash tag.
fn owner(cluster: &Cluster, tag: &str) -> Node {
    let masters = cluster.masters();
    let slot = slot(&mut cluster.connect(&masters[0]), tag);
    masters.into_iter().find(|node| node.slots.contains(&slot)).expect("a master")
}

fn slot(c: &mut Connection, tag: &str) -> u16 {
    ask(c, &format!("CLUSTER KEYSLOT {tag}"))
}

/// Moves the slot of the keys with `MIGRATE`.
fn migrate(cluster: &Cluster, from: &Node, to: &Node) {
    let [mut source, mut target] = [from, to].map(|node| cluster.connect(node));
    let slot = slot(&mut source, PREFIX);
    let () = ask(&mut target, &format!("CLUSTER SETSLOT {slot} IMPORTING {}", from.id));
    let () = ask(&mut source, &format!("CLUSTER SETSLOT {slot} MIGRATING {}", to.id));
    let (address, keys) = (cluster.address(to), keys(PREFIX).join(" "));
    let (host, port) = address.split_once(':').expect("host and port");
    let mut migrate = command(&format!("MIGRATE {host} {port}"));
    migrate.arg("").arg(0).arg(5_000).arg("KEYS").arg(keys.split(' ').collect::<Vec<_>>());
    let () = migrate.query(&mut source).expect("OK");
    for c in [&mut target, &mut source] {
        let () = ask(c, &format!("CLUSTER SETSLOT {slot} NODE {}", to.id));
    }
    cluster.settled();
}

/// Moves the slot of the keys as a stream of commands, on Valkey since 9.0.
fn atomic_migration(cluster: &Cluster, from: &Node, to: &Node) {
    if !cluster.flavor().migrates_slots() {
        return;
    }
    let mut c = cluster.connect(from);
    let slot = slot(&mut c, PREFIX);
    let () = ask(&mut c, &format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {}", to.id));
    eventually("the slot to move", || cluster.owns(to, &[slot]));
    cluster.settled();
}

#[test]
fn holds_lapse_at_the_same_time_on_a_joining_replica() {
    server::oldest_and_newest();
    server::on_all_with(quiet, |primary| {
        let mut p = primary.connect();
        let rules = "slots:900 fixed:900/h bucket:900/h";
        // By the server's clock: some lapse before the replica joins, some meanwhile, some
        // later.
        for n in 0..60 {
            let refund = if n % 2 == 0 { " REFUND" } else { "" };
            let ms = 1 + n * n;
            let _: Value =
                ask(&mut p, &format!("RL.CHECK k HOLD {n} PX {ms}{refund} COST 9 {rules}"));
        }
        let replica = replica_of(primary);
        let end_us = now_us(&mut p) + 3_600_000;
        while now_us(&mut p) < end_us {
            let _: Value = ask(&mut p, "RL.CHECK k COST 1 fixed:900/h");
            assert_alike(primary, &[&replica], "while holds lapse");
        }
        assert_eq!(remaining(&mut replica.connect(), "RL.PEEK k slots:900"), 900);
        assert_eq!(remaining(&mut p, "RL.PEEK k slots:900"), 900);
    });
}
