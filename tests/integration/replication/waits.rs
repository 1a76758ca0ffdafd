//! Waiting clients on servers with replicas, with an AOF, and with slots that move.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use redis::{Connection, Value, cmd, pipe};

use crate::support::client::{
    ask, attempt, calls, digest, raw_reply, refusal, replicated, verdict,
};
use crate::support::files::{restart_from_aof, with_synced_aof};
use crate::support::server::{
    self,
    cluster::{self, Cluster, Node},
    eventually,
};
use crate::support::waiters::{WaitingClient, wait_in_line, waiting};
use crate::support::workload::link::{assert_alike, quiet, replica_of};

const KEYS: usize = 5;
const WAITERS: usize = 6;

#[test]
fn each_admission_reaches_the_replica_and_the_aof_once() {
    server::on_all_with(
        |builder| with_synced_aof(quiet(builder)),
        |primary| {
            let replica = replica_of(primary);
            let (mut c, mut r) = (primary.connect(), replica.connect());
            let before = calls(&mut r, "rl.apply");
            let rules = "slots:2 99/366d,count=all fixed:9/366d,name=f,align=first,count=all";
            let mut waiters = Vec::new();
            for key in 0..KEYS {
                for id in ["a", "b"] {
                    let line = format!("RL.CHECK k{key} HOLD {id} EX 9000 {rules}");
                    assert_eq!(verdict(&mut c, &line), 0);
                }
                for n in 0..WAITERS {
                    let line =
                        format!("RL.WAIT k{key} 3600000 META m{n} HOLD w{n} EX 9000 {rules}");
                    waiters.push(wait_in_line(primary, &line));
                }
            }
            // On each key two clients are admitted, two are unblocked with the reply that they would get
            // at their deadlines, and two go on waiting.
            for key in 0..KEYS {
                for id in ["a", "b"] {
                    assert_eq!(ask::<i64>(&mut c, &format!("RL.SETTLE k{key} {id}")), 1);
                }
            }
            for (n, waiter) in waiters.into_iter().enumerate() {
                match n % WAITERS {
                    0 | 1 => assert_eq!(waiter.verdict(), 0),
                    2 | 3 => {
                        let line = format!("CLIENT UNBLOCK {}", waiter.id);
                        assert_eq!(ask::<i64>(&mut c, &line), 1);
                        assert_eq!(waiter.verdict(), 1);
                    }
                    _ => assert!(waiter.waits()),
                }
            }
            replicated(&mut c);
            let effects = calls(&mut r, "rl.apply") - before;
            assert_eq!(effects, (KEYS * (2 + 2 + 2 + 2)) as u64, "one for each change");
            assert_alike(primary, &[&replica], "after waits");
            let expected = digest(&mut c);
            drop((replica, c));
            restart_from_aof(primary);
            assert_eq!(digest(&mut primary.connect()), expected, "from the AOF");
        },
    );
}

#[test]
fn a_master_that_becomes_a_replica_unblocks_waiting_clients() {
    server::oldest_and_newest();
    cluster::on_all(|cluster| {
        let master = cluster.masters()[0].clone();
        let mut c = cluster.connect(&master);
        let key = &cluster.keys_in(&master.slots, 1)[0];
        assert_eq!(verdict(&mut c, &format!("RL.CHECK {key} HOLD held EX 3000 slots:1")), 0);
        let line = format!("RL.WAIT {key} 3600000 HOLD next EX 3000 slots:1");
        let waiters = [0; 2].map(|_| wait_in_line(cluster.server(&master), &line));
        cluster.fail_over_to(&cluster.replica_of(&master));
        for waiter in waiters {
            let error = waiter.refusal();
            assert!(["UNBLOCKED", "Moved"].iter().any(|code| error.contains(code)), "{error}");
        }
    });
}

#[test]
fn a_migrated_key_admits_no_client_at_its_source() {
    server::oldest_and_newest();
    cluster::on_all(|cluster| {
        let masters = cluster.masters();
        let (here, there) = (&masters[0], &masters[1]);
        let [mut source, mut target] = [here, there].map(|node| cluster.connect(node));
        let key = &cluster.keys_in(&here.slots, 1)[0];
        let slot: u16 = ask(&mut source, &format!("CLUSTER KEYSLOT {key}"));
        let rules = "slots:1 9/h";
        let line = format!("RL.CHECK {key} HOLD held EX 3000 {rules}");
        assert_eq!(verdict(&mut source, &line), 0);
        let wait = |id: &str| {
            let line = format!("RL.WAIT {key} 3600000 HOLD {id} EX 3000 {rules}");
            wait_in_line(cluster.server(here), &line)
        };
        let (first, second, third) = (wait("first"), wait("second"), wait("third"));

        let () = ask(&mut target, &format!("CLUSTER SETSLOT {slot} IMPORTING {}", here.id));
        let () = ask(&mut source, &format!("CLUSTER SETSLOT {slot} MIGRATING {}", there.id));
        assert_eq!(ask::<i64>(&mut source, &format!("RL.SETTLE {key} held")), 1);
        assert_eq!(first.verdict(), 0, "the key has not moved");
        let address = cluster.address(there);
        let (host, port) = address.split_once(':').unwrap();
        let () = ask(&mut source, &format!("MIGRATE {host} {port} {key} 0 5000"));
        for waiter in [second, third] {
            let error = waiter.refusal();
            assert!(error.contains("UNBLOCKED"), "{error}");
        }
        assert_eq!(waiting(&mut source), 0);
        for c in [&mut target, &mut source] {
            let () = ask(c, &format!("CLUSTER SETSLOT {slot} NODE {}", there.id));
        }
        assert_eq!(ask::<[i64; 5]>(&mut target, &format!("RL.PEEK {key} 9/h"))[2], 7);
        for (id, held) in [("first", 1), ("second", 0), ("third", 0)] {
            assert_eq!(ask::<i64>(&mut target, &format!("RL.SETTLE {key} {id}")), held, "{id}");
        }
        assert!(refusal(&mut source, &format!("RL.WAIT {key} 5 {rules}")).contains("Moved"));
        cluster.settled();
        whole_slot_moves(cluster);
    });
}

