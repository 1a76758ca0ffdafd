//! Masters of a cluster die, and replicas take over.
//!
//! Replication is asynchronous, so a replica may lack checks that were answered. The offsets of
//! both servers, and `WAIT`, show what the replica surely had. It must never forget any of
//! that.
//!
//! With `--nocapture`, each death prints the loss: `excess` units passed beyond the limits, and
//! `unconfirmed` units that the replica may have lacked.

use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, RedisResult, cmd, pipe};

use crate::support::client::{ask, let_in, lock_out};
use crate::support::server::{
    cluster::{self, Cluster, Node},
    eventually,
};
use crate::support::traffic::{
    Caller, Flag, Limit, Pass, Traffic, limits_on, under_traffic, units,
};

#[test]
fn a_replica_that_takes_over_forgets_no_confirmed_check() {
    crate::support::server::oldest_and_newest();
    cluster::on_all(|cluster| {
        death_of_a_master(cluster, Link::Up);
        death_of_a_master(cluster, Link::Down);
    });
}

/// The replication link of a master before its death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Up,
    Down,
}

/// A master dies and its replica takes over. Some clients only send checks, others also `WAIT`
/// for the replica.
fn death_of_a_master(cluster: &mut Cluster, link: Link) {
    let client = cluster.client();
    let master = cluster.masters().remove(0);
    let asked = limits_on(cluster.keys_in(&master.slots, 80));
    let waited = limits_on(cluster.keys_in(&master.slots, 80));

    let (death, mut passes) =
        under_traffic(&client, &asked, |traffic| die(cluster, &master, link, &waited, traffic));
    for pass in &mut passes {
        let is_confirmed = |until| pass.answered && pass.at <= until;
        pass.confirmed = death.replicated.is_some_and(is_confirmed);
    }

    for (who, limits, mut passes) in
        [("asked", &asked, passes), ("waited", &waited, death.passes_waited)]
    {
        passes.extend(Caller::new(&client).take_what_is_left(limits));
        let Loss { passed, unconfirmed, excess } = loss(limits, &passes, death.was_replica);
        let name = cluster.flavor().name;
        println!(
            "{name}, link {link:?}, {who}: {passed} passed, {unconfirmed} unconfirmed, {excess} excess"
        );
        assert!(passed > unconfirmed, "{who}: nothing was confirmed");
        // Checks that the link did not carry must be lost, otherwise the test would prove
        // nothing.
        let must_lose = link == Link::Down && who == "asked";
        assert!(excess > 0 || !must_lose, "a master without a link lost nothing");
    }
    cluster.replicas_agree();
}

struct Death {
    /// The replica had everything that had passed by this time.
    replicated: Option<Instant>,
    /// What passed for the clients that `WAIT`.
    passes_waited: Vec<Pass>,
    /// The last time when the replica surely was still a replica.
    was_replica: Instant,
}

/// Kills the master, waits until its replica takes over, and brings it back as a replica.
fn die(
    cluster: &mut Cluster,
    master: &Node,
    link: Link,
    waited: &[Limit],
    traffic: &Traffic,
) -> Death {
    let replica = cluster.replica_of(master);
    let mut to_master = [(); 3].map(|()| cluster.connect(master));
    let mut to_replica = cluster.connect(&replica);
    let (confirmed, dead) = ([(); 2].map(|()| Flag::default()), Flag::default());
    let death = thread::scope(|scope| {
        let [watched, waiting @ ..] = &mut to_master;
        let [to_asked, to_waited] = &confirmed;
        let lag = scope.spawn(|| replicated_until(watched, &mut to_replica, to_asked, &dead));
        let wait = |c| ask_and_wait(c, waited, to_waited, &dead);
        let waiting = waiting.each_mut().map(|c| scope.spawn(move || wait(c)));
        let raised_at_the_end = dead.raise_on_drop();
        traffic.flows();
        eventually("something to be confirmed", || confirmed.iter().all(Flag::is_up));
        if link == Link::Down {
            let mut replica = cluster.connect(&replica);
            lock_out(&mut replica);
            let _: i64 = ask(&mut replica, "CLIENT KILL TYPE master");
            traffic.flows();
        }
        cluster.kill9(master);
        drop(raised_at_the_end);
        let was_replica = cluster.eventually_master(&replica);
        let passes = waiting.into_iter().flat_map(|thread| thread.join().unwrap());
        Death { passes_waited: passes.collect(), replicated: lag.join().unwrap(), was_replica }
    });
    let_in(&mut cluster.connect(&replica));
    cluster.resume(master);
    death
}

