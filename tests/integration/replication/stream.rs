//! The replication stream: replicas have their primary's data after any commands and after any kind
//! of synchronization, also between servers of different versions.

use std::env;

use redis::pipe;

use crate::support::client::{ask, command, info_text, now_us};
use crate::support::server::{self, Flavor, Server, eventually};
use crate::support::workload::{
    self, Tally, Workload,
    data::{self, Data},
    link::{assert_alike, in_step, number, primary, quiet, replica_of},
};

/// How many commands each server gets, in `make test` and in `make test-long`. `RATELIMIT_COMMANDS`
/// overrides both.
const COMMANDS: [usize; 2] = [80_000, 200_000];
/// The servers are compared after this many commands, before much data expires.
const BATCH: usize = 10_000;

fn from_env(variable: &str, default: usize) -> usize {
    env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

fn follow(replica: &Server, primary: &Server) {
    let () = ask(&mut replica.connect(), &format!("REPLICAOF 127.0.0.1 {}", primary.port()));
}

fn promote(replica: &Server) {
    let () = ask(&mut replica.connect(), "REPLICAOF NO ONE");
}

#[test]
fn replicas_equal_their_primary_after_any_commands() {
    server::oldest_and_newest();
    let commands = COMMANDS[usize::from(env::var_os("RATELIMIT_LONG").is_some())];
    let batches = from_env("RATELIMIT_COMMANDS", commands).div_ceil(BATCH);
    let seed = from_env("RATELIMIT_SEED", 1) as u64;
    server::on_all_with(quiet, |primary| {
        let replicas = [replica_of(primary), replica_of(primary)];
        let replicas = [&replicas[0], &replicas[1]];
        let mut c = primary.connect();
        let mut workload = Workload::new(seed);
        workload.with_pexpire = primary.flavor().is_7_or_later();
        let mut tally = Tally::default();
        for batch in 0..batches {
            if batch == batches / 2 {
                // One replica joins again and gets a snapshot while more commands come.
                promote(replicas[1]);
                follow(replicas[1], primary);
            }
            tally += workload.run(BATCH, &mut c);
            let when = format!("after batch {batch} of {BATCH} commands, seed {seed}");
            assert_alike(primary, &replicas, &when);
        }
        // Every outcome was common, so the comparison covers all outcomes.
        let common = (batches * BATCH / 100) as u32;
        let Tally { allowed, limited, blocked, allowed_mchecks } = tally;
        assert!(allowed.min(limited).min(blocked) > common, "{tally:?}");
        assert!(allowed_mchecks > common / 2, "{tally:?}");

        assert!(Data::of(primary).len() > 100, "the last batch left little to compare");
        data::settle(primary);
        assert_alike(primary, &replicas, "after all short keys have expired");
    });
}

/// How many full and partial synchronizations this server served.
fn synchronizations(primary: &Server) -> (u64, u64) {
    let mut c = primary.connect();
    (number(&mut c, "stats", "sync_full"), number(&mut c, "stats", "sync_partial_ok"))
}

/// How many bytes the last partial synchronization sent, from the primary's log.
fn bytes_missed(primary: &Server) -> u64 {
    let log = primary.log();
    let (_, last) = log.rsplit_once("accepted. Sending ").expect("a partial synchronization");
    last.split(' ').next().expect("a word").parse().expect("a number")
}

#[test]
fn a_replica_misses_nothing_after_a_cut_link() {
    server::on_all_with(quiet, |primary| {
        let replica = replica_of(primary);
        let mut c = primary.connect();
        let mut workload = Workload::new(2);
        workload.run(2_000, &mut c);
        in_step(primary, &replica);
        let (full, partial) = synchronizations(primary);

        // The primary cuts the link, and executes commands before it serves another client.
        let mut commands = vec![command("CLIENT KILL TYPE replica")];
        commands.extend(workload.commands(2_000, now_us(&mut c)));
        workload::send(&mut c, &commands);
        assert_alike(primary, &[&replica], "after a cut by the primary");
        assert_eq!(synchronizations(primary), (full, partial + 1));
        assert!(bytes_missed(primary) > 0);

        // The replica cuts the link and sleeps.
        let mut r = replica.connect();
        let mut cut = pipe();
        cut.atomic().add_command(command("CLIENT KILL TYPE master"));
        cut.add_command(command("DEBUG SLEEP 1"));
        r.send_packed_command(&cut.get_packed_pipeline()).expect("sent");
        eventually("the primary to notice", || {
            info_text(&mut c, "replication", "connected_slaves") == "0"
        });
        replica.while_frozen(|| workload.run(2_000, &mut c));
        assert_alike(primary, &[&replica], "after a cut by the replica");
        assert_eq!(synchronizations(primary), (full, partial + 2));
        assert!(bytes_missed(primary) > 0);
    });
}

#[test]
fn a_replica_of_a_replica_equals_the_primary() {
    server::oldest_and_newest();
    server::on_all_with(quiet, |primary| {
        let primary = &*primary;
        let middle = replica_of(primary);
        let last = replica_of(&middle);
        let mut c = primary.connect();
        let mut workload = Workload::new(3);
        workload.run(5_000, &mut c);
        assert_alike(primary, &[&middle, &last], "down the chain");
        let before = [primary, &middle].map(synchronizations);

        let () = ask(&mut middle.connect(), "CLIENT KILL TYPE master");
        workload.run(5_000, &mut c);
        assert_alike(primary, &[&middle, &last], "after the upper link was cut");
        let [(full, partial), below] = before;
        assert_eq!(synchronizations(primary), (full, partial + 1));
        assert_eq!(synchronizations(&middle), below, "the lower link broke");
    });
}

#[test]
fn a_replica_applies_what_its_own_settings_would_refuse() {
    server::on_all_with(quiet, |primary| {
        let strict =
            ["allow-at", "no", "max-rules", "1", "max-log-entries", "1", "max-states", "1"];
        let replica = quiet(primary.flavor().builder()).module_args(&strict);
        let replica = replica.replica_of(primary).start();
        Workload::new(5).run(5_000, &mut primary.connect());
        assert_alike(primary, &[&replica], "under other settings");
    });
}

/// The RDB version that a server loads, and sends to replicas. Valkey 9 also loads 80, but
/// sends 11 to replicas that do not load it.
fn rdb_version(flavor: Flavor) -> u32 {
    match flavor.version {
        _ if flavor.is_valkey() => 11,
        (6, 2) => 9,
        (7, 0) => 10,
        (7, 2) => 11,
        (7, 4) | (8, 0..=2) => 12,
        (8, 6) => 13,
        (8, 10) => 15,
        _ => panic!("which RDB version does {} read?", flavor.name),
    }
}

#[test]
fn servers_of_different_versions_replicate_to_each_other() {
    let replicas: Vec<Server> = server::all().into_iter().map(primary).collect();
    for flavor in server::all() {
        let primary = primary(flavor);
        let mut c = primary.connect();
        let mut workload = Workload::new(4);
        workload.run(1_000, &mut c);
        for replica in replicas.iter().filter(|replica| replica.flavor() != flavor) {
            let pair = format!("{} -> {}", flavor.name, replica.flavor().name);
            let logged = replica.log().len();
            follow(replica, &primary);
            if rdb_version(flavor) <= rdb_version(replica.flavor()) {
                in_step(&primary, replica);
                workload.run(1_000, &mut c);
                assert_alike(&primary, &[replica], &pair);
            } else {
                // The server refuses the file before the module loads a value.
                let why = format!("Can't handle RDB format version {}", rdb_version(flavor));
                eventually(&format!("{pair}: {why}"), || replica.log()[logged..].contains(&why));
                assert_eq!(
                    info_text(&mut replica.connect(), "replication", "master_link_status"),
                    "down",
                    "{pair}"
                );
            }
            promote(replica);
        }
    }
}
