//! Clients send checks to a cluster while its slots move and its masters change, and follow
//! redirections.
//!
//! Each scenario has new keys: some spent, some half spent, some unused. Clients check them
//! while the cluster changes, and afterwards take all that is left. Then each key must have
//! admitted exactly its limit: one unit more means that the cluster forgot a check, one less
//! that it counted a check twice.

use redis::{Connection, RedisResult, Value, cmd};

use crate::support::client::{self, ask, refusal};
use crate::support::server::{
    cluster::{self, Cluster, Node},
    eventually,
};
use crate::support::traffic::{Caller, RULES, Traffic, limits_on, under_traffic, units};

/// How many slots move at a time.
const MOVED: usize = 200;

#[test]
fn limits_are_exact_while_slots_and_masters_change() {
    crate::support::server::oldest_and_newest();
    cluster::on_all(|cluster| {
        resharding(cluster);
        slots_on_both_nodes(cluster);
        atomic_slot_migration(cluster);
        manual_failover(cluster);
    });
}

/// redis-cli moves slots key by key, with `MIGRATE`.
fn resharding(cluster: &Cluster) {
    let (from, to, slots) = a_move(cluster, MOVED);
    assert_exact_while(cluster, &slots, |_| cluster.reshard(&from, &to, slots.len()));
    assert!(cluster.owns(&to, &slots), "no slot moved");
}

/// Slots move slowly, so that for a while both nodes have keys of a slot.
fn slots_on_both_nodes(cluster: &Cluster) {
    let (from, to, slots) = a_move(cluster, 10);
    let [mut source, mut target] = [&from, &to].map(|node| cluster.connect(node));
    let set_slots = |c: &mut Connection, to: &str| {
        for slot in &slots {
            let () = ask(c, &format!("CLUSTER SETSLOT {slot} {to}"));
        }
    };
    let address = cluster.address(&to);
    let (host, port) = address.split_once(':').unwrap();
    assert_exact_while(cluster, &slots, |traffic| {
        set_slots(&mut target, &format!("IMPORTING {}", from.id));
        set_slots(&mut source, &format!("MIGRATING {}", to.id));
        traffic.flows(); // new keys are made on the target, old keys are still on the source
        for part in [2, 1] {
            for slot in &slots {
                let keys: Vec<String> =
                    ask(&mut source, &format!("CLUSTER GETKEYSINSLOT {slot} 1000"));
                let mut migrate = cmd("MIGRATE");
                migrate.arg(host).arg(port).arg("").arg(0).arg(5_000).arg("KEYS");
                migrate.arg(&keys[..keys.len() / part]);
                let () = migrate.query(&mut source).unwrap();
            }
            traffic.flows();
        }
        set_slots(&mut target, &format!("NODE {}", to.id));
        set_slots(&mut source, &format!("NODE {}", to.id));
    });
    assert!(cluster.owns(&to, &slots), "no slot moved");
    let errors: String = ask(&mut source, "INFO errorstats");
    assert!(errors.contains("errorstat_ASK"), "no client was redirected: {errors}");
}

/// Slots move as a whole. Their keys move as a stream of commands.
fn atomic_slot_migration(cluster: &Cluster) {
    if !cluster.flavor().migrates_slots() {
        return;
    }
    let (from, to, slots) = a_move(cluster, MOVED);
    assert_exact_while(cluster, &slots, |_| {
        let mut c = cluster.connect(&from);
        let ranges: Vec<_> = slots.iter().map(|slot| format!("{slot} {slot}")).collect();
        let job = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {} NODE {}", ranges.join(" "), to.id);
        let () = ask(&mut c, &job);
        eventually("the slots to move", || {
            let jobs = format!("{:?}", client::raw_reply(&mut c, "CLUSTER GETSLOTMIGRATIONS"));
            assert!(!jobs.contains("failed") && !jobs.contains("cancelled"), "{jobs}");
            jobs.contains("success") && cluster.owns(&to, &slots)
        });
    });
}