/// Units lost with a dead master.
struct Loss {
    /// The units that passed on the dead master.
    passed: i64,
    /// The units among them that the replica may have lacked.
    unconfirmed: i64,
    /// The units that passed beyond the limits.
    excess: i64,
}

fn loss(limits: &[Limit], passes: &[Pass], was_replica: Instant) -> Loss {
    let answered = units(limits, passes, |pass| pass.answered);
    let sent = units(limits, passes, |_| true);
    let by_old = units(limits, passes, |pass| pass.answered && pass.at <= was_replica);
    let confirmed = units(limits, passes, |pass| pass.confirmed);
    let mut loss = Loss { passed: by_old.iter().sum(), unconfirmed: 0, excess: 0 };
    for (key, limit) in limits.iter().enumerate() {
        let by_new = answered[key] - by_old[key];
        let known = confirmed[key] + by_new;
        assert!(known <= limit.units, "{limit:?}: {known} passed, not counting unconfirmed ones");
        assert!(sent[key] >= limit.units, "{limit:?}: only {} passed", sent[key]);
        loss.unconfirmed += by_old[key] - confirmed[key];
        loss.excess += (answered[key] - limit.units).max(0);
    }
    loss
}

/// The last time at which the replica had all that the master had admitted, by the offsets of
/// both. Raises `known` once there is such a time.
fn replicated_until(
    master: &mut Connection,
    replica: &mut Connection,
    known: &Flag,
    dead: &Flag,
) -> Option<Instant> {
    let offset = |c: &mut Connection, field: &str| -> Option<u64> {
        let info: String = cmd("INFO").arg("replication").query(c).ok()?;
        info.lines().find_map(|line| line.strip_prefix(field))?.parse().ok()
    };
    let mut until = None;
    loop {
        let now = Instant::now();
        let Some(sent) = offset(master, "master_repl_offset:") else { return until };
        while offset(replica, "slave_repl_offset:") < Some(sent) {
            if dead.is_up() {
                return until;
            }
        }
        until = Some(now);
        known.raise();
        thread::sleep(Duration::from_millis(1));
    }
}

/// Checks a few keys at a time, then sends `WAIT` over the same connection. Raises `known` once
/// the replica has confirmed a check that passed.
fn ask_and_wait(c: &mut Connection, limits: &[Limit], known: &Flag, dead: &Flag) -> Vec<Pass> {
    let mut passes = Vec::new();
    while !dead.is_up() {
        let batch: Vec<_> = (0..4).map(|_| fastrand::usize(..limits.len())).collect();
        let mut checks = pipe();
        for &key in &batch {
            checks.add_command(limits[key].check(1));
        }
        let replies: RedisResult<Vec<[i64; 5]>> = checks.query(c);
        let Ok(replies) = replies else {
            passes.extend(batch.iter().map(|&key| Pass::new(key, 1, false)));
            break;
        };
        let first = passes.len();
        let passed = batch.iter().zip(replies).filter(|(_, reply)| reply[0] == 0);
        passes.extend(passed.map(|(&key, _)| Pass::new(key, 1, true)));
        let replicas: RedisResult<u32> = cmd("WAIT").arg(1).arg(50).query(c);
        let confirmed = replicas.is_ok_and(|replicas| replicas >= 1);
        passes[first..].iter_mut().for_each(|pass| pass.confirmed = confirmed);
        if confirmed && first < passes.len() {
            known.raise();
        }
    }
    passes
}
