//! SIGKILL under load: the server remembers every acknowledged check and counts none twice.
//!
//! Clients pipeline checks on keys whose units do not come back while the test runs. Then the
//! server is killed and started again, and the test sends checks until the server denies:
//!
//! ```text
//! LIMIT - in flight  <=  allowed before + allowed after  <=  LIMIT
//! ```
//!
//! Checks in flight were sent and got no reply: they may or may not count. A sum above the limit
//! means that the server forgot a check. A sum that is too low means that it counted a check
//! twice. `histories/` does the same with `appendfsync always`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, cmd, from_redis_value, pipe};

use crate::support::server::{self, Builder, Server, eventually};

/// A limit that no round uses up.
const LIMIT: u64 = 100_000;
/// A rule of each algorithm. No unit comes back within a round.
const RULES: [&str; 5] = [
    "log:100000/h",
    "window:100000/366d",
    "fixed:100000/d,align=first",
    "bucket:100000/366d",
    "leaky:100000/366d,queue=99999",
];

const CLIENTS: usize = 3;
/// How many checks of each rule a client pipelines.
const BATCH: usize = 8;

/// Redis promises to lose at most one second, and may delay a write by another.
const AT_MOST_LOST: Duration = Duration::from_secs(2);

/// The key of a rule in a round.
fn key(round: u32, rule: &str) -> String {
    format!("{round}:{rule}")
}

/// The load of a round.
struct Load {
    round: u32,
    /// The pause between batches: a long round must not write an AOF that loads slowly.
    pause: Duration,
}

/// What clients know of the checks of one rule.
#[derive(Clone, Debug, Default)]
struct Sent {
    /// When each allowed check was answered.
    allowed: Vec<Instant>,
    /// How many checks got no reply.
    in_flight: u64,
}

/// One client: sends checks until the server is gone.
fn ask(mut c: Connection, load: &Load, progress: &AtomicUsize) -> [Sent; RULES.len()] {
    let mut batch = pipe();
    for rule in RULES.iter().cycle().take(BATCH * RULES.len()) {
        batch.cmd("RL.CHECK").arg(key(load.round, rule)).arg(rule);
    }
    let packed = batch.get_packed_pipeline();
    let checks = BATCH * RULES.len();
    let mut sent: [Sent; RULES.len()] = Default::default();
    loop {
        let mut replies = 0;
        if c.send_packed_command(&packed).is_ok() {
            while replies < checks
                && let Ok(reply) = c.recv_response()
            {
                let rule = replies % RULES.len();
                let [verdict, ..]: [i64; 5] = from_redis_value(reply).expect("five integers");
                assert_eq!(verdict, 0, "{} is used up", RULES[rule]);
                sent[rule].allowed.push(Instant::now());
                replies += 1;
            }
        }
        progress.fetch_add(replies, Ordering::Relaxed);
        if replies < checks {
            (replies..checks).for_each(|n| sent[n % RULES.len()].in_flight += 1);
            return sent;
        }
        thread::sleep(load.pause);
    }
}

/// Kills the server while all clients load it, once they have `enough` replies. Returns what
/// clients know of each rule, and the time of the kill.
fn kill_under_load(
    server: &mut Server,
    load: &Load,
    mut enough: impl FnMut(usize) -> bool,
) -> ([Sent; RULES.len()], Instant) {
    let progress = AtomicUsize::new(0);
    let connections: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
    thread::scope(|scope| {
        let clients: Vec<_> =
            connections.into_iter().map(|c| scope.spawn(|| ask(c, load, &progress))).collect();
        eventually("enough checks", || enough(progress.load(Ordering::Relaxed)));
        let killed = Instant::now();
        server.kill9();
        let mut all: [Sent; RULES.len()] = Default::default();
        for client in clients {
            let sent = client.join().expect("the client ends after the server");
            for (all, sent) in all.iter_mut().zip(sent) {
                all.allowed.extend(sent.allowed);
                all.in_flight += sent.in_flight;
            }
        }
        (all, killed)
    })
}

/// How many units a key still admits, until it denies a single unit.
fn allowed_after(c: &mut Connection, key: &str, rule: &str) -> u64 {
    let mut total = 0;
    for cost in (0..20).rev().map(|bit| 1u64 << bit) {
        loop {
            let mut check = cmd("RL.CHECK");
            let reply: [i64; 5] = check.arg(key).arg("COST").arg(cost).arg(rule).query(c).unwrap();
            if reply[0] != 0 {
                break;
            }
            total += cost;
        }
    }
    total
}

/// Starts the server again and compares what it remembers with what clients know. `lasts` says
/// whether a check that was answered at this time must not be lost.
fn assert_remembered(
    server: &mut Server,
    round: u32,
    sent: &[Sent],
    lasts: impl Fn(Instant) -> bool,
) {
    server.resume();
    let mut c = server.connect();
    for (rule, Sent { allowed, in_flight }) in RULES.iter().zip(sent) {
        let before = allowed.len() as u64;
        let lasting = allowed.iter().filter(|at| lasts(**at)).count() as u64;
        let after = allowed_after(&mut c, &key(round, rule), rule);
        let what = format!(
            "round {round}, {rule}: {before} allowed before the kill, {lasting} of them to last, \
             {in_flight} in flight, {after} allowed after"
        );
        assert!(lasting > 0 && after > 0, "{what}: proves nothing");
        assert!(lasting + after <= LIMIT, "{what}: forgotten");
        assert!(before + in_flight + after >= LIMIT, "{what}: counted twice");
    }
}

fn with_aof(builder: Builder, fsync: &str) -> Builder {
    builder.config("appendonly", "yes").config("appendfsync", fsync)
}

#[test]
fn fsync_everysec_loses_no_check_older_than_two_seconds() {
    server::oldest_and_newest();
    server::on_all_with(
        |builder| with_aof(builder, "everysec"),
        |server| {
            for round in 0..2 {
                let long = AT_MOST_LOST + Duration::from_millis(fastrand::u64(300..1_300));
                let load = Load { round, pause: Duration::from_millis(10) };
                let mut first = None; // the time of the first reply
                let (sent, killed) = kill_under_load(server, &load, |checks| {
                    checks > 0 && first.get_or_insert_with(Instant::now).elapsed() >= long
                });
                let lasts = |at| at + AT_MOST_LOST <= killed;
                assert_remembered(server, round, &sent, lasts);
            }
        },
    );
}