/// Two masters, and the first slots of the first, which will move to the second.
fn a_move(cluster: &Cluster, count: usize) -> (Node, Node, Vec<u16>) {
    let masters = cluster.masters();
    let slots = masters[0].slots[..count].to_vec();
    (masters[0].clone(), masters[1].clone(), slots)
}

fn manual_failover(cluster: &Cluster) {
    let master = cluster.masters().remove(0);
    let replica = cluster.replica_of(&master);
    assert_exact_while(cluster, &master.slots, |_| cluster.fail_over_to(&replica));
    assert!(cluster.owns(&replica, &master.slots), "the replica did not take over");
}

/// Clients check keys in these slots and in others before, during and after a change of the cluster.
fn assert_exact_while(cluster: &Cluster, slots: &[u16], change: impl FnOnce(&Traffic)) {
    let client = cluster.client();
    let anywhere: Vec<_> = (0..cluster::SLOTS).collect();
    let keys = [cluster.keys_in(slots, 150), cluster.keys_in(&anywhere, 150)].concat();
    let limits = limits_on(keys);
    let paused = cluster.keys_in(slots, 1).remove(0);
    let mut c = client.get_connection().unwrap();
    let () = cmd("RL.PAUSE").arg(&paused).arg("EX").arg(3_000).query(&mut c).unwrap();
    let idle = limits_on(cluster.keys_in(slots, 2 * RULES.len()));

    let mut caller = Caller::new(&client);
    let mut passes = caller.spend(&limits, &[1.0, 0.5, 0.0]);
    caller.spend(&idle, &[1.0, 0.5, 0.1]);
    let before = caller.key_states(&idle);

    passes.extend(under_traffic(&client, &limits, change).1);
    cluster.settled();

    for (before, after) in before.iter().zip(caller.key_states(&idle)) {
        assert_eq!(before.dump, after.dump, "a value changed while it moved");
        let moved_ms = after.expires_ms - before.expires_ms;
        // MIGRATE sends the time left, so an expiry moves by the time that the move takes.
        assert!(moved_ms.abs() < 5_000, "an expiry moved by {moved_ms} ms");
    }
    let [verdict, _, _, wait_ms, _]: [i64; 5] =
        cmd("RL.CHECK").arg(&paused).arg("5/s").query(&mut c).unwrap();
    assert_eq!((verdict, wait_ms > 2_000_000), (1, true), "a pause of {wait_ms} ms is left");
    passes.extend(caller.take_what_is_left(&limits));
    assert!(passes.iter().all(|pass| pass.answered), "a connection was lost");
    for (limit, units) in limits.iter().zip(units(&limits, &passes, |_| true)) {
        assert_eq!(units, limit.units, "{limit:?} let {units} through");
    }
    cluster.replicas_agree();
}

#[test]
fn checks_are_routed_like_any_command_with_a_key() {
    crate::support::server::oldest_and_newest();
    cluster::on_all(|cluster| {
        let masters = cluster.masters();
        let (here, there) = (&masters[0], &masters[1]);
        assert_redirected_to_the_node_of_the_key(cluster, here, there);
        assert_redirected_while_a_slot_moves(cluster, here, there);
        assert_refused_across_slots(cluster, here);
        assert_usage_without_a_key(cluster, here);
        assert_internal_commands_refused(cluster, here, there);
    });
}

