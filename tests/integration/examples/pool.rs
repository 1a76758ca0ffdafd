//! `examples/pool/`: workers of two tenants wait in line for an upstream that tells them to stop now
//! and then. One worker is killed, and the upstream counts requests.
//!
//! The upstream refuses what exceeds its limits, and logs what it saw. Requests can arrive
//! late, so the workers' period is longer than the upstream's: the workers send at most 5
//! requests in a second, and the upstream allows 5 in 0.3 seconds.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use redis::{Connection, FromRedisValue, Value};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::program::Program;
use crate::support::client::{ask, info, remaining};
use crate::support::machine;
use crate::support::server::{self, eventually};

const SLOTS: usize = 3;
const REQUESTS: usize = 5;
const PERIOD_MS: u64 = 300;
const RULES: [&str; 2] = ["slots:3", "5/s"];
/// The tenants: jobs and workers of each. `big` floods the line. While one worker of `small` has a
/// job, the other is in line.
const BIG: (usize, usize) = (40, 10);
const SMALL: (usize, usize) = (6, 2);
const JOBS: usize = BIG.0 + SMALL.0;
/// The most jobs of `big` between two of `small`. Without turns, all waiting jobs of `big` could come
/// between them.
const BETWEEN: usize = 5;
/// The upstream answers each n-th request with 429, and then refuses all requests for some seconds.
const STOP_EVERY: u64 = 20;
const STOP_S: u64 = 2;
/// How long the upstream takes for a request: long enough that all slots are taken, and so short
/// that without a rate the workers would exceed the upstream's limit.
const PAUSE_MS: u64 = 150;
const LEASE_MS: u64 = 3_000;

/// What the upstream saw, by its log.
#[derive(Default)]
struct Seen {
    /// When each request began: Unix microseconds, in order.
    begun_us: Vec<u64>,
    /// The job of each of these requests.
    begun: Vec<String>,
    ended: HashSet<String>,
    running: usize,
    most_at_once: usize,
    refused: usize,
    /// For each stop, how many requests came before it was over.
    early: Vec<usize>,
}

impl Seen {
    /// Reads lines `TIME begin|end|refused|stop|early JOB`, in the order in which they happened.
    fn read(log: &Path) -> Self {
        let mut seen = Self::default();
        for line in fs::read_to_string(log).expect("a log").lines() {
            let [time_us, event, job] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            let time_us = time_us.parse().expect("a time");
            match event {
                "begin" => {
                    seen.begun_us.push(time_us);
                    seen.begun.push(job.to_string());
                    seen.running += 1;
                    seen.most_at_once = seen.most_at_once.max(seen.running);
                }
                "end" => {
                    seen.running -= 1;
                    seen.ended.insert(job.to_string());
                }
                "stop" => seen.early.push(0),
                "early" => *seen.early.last_mut().expect("a stop") += 1,
                _ => seen.refused += 1,
            }
        }
        seen
    }

    /// The most requests that began within any one period.
    fn most_in_a_period(&self) -> usize {
        let within = |first_us: &u64| {
            let end_us = first_us + PERIOD_MS * 1_000;
            self.begun_us.iter().filter(|&at| (*first_us..end_us).contains(at)).count()
        };
        self.begun_us.iter().map(within).max().unwrap_or(0)
    }

    /// The most jobs of `big` that began between two of `small`, while `small` had more jobs in line.
    fn most_between_small_ones(&self) -> usize {
        let small = self.begun.iter().enumerate().filter(|(_, job)| job.starts_with("small"));
        let places: Vec<usize> = small.map(|(place, _)| place).collect();
        places.windows(2).map(|two| two[1] - two[0] - 1).max().unwrap_or(usize::MAX)
    }
}

/// The hold that a killed worker left behind.
struct Orphan {
    id: String,
    left: Duration,
    since: Instant,
}

