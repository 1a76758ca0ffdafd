//! Clients wait in line, in flows, settle, hang up, and are killed and unblocked. Meanwhile keys are
//! paused and synced, and the server saves, forgets keys and fails over to its replica. No client is
//! admitted beyond the rules or in a pause, and each gets its answer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, RedisError, RedisResult, Value, from_redis_value};

use super::judge::{BURST, Judge, LEASE, RATE, SLOTS};
use crate::support::client::{ask, attempt, digest, eventually_linked, replica_of, replicated};
use crate::support::dump::assert_calm;
use crate::support::server::{self, Flavor, Server, eventually};
use crate::support::traffic::Flag;
use crate::support::waiters::waiting;
use crate::support::watchdog::{Line, Watchdog};

const CLIENTS: usize = 12;
const KEYS: usize = 3;
/// The longest that a client waits.
const PATIENCE_MS: u64 = 1_500;
/// How late an answer may be, on a busy machine.
const LATE: Duration = Duration::from_secs(10);
/// How often something happens to clients and servers.
const TURN: Duration = Duration::from_millis(120);

/// What the clients and the disturber share.
struct Stage {
    judge: Judge,
    /// The port of the primary.
    primary: AtomicU16,
    /// By the ports of the servers.
    watchdogs: BTreeMap<u16, Watchdog>,
    over: Flag,
}

/// The rule of the keys that count units.
fn units() -> String {
    format!("bucket:{RATE}/s,burst={BURST}")
}

/// How often each thing happened.
type Tally = BTreeMap<&'static str, u64>;

#[test]
fn no_waiter_is_lost_or_admitted_beyond_the_rules() {
    let seed = super::seed();
    println!("RATELIMIT_SOAK_SEED={seed}");
    server::on_each_at_once(|flavor| run(flavor, super::length(), seed));
}

fn run(flavor: Flavor, length: Duration, seed: u64) {
    let first = flavor.start();
    let second = replica_of(&first);
    let stage = Stage {
        judge: Judge::new(),
        primary: AtomicU16::new(first.port()),
        watchdogs: [&first, &second].map(|server| (server.port(), Watchdog::over(server))).into(),
        over: Flag::default(),
    };
    let tally = thread::scope(|scope| {
        let stage = &stage;
        let clients = (0..CLIENTS).map(|number| {
            let random = fastrand::Rng::with_seed(seed.wrapping_add(1 + number as u64));
            scope.spawn(move || Client { stage, number, random, requests: 0 }.run())
        });
        let clients: Vec<_> = clients.collect();
        let servers = [&first, &second];
        let over = stage.over.raise_on_drop();
        let tally = disturb(stage, servers, length, fastrand::Rng::with_seed(seed));
        drop(over);
        let requests: u64 = clients.into_iter().map(|client| client.join().expect("ended")).sum();
        println!(
            "{}: {requests} requests, {} admitted, {tally:?}",
            flavor.name,
            stage.judge.admitted()
        );
        tally
    });
    assert_eq!(stage.judge.faults(), [""; 0]);
    stage.watchdogs.values().for_each(Watchdog::assert_quiet);
    assert!(stage.judge.admitted() as f64 > 20.0 * length.as_secs_f64(), "hardly any admitted");
    assert!(
        ["take over", "flush", "kill", "consume", "pause", "sync", "save"]
            .iter()
            .all(|what| tally[what] > 0),
        "{tally:?}"
    );
    for server in [&first, &second] {
        assert_calm(&server.log());
        let mut c = server.connect();
        eventually("nobody to wait", || waiting(&mut c) == 0);
    }
    let [primary, replica] = in_order(&stage, [&first, &second]);
    let mut c = primary.connect();
    // A key that the primary deletes meanwhile could exist only on the replica.
    let () = ask(&mut c, "DEBUG SET-ACTIVE-EXPIRE 0");
    let () = ask(&mut c, "SET last write");
    replicated(&mut c);
    assert_eq!(digest(&mut c), digest(&mut replica.connect()));
}

/// A client that asks for slots and units, and sometimes misbehaves.
struct Client<'a> {
    stage: &'a Stage,
    number: usize,
    random: fastrand::Rng,
    requests: u64,
}

