//! On each server, fifty clients check, wait in flows, hold, pause and sync as fast as they can.
//! Meanwhile the server saves and rewrites, a replica comes and goes, settings change, clients are
//! killed, and keys are flushed and evicted. The test judges each admission by the server's `TIME`
//! before and after it. The units that a sync consumes count as one admission.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, ConnectionLike, RedisResult, Value, from_redis_value, pipe};

use super::laws::{Admission, Law};
use super::ledger::Ledger;
use crate::support::client::{
    ask, attempt, command, digest, eventually_linked, info, now_us, replicated,
};
use crate::support::dump::assert_calm;
use crate::support::files::with_aof;
use crate::support::server::{self, Flavor, Server, eventually};
use crate::support::traffic::Flag;
use crate::support::watchdog::{Line, Watchdog};

const CLIENTS: usize = 50;
/// How often something happens to the server.
const TURN: Duration = Duration::from_millis(150);
/// How long a hold lasts, unless it is settled.
const LEASE: Duration = Duration::from_millis(300);
/// The longest wait.
const PATIENCE: Duration = Duration::from_millis(40);

const SECOND: i64 = 1_000_000;
const TENTH: i64 = SECOND / 10;

/// The rules of each key, and the laws that they must obey.
const KEYS: [(&str, &[Law]); 12] = [
    ("log:40/s", &[Law::Log { limit: 40, window_us: SECOND }]),
    ("log:7/100ms", &[Law::Log { limit: 7, window_us: TENTH }]),
    (
        "log:5/100ms log:30/s",
        &[Law::Log { limit: 5, window_us: TENTH }, Law::Log { limit: 30, window_us: SECOND }],
    ),
    ("fixed:50/s", &[Law::Fixed { limit: 50, window_us: SECOND }]),
    ("fixed:9/100ms", &[Law::Fixed { limit: 9, window_us: TENTH }]),
    ("window:40/s", &[Law::Window { limit: 40, window_us: SECOND }]),
    ("window:8/100ms", &[Law::Window { limit: 8, window_us: TENTH }]),
    ("bucket:50/s,burst=5", &[Law::Flow { burst: 5, units: 50, window_us: SECOND }]),
    ("bucket:300/s,burst=20", &[Law::Flow { burst: 20, units: 300, window_us: SECOND }]),
    ("leaky:80/s,queue=3", &[Law::Flow { burst: 4, units: 80, window_us: SECOND }]),
    (
        "fixed:60/s bucket:100/s,burst=9 log:12/100ms",
        &[
            Law::Fixed { limit: 60, window_us: SECOND },
            Law::Flow { burst: 9, units: 100, window_us: SECOND },
            Law::Log { limit: 12, window_us: TENTH },
        ],
    ),
    ("slots:5", &[Law::Slots { limit: 5 }]),
];
/// The key with slots.
const SLOTS: usize = KEYS.len() - 1;

/// What the clients and the disturber share.
struct Stage<'a> {
    server: &'a Server,
    watchdog: Watchdog,
    ledger: Ledger,
    requests: AtomicU64,
    denied: AtomicU64,
    faults: AtomicU64,
    pauses: AtomicU64,
    synced: AtomicU64,
    over: Flag,
}

#[test]
fn no_admission_exceeds_the_rules() {
    let seed = super::seed();
    println!("RATELIMIT_SOAK_SEED={seed}");
    server::on_each_at_once(|flavor| run(flavor, super::length(), seed));
}

