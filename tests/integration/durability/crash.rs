//! kill -9 under load: what was acknowledged is remembered, and nothing is that no one asked for.
//!
//! Clients pipeline checks on keys whose limits do not come back while the test runs. Then the
//! server is killed, started again, and asked on until it denies:
//!
//! ```text
//! LIMIT - in flight  <=  allowed before + allowed after  <=  LIMIT
//! ```
//!
//! In flight is what was sent and not answered: counted or not, no one can tell. A sum above the
//! limit means that a request let through was forgotten, one too low that a request counted twice.
//!
//! `RATELIMIT_ROUNDS` says how often each server is killed, 20 times if it does not.

use std::env;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, cmd, from_redis_value, pipe};

use crate::support::server::{self, Builder, Server, eventually};

/// More than any round consumes.
const LIMIT: u64 = 100_000;
/// Of each algorithm, so that not a unit comes back within a round.
const RULES: [&str; 5] = [
    "log:100000/h",
    "window:100000/366d",
    "fixed:100000/d,align=first",
    "bucket:100000/366d",
    "leaky:100000/366d,queue=99999",
];

const CLIENTS: usize = 3;
/// Checks of each rule that a client sends at once.
const BATCH: usize = 8;

/// Redis promises one second, and may put off a write for another.
const AT_MOST_LOST: Duration = Duration::from_secs(2);

/// A key of its own for each rule and round.
fn key(round: u32, rule: &str) -> String {
    format!("{round}:{rule}")
}

/// What clients do in a round.
struct Load {
    round: u32,
    /// Between batches: a long round must not fill an AOF that takes long to load.
    pause: Duration,
}

/// What clients know of the checks of one rule.
#[derive(Clone, Debug, Default)]
struct Sent {
    /// When they were let through.
    allowed: Vec<Instant>,
    /// Those without an answer.
    in_flight: u64,
}

/// One client: asks until the server is gone.
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

/// Kills the server under the load of all clients, when that is `enough`; what they know of each
/// rule, and when it was killed.
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
            let sent = client.join().expect("a client that saw the server's end");
            for (all, sent) in all.iter_mut().zip(sent) {
                all.allowed.extend(sent.allowed);
                all.in_flight += sent.in_flight;
            }
        }
        (all, killed)
    })
}

/// How much more a key lets through, until it denies a single unit.
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

/// Starts the server again and compares what it remembers with what its clients know. `lasts` says
/// what must not be lost, by when it was let through.
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
        assert!(lasting > 0 && after > 0, "{what}: tells nothing");
        assert!(lasting + after <= LIMIT, "{what}: forgotten");
        assert!(before + in_flight + after >= LIMIT, "{what}: counted twice");
    }
}

fn with_aof(builder: Builder, fsync: &str) -> Builder {
    builder.config("appendonly", "yes").config("appendfsync", fsync)
}

#[test]
fn with_fsync_always_nothing_acknowledged_is_lost() {
    let rounds = env::var("RATELIMIT_ROUNDS").map_or(20, |text| text.parse().expect("a number"));
    server::on_all_with(
        |builder| with_aof(builder, "always"),
        |server| {
            for round in 0..rounds {
                let some = fastrand::usize(500..5_000);
                let load = Load { round, pause: Duration::ZERO };
                let (sent, _) = kill_under_load(server, &load, |checks| checks >= some);
                assert_remembered(server, round, &sent, |_| true);
            }
        },
    );
}

#[test]
fn with_fsync_every_second_what_is_lost_is_no_older_than_two() {
    server::on_all_with(
        |builder| with_aof(builder, "everysec"),
        |server| {
            for round in 0..2 {
                let long = AT_MOST_LOST + Duration::from_millis(fastrand::u64(300..1_300));
                let load = Load { round, pause: Duration::from_millis(10) };
                let mut first = None; // when something had been answered
                let (sent, killed) = kill_under_load(server, &load, |checks| {
                    checks > 0 && first.get_or_insert_with(Instant::now).elapsed() >= long
                });
                let lasts = |at| at <= killed - AT_MOST_LOST;
                assert_remembered(server, round, &sent, lasts);
            }
        },
    );
}