fn assert_redirected_to_the_node_of_the_key(cluster: &Cluster, here: &Node, there: &Node) {
    let key = &cluster.keys_in(&here.slots, 1)[0];
    let mut replica = cluster.connect(&cluster.replica_of(here));
    let [mut c, mut elsewhere] = [here, there].map(|node| cluster.connect(node));
    let moved = format!("MOVED {} {}", slot_of(&mut c, key), cluster.address(here));
    for command in [
        "RL.CHECK KEY 5/m",
        "RL.PEEK KEY 5/m",
        "RL.REFUND KEY 1",
        "RL.RESET KEY",
        "RL.MCHECK 1 KEY 5/m",
    ] {
        let command = command.replace("KEY", key);
        for c in [&mut elsewhere, &mut replica] {
            assert_eq!(redirection(c, &command), moved, "{command}");
        }
        let keys: Vec<String> = ask(&mut elsewhere, &format!("COMMAND GETKEYS {command}"));
        assert_eq!(keys, [key.as_str()], "{command}");
    }
    let tagged = ["a", "b"].map(|name| format!("{{{key}}}{name}"));
    let command = format!("RL.MCHECK 2 {} 5/m NEXT 9/h", tagged.join(" "));
    for c in [&mut elsewhere, &mut replica] {
        assert_eq!(redirection(c, &command), moved, "{command}");
    }
    let keys: Vec<String> = ask(&mut elsewhere, &format!("COMMAND GETKEYS {command}"));
    assert_eq!(keys, tagged);
    let _: Value = ask(&mut elsewhere, "RL.EXPLAIN 5/m"); // without a key, on any node

    let _: Value = ask(&mut c, &format!("RL.CHECK {key} 5/h"));
    client::replicated(&mut c);
    let () = ask(&mut replica, "READONLY");
    assert_eq!(client::remaining(&mut replica, &format!("RL.PEEK {key} 5/h")), 4);
    assert_eq!(redirection(&mut replica, &format!("RL.CHECK {key} 5/h")), moved);
}

fn assert_redirected_while_a_slot_moves(cluster: &Cluster, here: &Node, there: &Node) {
    let old = &cluster.keys_in(&here.slots, 1)[0];
    let new = format!("{{{old}}}new");
    let [mut source, mut target] = [here, there].map(|node| cluster.connect(node));
    let slot = slot_of(&mut source, old);
    let check = |key: &str| format!("RL.CHECK {key} 5/h");
    assert!(client::allowed(&mut source, &check(old)));

    let () = ask(&mut target, &format!("CLUSTER SETSLOT {slot} IMPORTING {}", here.id));
    let () = ask(&mut source, &format!("CLUSTER SETSLOT {slot} MIGRATING {}", there.id));
    assert_eq!(client::remaining(&mut source, &check(old)), 3, "the key has not moved");
    let asked = format!("ASK {slot} {}", cluster.address(there));
    assert_eq!(redirection(&mut source, &check(&new)), asked);
    let moved = format!("MOVED {slot} {}", cluster.address(here));
    assert_eq!(redirection(&mut target, &check(&new)), moved);
    let () = ask(&mut target, "ASKING");
    assert_eq!(client::remaining(&mut target, &check(&new)), 4);
    for command in INTERNAL {
        let () = ask(&mut target, "ASKING");
        let error = refusal(&mut target, &command.replace("KEY", &new));
        assert!(error.contains("internal"), "{command}: {error}");
    }

    // No node has both keys, so no node can check them. 6.2 redirects to the other node, which
    // refuses.
    let both = format!("RL.MCHECK 2 {old} {new} 5/h");
    let at_source = if cluster.flavor().is_7_or_later() { "TRYAGAIN" } else { "ASK" };
    let () = ask(&mut target, "ASKING");
    for (c, says) in [(&mut source, at_source), (&mut target, "TRYAGAIN")] {
        let error = client::command(&both).query::<Value>(c).expect_err(&both);
        assert_eq!(error.code(), Some(says), "{error}");
    }
    let alone = format!("RL.MCHECK 1 {old} 5/h");
    assert_eq!(client::remaining(&mut source, &alone), 2, "a refused check consumed");

    let () = ask(&mut target, "ASKING");
    let _: i64 = ask(&mut target, &format!("DEL {new}"));
    for c in [&mut source, &mut target] {
        let () = ask(c, &format!("CLUSTER SETSLOT {slot} STABLE"));
    }
}