#[test]
fn a_pool_of_workers_keeps_to_the_limits_of_its_upstream() {
    // On a busy machine a worker may be suspended after its admission, so that its request comes late.
    machine::alone();
    let flavor = server::all().into_iter().find(|flavor| flavor.name == "redis-7.0");
    let server = flavor.expect("redis-7.0 is in the matrix").start();
    let mut c = server.connect();
    let dir = TempDir::new().expect("a temporary folder");
    let log = dir.path().join("upstream.log");
    let jobs_of =
        |flow: &str, jobs| (0..jobs).map(|job| format!("{flow}-{job}")).collect::<Vec<_>>();
    let (big, small) = (jobs_of("big", BIG.0), jobs_of("small", SMALL.0));
    let () = ask(&mut c, &format!("RPUSH upstream:big:jobs {}", big.join(" ")));

    let upstream = upstream(&log);
    let redis = format!("redis://127.0.0.1:{}", server.port());
    let [port, lease_ms] = [upstream.port().to_string(), LEASE_MS.to_string()];
    let line = ["--redis", &redis, "--upstream", &port, "--lease-ms", &lease_ms];
    let pool = |flow, workers: usize| {
        let of_flow = ["--flow", flow, "--workers", &workers.to_string()];
        Program::start("pool/pool.py", &[&line[..], &of_flow, &RULES].concat())
    };
    let pools = [pool("big", BIG.1), pool("small", SMALL.1)];
    eventually("the line to be full of jobs of big", || {
        info(&mut c, "ratelimit", "ratelimit_waiting_clients") as usize >= BIG.1 - SLOTS - 1
    });
    let () = ask(&mut c, &format!("RPUSH upstream:small:jobs {}", small.join(" ")));
    eventually("some jobs to be done", || done(&mut c).len() >= JOBS / 6);

    let orphan = kill_a_worker(&mut c);
    eventually("its slot to come back", || holds(&mut c).iter().all(|(id, _)| *id != orphan.id));
    let after = orphan.since.elapsed();
    assert!(after + Duration::from_millis(50) >= orphan.left, "{after:?} of {:?}", orphan.left);

    eventually("all jobs to be done", || done(&mut c).len() >= JOBS);
    eventually("all slots to be free", || {
        remaining(&mut c, "RL.PEEK upstream slots:3") == SLOTS as i64
    });
    pools.into_iter().for_each(Program::stop);
    let jobs = [big, small].concat();
    let mut finished = done(&mut c);
    finished.sort();
    let mut wanted = jobs.clone();
    wanted.sort();
    assert_eq!(finished, wanted, "each job once");
    assert_eq!(ask::<i64>(&mut c, "EXISTS upstream:big:jobs upstream:small:jobs"), 0);

    let seen = Seen::read(&log);
    assert!(jobs.iter().all(|job| seen.ended.contains(job)), "the upstream did each job");
    assert_eq!(seen.refused, 0, "more than the upstream allows");
    assert!(seen.early.len() >= 2, "the upstream said stop {} times", seen.early.len());
    // Each worker that is told to stop pauses the key before it frees its slot, so after a stop each
    // of the other slots is used once at most.
    let most_early = seen.early.iter().max().copied().unwrap_or_default();
    assert!(most_early < SLOTS, "a client was admitted while the key was paused: {:?}", seen.early);
    let between = seen.most_between_small_ones();
    assert!(between <= BETWEEN, "{between} jobs of big between two of small: {:?}", seen.begun);
    assert_eq!(seen.most_at_once, SLOTS, "all slots are used, and no more");
    assert!(seen.most_in_a_period() <= REQUESTS, "{} in a period", seen.most_in_a_period());
    let mut counted = |name| info(&mut c, "ratelimit", &format!("ratelimit_{name}")) as usize;
    assert_eq!(counted("holds_taken") - counted("holds_settled"), 1, "one hold lapsed");
    // The worker may have died before it reached the upstream.
    let asked = seen.begun_us.len() + seen.early.len() + seen.early.iter().sum::<usize>();
    assert!(counted("holds_taken") - asked <= 1, "each request has its hold");
    assert!(counted("waits_admitted") > JOBS / 2, "the workers waited in line");
}

fn upstream(log: &Path) -> Program {
    let limits = [
        ("--at-once", SLOTS as u64),
        ("--requests", REQUESTS as u64),
        ("--period-ms", PERIOD_MS),
        ("--pause-ms", PAUSE_MS),
        ("--stop-every", STOP_EVERY),
        ("--stop-s", STOP_S),
    ];
    let mut options = vec!["--log".to_string(), log.to_str().expect("text").to_string()];
    options.extend(limits.into_iter().flat_map(|(name, value)| [name.into(), value.to_string()]));
    Program::start("pool/upstream.py", &options)
}

fn done(c: &mut Connection) -> Vec<String> {
    ask(c, "LRANGE upstream:done 0 -1")
}

/// The ids of the live holds and the time left of each, the next to end first.
fn holds(c: &mut Connection) -> Vec<(String, Duration)> {
    let info: Option<HashMap<String, Value>> = ask(c, "RL.INFO upstream");
    let Some(next) = info.and_then(|mut info| info.remove("next_holds")) else { return Vec::new() };
    let next: Vec<HashMap<String, Value>> = Vec::from_redis_value(next).expect("maps");
    let read = |mut hold: HashMap<String, Value>| {
        let (id, ttl_ms) =
            (hold.remove("id").expect("an id"), hold.remove("ttl_ms").expect("a time"));
        let ttl_ms = u64::from_redis_value(ttl_ms).expect("milliseconds");
        (String::from_redis_value(id).expect("text"), Duration::from_millis(ttl_ms))
    };
    next.into_iter().map(read).collect()
}

/// Kills a worker that has a slot; the hold's id names the process.
fn kill_a_worker(c: &mut Connection) -> Orphan {
    let mut orphan = None;
    eventually("a worker to die with a slot", || {
        // The hold that ends last was taken last, so its job still takes longest.
        let Some((id, _)) = holds(c).pop() else { return false };
        let pid = id.split('.').nth(1).and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
        let pid = pid.expect("a process");
        kill_process(pid, Signal::KILL).expect("it lived");
        eventually("the worker to be gone", || !Path::new(&format!("/proc/{pid}")).exists());
        let since = Instant::now();
        let left = holds(c).into_iter().find(|(held, _)| *held == id);
        orphan = left.map(|(id, left)| Orphan { id, left, since });
        orphan.is_some()
    });
    orphan.expect("a hold")
}