fn run(flavor: Flavor, length: Duration, seed: u64) {
    let server = with_aof(flavor.builder(), seed.is_multiple_of(2)).start();
    let stage = Stage {
        server: &server,
        watchdog: Watchdog::over(&server),
        ledger: Ledger::default(),
        requests: AtomicU64::new(0),
        denied: AtomicU64::new(0),
        faults: AtomicU64::new(0),
        pauses: AtomicU64::new(0),
        synced: AtomicU64::new(0),
        over: Flag::default(),
    };
    let (tally, replica) = thread::scope(|scope| {
        for number in 0..CLIENTS {
            let random = fastrand::Rng::with_seed(seed.wrapping_add(1 + number as u64));
            let (line, stage) = (stage.watchdog.line(format!("client {number}")), &stage);
            scope.spawn(move || Client { stage, line, number, random, holds: 0 }.run());
        }
        let _over = stage.over.raise_on_drop();
        disturb(&stage, length, fastrand::Rng::with_seed(seed))
    });
    let breaches: Vec<_> = KEYS
        .iter()
        .enumerate()
        .flat_map(|(key, (rules, laws))| {
            let breaches = stage.ledger.breaches(key, laws);
            breaches.into_iter().map(move |breach| format!("k{key} {rules}: {breach}"))
        })
        .collect();
    let [requests, denied, faults, pauses, synced] =
        [&stage.requests, &stage.denied, &stage.faults, &stage.pauses, &stage.synced]
            .map(|count| count.load(Ordering::Relaxed));
    let counts = stage.ledger.counts();
    println!(
        "{}: {requests} requests, {denied} denied, {faults} refused or lost, {pauses} pauses, \
         {synced} units synced, admitted {counts:?}, {tally:?}",
        flavor.name
    );
    assert_eq!(breaches, [""; 0], "{}", flavor.name);
    assert_eq!(counts.len(), KEYS.len(), "each key admits some: {counts:?}");
    assert!(denied > requests / 100, "hardly any denied");
    assert!(pauses > 0 && synced > 0, "{pauses} pauses, {synced} units synced");
    assert!(TURNS.iter().all(|(what, _)| tally.contains_key(what)), "{tally:?}");
    stage.watchdog.assert_quiet();
    assert_calm(&server.log());
    let mut c = server.connect();
    assert!(info(&mut c, "stats", "evicted_keys") > 0.0, "no key was evicted");
    eventually_linked(&replica);
    let () = ask(&mut c, "SET last write");
    replicated(&mut c);
    let () = ask(&mut c, "FLUSHALL");
    replicated(&mut c);
    assert_eq!(digest(&mut c), digest(&mut replica.connect()));
}

/// A reply, and the server's clock before and after the command.
struct Timed {
    from_us: i64,
    reply: Value,
    to_us: i64,
}

/// Sends a command between two calls of `TIME`.
fn timed(c: &mut Connection, line: &str) -> RedisResult<Timed> {
    let asked = pipe().cmd("TIME").add_command(command(line)).cmd("TIME").get_packed_pipeline();
    let replies = c.req_packed_commands(&asked, 0, 3)?;
    let [before, reply, after] = <[Value; 3]>::try_from(replies).expect("three replies");
    let us = |time: Value| -> RedisResult<i64> {
        let (seconds, micros): (i64, i64) = from_redis_value(time)?;
        Ok(seconds * SECOND + micros)
    };
    Ok(Timed { from_us: us(before)?, reply, to_us: us(after)? })
}

/// A client that sends one request after another.
struct Client<'a> {
    stage: &'a Stage<'a>,
    line: Line,
    number: usize,
    random: fastrand::Rng,
    holds: u64,
}