/// Checks that several keys must be in one slot, by a hash tag.
fn assert_refused_across_slots(cluster: &Cluster, here: &Node) {
    let keys = cluster.keys_in(&here.slots, 2);
    let mut c = cluster.connect(here);
    let tagged = ["a", "b"].map(|name| format!("{{{}}}{name}", keys[0]));
    let script = "return {redis.call('RL.CHECK', KEYS[1], '5/h')[3], \
                          redis.call('RL.CHECK', KEYS[2], '5/h')[3]}";
    let mut eval = |keys: &[String]| -> RedisResult<[i64; 2]> {
        cmd("EVAL").arg(script).arg(2).arg(keys).query(&mut c)
    };
    assert_eq!(eval(&tagged).unwrap(), [4, 4]);
    let error = eval(&keys).unwrap_err();
    assert_eq!(error.code(), Some("CROSSSLOT"), "{error}");

    let mut check = |keys: &[String], rules: &[&str]| -> RedisResult<[i64; 5]> {
        cmd("RL.MCHECK").arg(keys.len()).arg(keys).arg(rules).query(&mut c)
    };
    assert_eq!(check(&tagged, &["COST", "2", "bucket:9/h"]).unwrap()[..3], [0, 9, 7]);
    assert_eq!(
        check(&tagged, &["fixed:9/d", "NEXT", "bucket:1/h,burst=5"]).unwrap()[..3],
        [0, 5, 2]
    );
    let error = check(&keys, &["bucket:9/h"]).unwrap_err();
    assert_eq!(error.code(), Some("CROSSSLOT"), "{error}");

    let queue = |c: &mut Connection, keys: &[String]| {
        let () = ask(c, "MULTI");
        for key in keys {
            let () = ask(c, &format!("RL.CHECK {key} 5/h"));
        }
    };
    queue(&mut c, &tagged);
    let replies: [[i64; 5]; 2] = ask(&mut c, "EXEC");
    assert_eq!(replies.map(|reply| reply[2]), [3, 3]);
    queue(&mut c, &keys);
    let error = cmd("EXEC").query::<Value>(&mut c).unwrap_err();
    assert_eq!(error.code(), Some("CROSSSLOT"), "{error}");
}

/// Checks that any node answers a call without a key with the usage.
fn assert_usage_without_a_key(cluster: &Cluster, here: &Node) {
    let mut c = cluster.connect(here);
    for call in ["RL.CHECK", "RL.PEEK", "RL.BLOCK", "RL.THROTTLE"] {
        assert!(refusal(&mut c, call).contains(&format!("usage: {call} key")), "{call}");
    }
    for call in ["RL.MCHECK 2", "RL.MCHECK 0", "RL.MCHECK x"] {
        let error = refusal(&mut c, call);
        assert!(
            error.contains("usage: RL.MCHECK numkeys") || error.contains("numkeys is"),
            "{error}"
        );
    }
}

/// Commands that only a primary and a migration of slots may send.
const INTERNAL: [&str; 2] = ["RL.APPLY KEY v1:1:0:admit:1 5/m", "RL.LOAD KEY payload"];

fn assert_internal_commands_refused(cluster: &Cluster, here: &Node, there: &Node) {
    let key = &cluster.keys_in(&here.slots, 1)[0];
    let mut replica = cluster.connect(&cluster.replica_of(here));
    let [mut c, mut elsewhere] = [here, there].map(|node| cluster.connect(node));
    let _: Value = ask(&mut c, &format!("RL.CHECK {key} 5/h"));
    let before = client::dump(&mut c, key);
    let () = ask(&mut replica, "READONLY");
    for command in INTERNAL {
        let command = command.replace("KEY", key);
        let error = refusal(&mut c, &command);
        assert!(error.contains("internal"), "{command}: {error}");
        for c in [&mut elsewhere, &mut replica] {
            assert!(redirection(c, &command).starts_with("MOVED"), "{command}");
        }
    }
    assert_eq!(client::dump(&mut c, key), before);
}

fn slot_of(c: &mut Connection, key: &str) -> u16 {
    ask(c, &format!("CLUSTER KEYSLOT {key}"))
}

/// The redirection that a node replies: `MOVED slot address` or `ASK slot address`.
fn redirection(c: &mut Connection, line: &str) -> String {
    let reply: RedisResult<Value> = client::command(line).query(c);
    let error = reply.expect_err(line);
    let (node, slot) = error.redirect_node().unwrap_or_else(|| panic!("{line}: {error}"));
    format!("{} {slot} {node}", error.code().unwrap_or_default())
}