#[test]
fn clients_whose_slot_is_no_longer_served_get_an_error() {
    server::oldest_and_newest();
    cluster::on_all(|cluster| {
        let master = cluster.masters()[0].clone();
        let mut c = cluster.connect(&master);
        let keys = master.slots[..3].iter().map(|&slot| cluster.keys_in(&[slot], 1).remove(0));
        let keys: Vec<_> = keys.collect();
        let rules = "slots:1 9/h,count=all";
        let [lost, kept] = [&keys[0], &keys[1]].map(|key| {
            let held = format!("RL.CHECK {key} HOLD held EX 3000 {rules}");
            assert_eq!(verdict(&mut c, &held), 0);
            let line = format!("RL.WAIT {key} 3600000 HOLD next EX 3000 {rules}");
            [0; 20].map(|_| wait_in_line(cluster.server(&master), &line))
        });

        let () = ask(&mut c, &format!("CLUSTER DELSLOTS {}", master.slots[0]));
        for waiter in lost {
            let error = waiter.refusal();
            assert!(error.contains("no longer serves"), "{error}");
        }
        assert!(kept.iter().all(WaitingClient::waits), "their slot is served");

        // The loss of any slot takes the cluster down now.
        let () = ask(&mut c, "CONFIG SET cluster-require-full-coverage yes");
        let () = ask(&mut c, &format!("CLUSTER DELSLOTS {}", master.slots[2]));
        for waiter in kept {
            let error = waiter.refusal();
            assert!(error.contains("The cluster is down"), "{error}");
        }
        assert_eq!(waiting(&mut c), 0);

        let () = ask(&mut c, "CONFIG SET cluster-require-full-coverage no");
        let peek = format!("RL.PEEK {} {rules}", keys[1]);
        eventually("the cluster to serve again", || attempt(&mut c, &peek).is_ok());
        let [_, _, left, ..] =
            ask::<[i64; 5]>(&mut c, &format!("RL.PEEK {} 9/h,count=all", keys[1]));
        assert_eq!(left, 8, "nobody was charged");
        assert_eq!(ask::<i64>(&mut c, &format!("RL.SETTLE {} next", keys[1])), 0);
    });
}

/// A slot moves as a stream of commands while clients wait and are admitted.
fn whole_slot_moves(cluster: &Cluster) {
    if !cluster.flavor().migrates_slots() {
        return;
    }
    let masters = cluster.masters();
    let (here, there) = (&masters[0], &masters[1]);
    let (mut source, mut target) = (cluster.connect(here), cluster.connect(there));
    let key = &cluster.keys_in(&here.slots, 1)[0];
    let slot: u16 = ask(&mut source, &format!("CLUSTER KEYSLOT {key}"));
    let mut fill = pipe();
    for n in 0..100_000 {
        fill.cmd("SET").arg(format!("{{{key}}}{n}")).arg("x".repeat(50)).ignore();
    }
    let () = fill.query(&mut source).unwrap();

    let (moving, before) = (AtomicBool::new(false), AtomicU64::new(0));
    let admitted: Vec<(u64, u64)> = thread::scope(|scope| {
        let callers: Vec<_> = (0..4)
            .map(|_| {
                let mut c = cluster.connect(here);
                let (moving, before) = (&moving, &before);
                scope.spawn(move || {
                    let (mut admitted, mut meanwhile) = (0, 0);
                    let line = format!("RL.WAIT {key} 10000 bucket:300/s,burst=1 9999/366d");
                    while let Ok(Value::Array(reply)) = attempt(&mut c, &line) {
                        assert_eq!(reply[0], Value::Int(0));
                        admitted += 1;
                        before.fetch_add(1, Ordering::Relaxed);
                        meanwhile += u64::from(moving.load(Ordering::Relaxed));
                    }
                    (admitted, meanwhile)
                })
            })
            .collect();
        eventually("a client to be admitted", || before.load(Ordering::Relaxed) > 0);
        move_slot(cluster, &mut source, slot, here, there, &moving);
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    let all: u64 = admitted.iter().map(|(all, _)| all).sum();
    let meanwhile: u64 = admitted.iter().map(|(_, meanwhile)| meanwhile).sum();
    assert!(meanwhile > 0, "nobody was admitted while the slot moved: {admitted:?}");
    let left = ask::<[i64; 5]>(&mut target, &format!("RL.PEEK {key} 9999/366d"))[2];
    assert_eq!(9999 - left, all.cast_signed(), "{meanwhile} of them while the slot moved");
    assert_eq!(waiting(&mut source), 0);
}

fn move_slot(
    cluster: &Cluster,
    source: &mut Connection,
    slot: u16,
    here: &Node,
    there: &Node,
    moving: &AtomicBool,
) {
    let mut migrate = cmd("CLUSTER");
    migrate.arg("MIGRATESLOTS").arg("SLOTSRANGE").arg(slot).arg(slot).arg("NODE").arg(&there.id);
    let () = migrate.query(source).unwrap();
    moving.store(true, Ordering::Relaxed);
    eventually("the slot to move", || {
        let jobs = format!("{:?}", raw_reply(source, "CLUSTER GETSLOTMIGRATIONS"));
        assert!(!jobs.contains("failed") && !jobs.contains("cancelled"), "{jobs}");
        jobs.contains("success") && cluster.owns(there, &[slot]) && !cluster.owns(here, &[slot])
    });
}
