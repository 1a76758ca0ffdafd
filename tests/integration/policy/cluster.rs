//! Policies in a cluster are set on each of its masters.

use redis::{RedisResult, Value, cmd};

use crate::support::client::{ask, attempt, refusal};
use crate::support::policies::{known, known_by_replica, policies};
use crate::support::server::{
    Builder,
    cluster::{self, Cluster},
    eventually,
};
use crate::support::tools::run;

/// Sends a command to each master with redis-cli.
fn call_on_masters(cluster: &Cluster, words: &[&str]) {
    let entry = cluster.address(&cluster.masters()[1]);
    cluster.redis_cli(&[&["call", &entry], words, &["--cluster-only-masters"]].concat());
}

#[test]
fn redis_cli_sets_policies_on_all_masters() {
    crate::support::server::oldest_and_newest();
    cluster::on_all(|cluster| {
        call_on_masters(cluster, &["RL.POLICY", "SET", "free", "20/m", "5/h"]);
        call_on_masters(cluster, &["RL.POLICY", "SET", "old", "5/h"]);
        call_on_masters(cluster, &["RL.POLICY", "DEL", "old", "FORCE"]);
        let expected = policies(&["free log:20/1m log:5/1h"]);
        for master in cluster.masters() {
            assert_eq!(known(&mut cluster.connect(&master)), expected);
            let replica = cluster.replica_of(&master);
            let mut r = cluster.connect(&replica);
            let () = ask(&mut r, "READONLY");
            eventually("the policy to reach the replica", || {
                attempt(&mut r, "RL.EXPLAIN @free").is_ok()
            });
            assert!(refusal(&mut r, "RL.POLICY SET free 1/h").contains("read only replica"));
        }

        // Every master has the policy; each key counts by itself.
        let mut c = cluster.client().get_connection().unwrap();
        for n in 0..50 {
            let reply: [i64; 5] =
                cmd("RL.CHECK").arg(format!("user:{n}")).arg("@free").query(&mut c).unwrap();
            assert_eq!(reply[..3], [0, 5, 4], "user:{n}");
        }
        let mut several = cmd("RL.MCHECK");
        several.arg(2).arg(&["{user:1}:a", "{user:1}:b"]).arg("@free");
        assert_eq!(several.query::<[i64; 5]>(&mut c).unwrap()[..3], [0, 5, 4]);

        // A key that moves keeps its count under the policy of its new master.
        let [from, to, ..] = &cluster.masters()[..] else { panic!("three masters") };
        let slots = from.slots[..100].to_vec();
        let [key]: [String; 1] = cluster.keys_in(&slots, 1).try_into().expect("a key");
        let _: [i64; 5] = cmd("RL.CHECK").arg(&key).arg("@free").query(&mut c).unwrap();
        cluster.reshard(from, to, slots.len());
        let moved: [i64; 5] = cmd("RL.CHECK").arg(&key).arg("@free").query(&mut c).unwrap();
        assert_eq!(moved[..3], [0, 5, 3]);

        // A replica that takes over has the policies of its master.
        let successor = cluster.replica_of(to);
        cluster.fail_over_to(&successor);
        let mut s = cluster.connect(&successor);
        assert_eq!(known(&mut s), expected);
        let () = ask(&mut s, "RL.POLICY SET free 9/h");
    });
}

#[test]
fn checks_fail_only_on_masters_without_the_policy() {
    crate::support::server::oldest_and_newest();
    cluster::on_all(|cluster| {
        let masters = cluster.masters();
        let () = ask(&mut cluster.connect(&masters[0]), "RL.POLICY SET free 5/h");
        let mut c = cluster.client().get_connection().unwrap();
        for (index, master) in masters.iter().enumerate() {
            let [key]: [String; 1] = cluster.keys_in(&master.slots, 1).try_into().expect("a key");
            let reply: RedisResult<[i64; 5]> = cmd("RL.CHECK").arg(&key).arg("@free").query(&mut c);
            match reply {
                Ok(reply) => assert_eq!((index, reply[2]), (0, 4)),
                Err(error) => assert!(index > 0 && error.to_string().contains("unknown policy")),
            }
        }
        // rl-policies finds the masters, and copies the policy to them when told.
        let entry = cluster.address(&masters[0]);
        let (status, said) = run("rl-policies", &[&entry]);
        assert_eq!((status, said.matches("# lacks it").count()), (Some(1), 2), "{said}");
        let known_by = |master| known(&mut cluster.connect(master));
        assert_eq!(known_by(&masters[1]), policies(&[]));
        let (status, said) = run("rl-policies", &["--apply", &entry]);
        assert_eq!(status, Some(0), "{said}");
        assert!(masters.iter().all(|master| known_by(master) == policies(&["free log:5/1h"])));
    });
}

/// Valkey migrates a slot as a stream of commands. The stream must not contain policies.
#[test]
fn slot_migration_keeps_the_policies_of_the_new_master() {
    crate::support::server::oldest_and_newest();
    cluster::on_all(|cluster| {
        if !cluster.flavor().migrates_slots() {
            return;
        }
        let [from, to, ..] = &cluster.masters()[..] else { panic!("three masters") };
        let slot = from.slots[0];
        let [key]: [String; 1] = cluster.keys_in(&[slot], 1).try_into().expect("a key");
        let (mut f, mut t) = (cluster.connect(from), cluster.connect(to));
        let () = ask(&mut f, "RL.POLICY SET free 5/h");
        let () = ask(&mut t, "RL.POLICY SET free 7/h");
        let _: Value = ask(&mut f, &format!("RL.CHECK {key} @free"));
        // An RDB file contains policies, but the migration after it must not send them.
        let () = ask(&mut f, "SAVE");
        let job = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {}", to.id);
        let () = ask(&mut f, &job);
        eventually("the slot to move", || cluster.owns(to, &[slot]));
        assert_eq!(known(&mut t), policies(&["free log:7/1h"]));
        let moved: [i64; 5] = ask(&mut t, &format!("RL.PEEK {key} @free"));
        assert_eq!(moved[2], 6, "one of seven units was consumed before the move");
    });
}

/// A replica of a cluster counts as a master while it loads, until it connects to its master.
#[test]
fn a_restarted_replica_has_the_policies_of_its_master() {
    crate::support::server::oldest_and_newest();
    let configured =
        |builder: Builder| builder.module_args(&["policies", "config", "policy", "free=20/m"]);
    cluster::on_all_with(configured, |cluster| {
        let master = cluster.masters()[0].clone();
        let replica = cluster.replica_of(&master);
        let changed = policies(&["free log:30/1m"]);
        let () = ask(&mut cluster.connect(&master), "RL.POLICY SET free 30/m");
        eventually("the policy to reach the replica", || {
            known_by_replica(cluster.server(&replica)) == changed
        });
        let () = ask(&mut cluster.connect(&replica), "SAVE");
        cluster.kill9(&replica);
        cluster.resume(&replica);
        assert_eq!(known_by_replica(cluster.server(&replica)), changed);
        assert_eq!(known(&mut cluster.connect(&master)), changed);
    });
}
