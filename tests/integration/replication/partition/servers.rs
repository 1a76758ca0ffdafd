//! The replica is promoted while its primary lives on behind a partition and continues to serve
//! the clients beside it.
//!
//! ```text
//!   clients ── primary ──/ /── replica ── other clients
//! ```
//!
//! The two cannot agree meanwhile, so a unit that the replica does not know of can pass again on
//! its side. Each side alone must still admit exactly what its own count leaves, and
//! `min-replicas-to-write` must stop the primary.
//!
//! With `--nocapture` each partition prints its counts.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, RedisError, RedisResult, cmd};

use super::Hosted;
use super::counts::Counts;
use crate::support::client::{ask, digest, eventually_linked, refusal, replicated, verdict};
use crate::support::network::{Host, Network};
use crate::support::server::{self, Flavor, eventually};
use crate::support::traffic::{Flag, Limit, Pass, limits_on};

const KEYS: usize = 400;
const MAX_LAG_S: u64 = 2;

/// What happens to the packets between primary and replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    CutBothWays,
    CutToReplica,
    CutFromReplica,
    /// Packets to the replica are delayed, those from it are not.
    SlowToReplica,
}

const FAULTS: [Fault; 4] =
    [Fault::CutBothWays, Fault::CutToReplica, Fault::CutFromReplica, Fault::SlowToReplica];

#[test]
#[ignore = "needs network namespaces: make test-partitions"]
fn each_side_of_a_partition_admits_what_its_own_count_leaves() {
    for_each_fault(|flavor, fault| {
        let counts = partition(flavor, fault, None);
        println!("{}, {fault:?}, alone: {counts}", flavor.name);
        assert!(counts.excess() > 0, "nothing was lost, so this proves nothing");
    });
}

#[test]
#[ignore = "needs network namespaces: make test-partitions"]
fn a_primary_without_its_needed_replica_stops_admitting() {
    for_each_fault(|flavor, fault| {
        let counts = partition(flavor, fault, Some(MAX_LAG_S));
        println!("{}, {fault:?}, min-replicas-to-write 1: {counts}", flavor.name);
    });
}

fn for_each_fault(body: impl Fn(Flavor, Fault)) {
    for flavor in server::all() {
        for fault in FAULTS {
            body(flavor, fault);
        }
    }
}

/// Clients beside the primary, each of which checks one unit of a random key at a time.
#[derive(Default)]
struct Beside {
    ended: Flag,
    passed: AtomicUsize,
    refused: AtomicUsize,
}

impl Beside {
    /// Waits until this many more units have passed.
    fn pass(&self, units: usize) {
        let enough = self.passed.load(Relaxed) + units;
        eventually("units to pass", || self.passed.load(Relaxed) >= enough);
    }

    /// Waits until the primary has refused 300 requests in a row.
    fn are_refused(&self) {
        let mut since = (0, 0);
        eventually("the primary to refuse", || {
            let (passed, refused) = (self.passed.load(Relaxed), self.refused.load(Relaxed));
            if passed != since.0 {
                since = (passed, refused);
            }
            refused >= since.1 + 300
        });
    }

    /// Sends checks. If `waits`, sends `WAIT` after each check that passed, and records whether a
    /// replica confirmed the check.
    fn call(&self, mut c: Connection, limits: &[Limit], waits: bool) -> Vec<Pass> {
        let mut passes = Vec::new();
        while !self.ended.is_up() {
            let index = fastrand::usize(..limits.len());
            let reply: RedisResult<[i64; 5]> = limits[index].check(1).query(&mut c);
            match reply {
                Ok([0, ..]) => {
                    let mut pass = Pass::new(index, 1, true);
                    if waits {
                        let replicas: RedisResult<u32> = cmd("WAIT").arg(1).arg(50).query(&mut c);
                        pass.confirmed = replicas.is_ok_and(|replicas| replicas >= 1);
                    }
                    passes.push(pass);
                    self.passed.fetch_add(1, Relaxed);
                }
                Ok(_) => {}
                Err(error) if lacks_replicas(&error) => _ = self.refused.fetch_add(1, Relaxed),
                Err(error) => panic!("{error}"),
            }
            thread::sleep(Duration::from_millis(2));
        }
        passes
    }
}

fn lacks_replicas(error: &RedisError) -> bool {
    error.to_string().contains("NOREPLICAS")
}