impl Client<'_> {
    fn run(mut self) {
        while !self.stage.over.is_up() {
            // Each error ends the connection, which the server may have closed.
            let asked = self.stage.server.client().get_connection().and_then(|mut c| {
                while !self.stage.over.is_up() {
                    self.ask(&mut c)?;
                }
                Ok(())
            });
            if asked.is_err() {
                self.stage.faults.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn ask(&mut self, c: &mut Connection) -> RedisResult<()> {
        let key = self.random.usize(..KEYS.len());
        let (rules, _) = KEYS[key];
        if key == SLOTS {
            return self.hold(c);
        }
        let units = self.random.i64(1..=3);
        match self.random.u32(..600) {
            0..30 => {
                let ms = self.random.u128(..PATIENCE.as_millis());
                let (flow, weight) = (self.random.u8(..4), self.random.u8(1..4));
                let turn = format!("FLOW {flow} WEIGHT {weight} PRIORITY {}", flow / 3);
                let line = format!("RL.WAIT k{key} {ms} {turn} COST {units} {rules}");
                self.decide(c, &line, &[key], units)
            }
            30 => return self.pause(c, key),
            // A sync of one rule may consume more than other rules of the key allow.
            31..33 if !rules.contains(' ') => return self.sync(c, key, rules),
            33..60 => {
                let other = (key + self.random.usize(1..SLOTS)) % SLOTS;
                let (others, _) = KEYS[other];
                let line =
                    format!("RL.MCHECK 2 k{key} k{other} COST {units} {rules} NEXT {others}");
                self.decide(c, &line, &[key, other], units)
            }
            _ => self.decide(c, &format!("RL.CHECK k{key} COST {units} {rules}"), &[key], units),
        }
        .map(drop)
    }

    fn pause(&self, c: &mut Connection, key: usize) -> RedisResult<()> {
        let ms = 5;
        let Timed { from_us, reply, to_us } = self.send(c, &format!("RL.PAUSE k{key} PX {ms}"))?;
        if from_redis_value::<i64>(reply).is_ok() {
            self.stage.pauses.fetch_add(1, Ordering::Relaxed);
            self.stage.ledger.pause(key, to_us, from_us + 1_000 * ms);
        }
        Ok(())
    }

    /// Lowers what remains to one unit. The units that this consumes count as admitted.
    fn sync(&self, c: &mut Connection, key: usize, rules: &str) -> RedisResult<()> {
        let line = format!("RL.SYNC k{key} REMAINING 1 {rules}");
        let Timed { from_us, reply, to_us } = self.send(c, &line)?;
        if let Ok(units @ 1..) = from_redis_value::<i64>(reply) {
            self.stage.synced.fetch_add(units.cast_unsigned(), Ordering::Relaxed);
            let admission = Admission { from_us, to_us, units, held_until_us: to_us, synced: true };
            self.stage.ledger.admit(key, admission);
        }
        Ok(())
    }

    /// Takes a hold, then settles it or lets it lapse.
    fn hold(&mut self, c: &mut Connection) -> RedisResult<()> {
        self.holds += 1;
        let (units, (rules, _)) = (self.random.i64(1..=2), KEYS[SLOTS]);
        let (id, ms) = (format!("{}-{}", self.number, self.holds), LEASE.as_millis());
        let line = format!("RL.CHECK k{SLOTS} HOLD {id} PX {ms} COST {units} {rules}");
        let Some(mut taken) = self.decide(c, &line, &[], units)? else { return Ok(()) };
        if self.random.u32(..5) > 0 {
            let settled = self.send(c, &format!("RL.SETTLE k{SLOTS} {id}"))?;
            taken.held_until_us = taken.held_until_us.min(settled.from_us);
        }
        self.stage.ledger.admit(SLOTS, taken);
        Ok(())
    }

    /// Sends a check. If it is admitted, notes it for these keys and returns it.
    fn decide(
        &self,
        c: &mut Connection,
        line: &str,
        keys: &[usize],
        units: i64,
    ) -> RedisResult<Option<Admission>> {
        let Timed { from_us, reply, to_us } = self.send(c, line)?;
        let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        let verdict = match from_redis_value::<[i64; 5]>(reply.clone()) {
            Ok([verdict, ..]) => verdict,
            // The server refuses the check, for example for lack of memory.
            Err(_) if matches!(reply, Value::ServerError(_)) => {
                count(&self.stage.faults);
                return Ok(None);
            }
            Err(error) => panic!("{line}: {reply:?}: {error}"),
        };
        if verdict != 0 {
            count(&self.stage.denied);
            return Ok(None);
        }
        let held_until_us = from_us + LEASE.as_micros() as i64;
        let admission = Admission { from_us, to_us, units, held_until_us, synced: false };
        for &key in keys {
            self.stage.ledger.admit(key, admission);
        }
        Ok(Some(admission))
    }

    fn send(&self, c: &mut Connection, line: &str) -> RedisResult<Timed> {
        self.stage.requests.fetch_add(1, Ordering::Relaxed);
        self.line.asks_for(line, PATIENCE);
        let reply = timed(c, line);
        self.line.is_answered();
        reply
    }
}

/// The disturbances. The first turns of a run are in this order.
const TURNS: [(&str, Turn); 8] = [
    ("rewrite", Turn::Rewrite),
    ("replica comes or goes", Turn::Replica),
    ("flush", Turn::Flush),
    ("evict", Turn::Evict),
    ("save", Turn::Save),
    ("kill", Turn::Kill),
    ("set", Turn::Set),
    ("policy", Turn::Policy),
];

#[derive(Clone, Copy)]
enum Turn {
    Rewrite,
    Save,
    Replica,
    Flush,
    Evict,
    Kill,
    Set,
    Policy,
}

/// How often each thing happened.
type Tally = BTreeMap<&'static str, u64>;

/// Disturbs the server until the end. Returns the replica that exists then.
fn disturb(stage: &Stage<'_>, length: Duration, mut random: fastrand::Rng) -> (Tally, Server) {
    let (start, mut tally, mut replica) = (Instant::now(), Tally::new(), None);
    let new_replica = || stage.server.flavor().builder().replica_of(stage.server).start();
    let mut turn = 0;
    while start.elapsed() < length || turn < TURNS.len() {
        thread::sleep(TURN);
        let mut c = stage.server.connect();
        let (name, what) =
            TURNS[if turn < TURNS.len() { turn } else { random.usize(..TURNS.len()) }];
        turn += 1;
        match what {
            // The server may refuse this while a save runs.
            Turn::Rewrite => drop(attempt(&mut c, "BGREWRITEAOF")),
            Turn::Save => drop(attempt(&mut c, "BGSAVE")),
            Turn::Replica => {
                replica = if replica.is_none() { Some(new_replica()) } else { None };
            }
            Turn::Flush => {
                let flushed = timed(&mut c, "FLUSHDB").expect("replies");
                stage.ledger.forgot(flushed.from_us, flushed.to_us);
            }
            Turn::Evict => evict(stage, &mut c),
            Turn::Kill => {
                let clients: String = ask(&mut c, "CLIENT LIST TYPE normal");
                let ids = clients.lines().filter_map(|line| line.strip_prefix("id="));
                let ids: Vec<_> = ids.filter_map(|rest| rest.split(' ').next()).collect();
                let id = random.choice(ids.iter()).expect("a client");
                // The id may be this connection's, or that of a client that has left.
                drop(attempt(&mut c, &format!("CLIENT KILL ID {id} SKIPME yes")));
            }
            Turn::Set => {
                let values = ["log-entries 0", "log-entries 128", "top-size 0", "top-size 500"];
                let setting = random.choice(values.iter()).expect("one");
                // 6.2 has no settings of modules.
                drop(attempt(&mut c, &format!("CONFIG SET ratelimit.{setting}")));
                let fsync = random.choice(["always", "everysec", "no"].iter()).expect("one");
                let () = ask(&mut c, &format!("CONFIG SET appendfsync {fsync}"));
            }
            Turn::Policy => {
                let limit = random.u32(1..9);
                let () = ask(&mut c, &format!("RL.POLICY SET other {limit}/s"));
            }
        }
        *tally.entry(name).or_default() += 1;
    }
    (tally, replica.unwrap_or_else(new_replica))
}

/// Sets the server's memory limit below its use until it evicts a key.
fn evict(stage: &Stage<'_>, c: &mut Connection) {
    for filler in 0..300 {
        // The server may refuse this because its memory is full.
        drop(attempt(c, &format!("SET filler{filler} {}", "x".repeat(1_000))));
    }
    let () = ask(c, "CONFIG SET maxmemory-policy allkeys-random");
    let from_us = now_us(c).cast_signed();
    let before = info(c, "stats", "evicted_keys");
    // Memory that a flush frees meanwhile may make room.
    eventually("a key to be evicted", || {
        let most = info(c, "memory", "used_memory") - 300_000.0;
        let () = ask(c, &format!("CONFIG SET maxmemory {}", most as u64));
        info(c, "stats", "evicted_keys") > before
    });
    let () = ask(c, "CONFIG SET maxmemory 0");
    stage.ledger.forgot(from_us, now_us(c).cast_signed());
}