impl Client<'_> {
    /// Runs until the end, and returns how many requests were sent.
    fn run(mut self) -> u64 {
        while !self.stage.over.is_up() {
            // Each error ends the connection, which the server or the client may have closed.
            let asked = self.connect().and_then(|(mut c, line)| {
                loop {
                    self.ask(&mut c, &line)?;
                    if self.stage.over.is_up() {
                        return Ok(());
                    }
                }
            });
            if asked.is_err() {
                thread::sleep(Duration::from_millis(self.random.u64(1..20)));
            }
        }
        self.requests
    }

    fn connect(&self) -> RedisResult<(Connection, Line)> {
        let port = self.stage.primary.load(Ordering::Relaxed);
        let connection = redis::Client::open(("127.0.0.1", port))?.get_connection()?;
        let watchdog = &self.stage.watchdogs[&port];
        Ok((connection, watchdog.line(format!("client {}", self.number))))
    }

    /// Sends one request. If it is admitted, notes this and, for a slot, settles it later.
    fn ask(&mut self, c: &mut Connection, watched: &Line) -> RedisResult<()> {
        let judge = &self.stage.judge;
        let patience_ms = self.random.u64(..PATIENCE_MS);
        let key = self.random.usize(..KEYS);
        let period = judge.period();
        self.requests += 1;
        let (weight, priority) = (self.random.u8(1..4), self.random.u8(..8) / 7);
        let turn = format!("FLOW {} WEIGHT {weight} PRIORITY {priority}", self.number % 3);
        let turn = if self.number < 9 { turn + " " } else { String::new() };
        let sent = Instant::now();
        if self.random.u8(..3) == 0 {
            let key = format!("rate{key}");
            let line = format!("RL.WAIT {key} {patience_ms} {turn}{}", units());
            if self.answer(c, watched, &line, patience_ms)? == 0 {
                judge.consumed(&key, period, sent);
            }
            return Ok(());
        }
        let (key, id) = (format!("slots{key}"), format!("{}-{}", self.number, self.requests));
        let lease_s = LEASE.as_secs();
        let rest = format!("{turn}HOLD {id} EX {lease_s} slots:{SLOTS}");
        let line = format!("RL.WAIT {key} {patience_ms} {rest}");
        if self.random.u8(..20) == 0 {
            return self.hang_up(c, &line);
        }
        if self.answer(c, watched, &line, patience_ms)? != 0 {
            return Ok(());
        }
        let slot = judge.took_slot(&key, period, sent);
        thread::sleep(Duration::from_millis(self.random.u64(..10)));
        judge.gives_slot_back(&key, slot);
        // A client that dies keeps its slot until its hold lapses.
        if self.random.u8(..10) > 0 {
            let line = format!("RL.SETTLE {key} {id}");
            watched.during(&*line, || attempt(c, &line))?;
        }
        Ok(())
    }

    /// The verdict of a request. An answer that comes too late is a fault.
    fn answer(
        &self,
        c: &mut Connection,
        watched: &Line,
        line: &str,
        patience_ms: u64,
    ) -> RedisResult<i64> {
        let (start, patience) = (Instant::now(), Duration::from_millis(patience_ms));
        c.set_read_timeout(Some(patience + LATE))?;
        watched.asks_for(line, patience);
        let reply = attempt(c, line);
        watched.is_answered();
        if let Err(error) = &reply
            && error.is_timeout()
        {
            self.stage.judge.fault(format!("{line}: no answer in {:?}", start.elapsed()));
        }
        let integers: Vec<i64> = from_redis_value(reply?)?;
        integers.first().copied().ok_or_else(|| RedisError::from((redis::ErrorKind::Parse, "none")))
    }

    /// Sends a request, and leaves before the answer or just as it comes.
    fn hang_up(&mut self, c: &mut Connection, line: &str) -> RedisResult<()> {
        c.set_read_timeout(Some(Duration::from_millis(self.random.u64(1..200))))?;
        attempt(c, line).map(drop)?;
        Err(RedisError::from((redis::ErrorKind::Io, "hung up")))
    }
}