/// Promotes the replica during a fault, and returns what passed. With `max_lag_s`, the primary admits
/// only while its replica lags at most that long.
fn partition(flavor: Flavor, fault: Fault, max_lag_s: Option<u64>) -> Counts {
    let network = Network::new(4);
    let [at_primary, at_replica, near_primary, near_replica] = network.hosts();
    let primary = Hosted::start(flavor, at_primary, |builder| match max_lag_s {
        None => builder,
        Some(lag_s) => builder
            .config("min-replicas-to-write", "1")
            .config("min-replicas-max-lag", &lag_s.to_string()),
    });
    let replica = Hosted::start_replica(&primary, at_replica);
    let limits = limits_on((0..KEYS).map(|n| format!("k{n}")).collect());
    let (mut to_primary, mut to_replica) = (primary.connect(), replica.connect());
    eventually("the primary to know its replica", || {
        limits[0].check(1).query::<[i64; 5]>(&mut to_primary).is_ok()
    });
    let () = ask(&mut to_primary, "FLUSHALL");

    let beside = Beside::default();
    let counts = thread::scope(|scope| {
        let callers = [false, false, true].map(|waits| {
            let c = primary.connect_from(near_primary);
            let (beside, limits) = (&beside, &limits);
            scope.spawn(move || beside.call(c, limits, waits))
        });
        let end = beside.ended.raise_on_drop();
        beside.pass(300);
        let confirmed_until = Instant::now();
        assert_eq!(verdict(&mut to_primary, "RL.CHECK probe 9/h"), 0);
        replicated(&mut to_primary);

        let began = Instant::now();
        inflict(&network, fault, at_primary, at_replica);
        match max_lag_s {
            None => beside.pass(600),
            Some(_) if fault != Fault::SlowToReplica => beside.are_refused(),
            Some(lag_s) => {
                // A primary notices a cut within this time. It may or may not notice a slow link.
                let noticed = Duration::from_secs(lag_s + 3);
                eventually("time to pass", || began.elapsed() > noticed);
            }
        }
        let () = ask(&mut to_replica, "REPLICAOF NO ONE");
        let promoted = Instant::now();
        if fault == Fault::SlowToReplica {
            network.speed_up(at_replica);
        }
        let left: Vec<i64> = limits.iter().map(|limit| left(&mut to_replica, limit)).collect();
        let by_new = take_what_is_left(&mut replica.connect_from(near_replica), &limits);
        assert_eq!(by_new, left, "the replica admits what RL.PEEK showed");
        match max_lag_s {
            None => beside.pass(300),
            Some(_) => {
                beside.are_refused();
                a_new_primary_needs_a_replica(&mut to_replica);
            }
        }
        drop(end);
        let passes: Vec<Pass> =
            callers.into_iter().flat_map(|caller| caller.join().expect("no panic")).collect();
        let rest = take_what_is_left(&mut primary.connect_from(near_primary), &limits);
        assert!(max_lag_s.is_none() || rest.iter().all(|units| *units == 0), "{rest:?}");
        Counts::new(&limits, &passes, confirmed_until, began, promoted, &rest, &by_new)
    });
    mend(&network, fault, at_primary, at_replica);
    let () = ask(&mut to_primary, &format!("REPLICAOF {}", replica.address().replace(':', " ")));
    at_primary.within(|| eventually_linked(&primary.server));
    eventually("the old primary to have the new one's data", || {
        digest(&mut to_primary) == digest(&mut to_replica)
    });
    assert!(limits.iter().all(|limit| left(&mut to_primary, limit) == 0), "a limit has units left");
    counts
}

/// Checks that a new primary with `min-replicas-to-write` refuses checks while it has no replica.
fn a_new_primary_needs_a_replica(c: &mut Connection) {
    let () = ask(c, "CONFIG SET min-replicas-to-write 1");
    assert!(refusal(c, "RL.CHECK fresh 9/h").contains("NOREPLICAS"));
    let () = ask(c, "CONFIG SET min-replicas-to-write 0");
}

fn inflict(network: &Network, fault: Fault, primary: &Host, replica: &Host) {
    if matches!(fault, Fault::CutBothWays | Fault::CutToReplica) {
        network.cut(primary, replica);
    }
    if matches!(fault, Fault::CutBothWays | Fault::CutFromReplica) {
        network.cut(replica, primary);
    }
    if fault == Fault::SlowToReplica {
        network.slow_down(replica, 10_000);
    }
}

fn mend(network: &Network, fault: Fault, primary: &Host, replica: &Host) {
    if matches!(fault, Fault::CutBothWays | Fault::CutToReplica) {
        network.mend(primary, replica);
    }
    if matches!(fault, Fault::CutBothWays | Fault::CutFromReplica) {
        network.mend(replica, primary);
    }
}

/// How many units a server would admit.
fn left(c: &mut Connection, limit: &Limit) -> i64 {
    let [_, _, left, ..]: [i64; 5] = limit.peek().query(c).expect("a reply");
    left
}

/// Takes all units that a server admits, and returns how many, limit by limit.
fn take_what_is_left(c: &mut Connection, limits: &[Limit]) -> Vec<i64> {
    let take = |limit: &Limit| {
        let (mut taken, mut units) = (0, 1);
        loop {
            let reply: RedisResult<[i64; 5]> = limit.check(units).query(c);
            match reply {
                Ok([0, _, left, ..]) => {
                    taken += units;
                    units = left.max(1);
                }
                Ok(_) => return taken,
                Err(error) if lacks_replicas(&error) => return taken,
                Err(error) => panic!("{error}"),
            }
        }
    };
    limits.iter().map(take).collect()
}