/// Disturbs clients and servers until the end.
fn disturb(
    stage: &Stage,
    servers: [&Server; 2],
    length: Duration,
    mut random: fastrand::Rng,
) -> Tally {
    let start = Instant::now();
    let mut tally = Tally::new();
    while start.elapsed() < length {
        thread::sleep(TURN);
        let [primary, replica] = in_order(stage, servers);
        let mut c = primary.connect();
        // The first turns of a run all differ, so that a short run has every kind.
        let done: u64 = tally.values().sum();
        let what = match if done < 10 { done } else { random.u64(..37) } {
            0 => {
                take_over(stage, primary, replica);
                "take over"
            }
            1 => {
                let () = stage.judge.between_periods(|| ask(&mut c, "FLUSHALL"));
                "flush"
            }
            2 | 10..=11 => {
                let key = format!("slots{}", random.usize(..KEYS));
                let () = stage.judge.between_periods(|| ask(&mut c, &format!("DEL {key}")));
                "delete"
            }
            3 | 12..=16 => {
                on_a_waiter(&mut c, &mut random, |id| format!("CLIENT KILL ID {id}"));
                "kill"
            }
            4 | 17..=21 => {
                let how = *random.choice(["", "TIMEOUT", "ERROR"].iter()).expect("one");
                on_a_waiter(&mut c, &mut random, |id| format!("CLIENT UNBLOCK {id} {how}"));
                "unblock"
            }
            5 | 22..=25 => {
                consume_beside_the_line(&mut c, &mut random);
                "consume"
            }
            6 | 26..=29 => {
                pause_or_resume(stage, &mut c, &mut random);
                "pause"
            }
            7 | 30..=31 => {
                let line = format!("RL.SYNC rate{} REMAINING", random.usize(..KEYS));
                let units: f64 = ask(&mut c, &format!("{line} {} {}", random.u8(..4), units()));
                assert!(units <= BURST, "a sync consumed {units}");
                "sync"
            }
            8 | 32..=34 => {
                // A server refuses one of these while the other runs.
                let save = ["BGSAVE", "BGREWRITEAOF"];
                drop(attempt(&mut c, random.choice(save.iter()).expect("one")));
                "save"
            }
            _ => {
                let limit = random.u32(1..9);
                let () = ask(&mut c, &format!("RL.POLICY SET other {limit}/s"));
                "policy"
            }
        };
        *tally.entry(what).or_default() += 1;
    }
    tally
}

/// Pauses a key, like after a refusal by an upstream, or resumes it.
fn pause_or_resume(stage: &Stage, c: &mut Connection, random: &mut fastrand::Rng) {
    let key = format!("{}{}", if random.bool() { "rate" } else { "slots" }, random.usize(..KEYS));
    if random.u8(..3) == 0 {
        stage.judge.resumes(&key);
        let _: i64 = ask(c, &format!("RL.RESUME {key}"));
    } else {
        let (asked, ms) = (Instant::now(), random.u64(1..500));
        let _: i64 = ask(c, &format!("RL.PAUSE {key} PX {ms}"));
        stage.judge.paused(&key, asked, Duration::from_millis(ms));
    }
}

/// Another caller, whose burst is larger than that of the clients in line, takes units from their bucket
/// and gives some back.
fn consume_beside_the_line(c: &mut Connection, random: &mut fastrand::Rng) {
    let (key, id) = (format!("rate{}", random.usize(..KEYS)), random.u64(..));
    let (cost, burst) = (random.u32(1..20), 20);
    let line = format!("RL.CHECK {key} COST {cost} HOLD {id} PX 500 REFUND");
    let reply: Vec<i64> = ask(c, &format!("{line} bucket:{RATE}/s,burst={burst}"));
    if reply[0] == 0 && random.bool() {
        let _: i64 = ask(c, &format!("RL.SETTLE {key} {id} COST {}", random.u32(..cost)));
    }
}

/// The primary, then its replica.
fn in_order<'a>(stage: &Stage, [first, second]: [&'a Server; 2]) -> [&'a Server; 2] {
    let is_first = first.port() == stage.primary.load(Ordering::Relaxed);
    if is_first { [first, second] } else { [second, first] }
}

/// The replica becomes the primary, and the primary its replica.
fn take_over(stage: &Stage, primary: &Server, replica: &Server) {
    stage.judge.between_periods(|| {
        let () = ask(&mut replica.connect(), "REPLICAOF NO ONE");
        stage.primary.store(replica.port(), Ordering::Relaxed);
        let line = format!("REPLICAOF 127.0.0.1 {}", replica.port());
        let () = ask(&mut primary.connect(), &line);
    });
    eventually_linked(primary);
}

/// Does something to one of the waiting clients.
fn on_a_waiter(c: &mut Connection, random: &mut fastrand::Rng, line: impl Fn(&str) -> String) {
    let clients: String = ask(c, "CLIENT LIST");
    let waiters: Vec<_> = clients.lines().filter(|client| client.contains("cmd=rl.wait")).collect();
    if let Some(waiter) = random.choice(waiters.iter()) {
        let id = waiter.split(' ').find_map(|field| field.strip_prefix("id=")).expect("an id");
        // It may have left meanwhile.
        let _: RedisResult<Value> = attempt(c, line(id).trim_end());
    }
}
