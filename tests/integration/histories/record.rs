//! Clients that call at once, and what they saw.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Cmd, ConnectionLike, RedisResult, Script, Value, cmd, from_redis_value, pipe};

use super::call::{Call, Theme, policies};
use super::model::Reply;
use crate::support::client::{ask, lock_out, replicated};
use crate::support::server::cluster::Cluster;
use crate::support::server::{DEADLINE, Server, eventually};

const CLIENTS: usize = 5;
/// How many calls a client makes in a history.
const CALLS: usize = 24;
/// How often the connections of all clients are cut.
const CUTS: usize = 4;
/// A client's longest pause before a call while a slot moves: the calls last as long as the move.
const MOVE_PAUSE_MS: u64 = 120;
/// How long a client waits for a replica to confirm a call.
const CONFIRM_MS: u64 = 30;
const DAY_MS: i64 = 86_400_000;

/// What happens while clients call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    None,
    /// The clients' connections are cut, and the clients repeat calls that got no reply.
    Disconnect,
    /// The server is killed and starts again from its append-only file.
    Kill,
}

/// One call. The begins and ends of all calls are numbered in their order.
#[derive(Clone, Debug)]
pub struct Seen {
    pub call: Call,
    pub begin: u64,
    /// The end and the reply; `None` if the connection broke before.
    pub end: Option<(u64, Reply)>,
    /// Whether the call wrote, and a replica confirmed the write to `WAIT`.
    pub confirmed: bool,
}

/// The link to the replica when its primary is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Up,
    /// The link was cut some calls earlier.
    Cut,
}

/// A history of a primary, and of the replica that was promoted after the primary was killed.
pub struct Failover {
    pub calls: Vec<Seen>,
    /// When the primary was dead, as a number in the order of begins and ends.
    pub killed: u64,
}

/// Records a history of a server.
pub fn record(
    server: &mut Server,
    group: &str,
    theme: Theme,
    disturbance: Disturbance,
    mut random: fastrand::Rng,
) -> Vec<Seen> {
    set_policies(group, &mut server.connect());
    let client = server.client();
    let connect: &Connect = &|| Ok(Box::new(client.get_connection()?));
    let callers =
        Callers { connect, group, theme, pause_ms: 0, transactions: true, confirms: false };
    let mut calls = random.fork();
    let mut pause = || thread::sleep(Duration::from_millis(random.u64(2..12)));
    callers.record(&mut calls, |_| match disturbance {
        Disturbance::None => {}
        Disturbance::Disconnect => {
            let mut admin = server.connect();
            for _ in 0..CUTS {
                pause();
                let cut = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
                let _: i64 = command(&cut).query(&mut admin).expect("an administrator");
            }
        }
        Disturbance::Kill => {
            pause();
            server.kill9();
            server.resume();
        }
    })
}

/// Records a history of keys while `meanwhile` moves their slot.
pub fn record_moves(
    cluster: &Cluster,
    group: &str,
    mut random: fastrand::Rng,
    meanwhile: impl FnOnce(),
) -> Vec<Seen> {
    let client = cluster.client();
    let connect: &Connect = &|| Ok(Box::new(client.get_connection()?));
    // Each node has its own policies, and a connection to a cluster cannot send transactions.
    let theme = Theme::Holds;
    let callers = Callers {
        connect,
        group,
        theme,
        pause_ms: MOVE_PAUSE_MS,
        transactions: false,
        confirms: false,
    };
    callers.record(&mut random, |_| meanwhile())
}

/// Records a history in which the primary is killed, and its clients go on with the replica. Clients
/// send `WAIT` after a third of the calls that wrote.
pub fn record_failover(
    primary: &mut Server,
    replica: &Server,
    group: &str,
    theme: Theme,
    link: Link,
    mut random: fastrand::Rng,
) -> Failover {
    let mut admin = primary.connect();
    set_policies(group, &mut admin);
    replicated(&mut admin);
    let clients = [primary.client(), replica.client()];
    let promoted = AtomicBool::new(false);
    let connect: &Connect = &|| {
        let client = &clients[usize::from(promoted.load(Ordering::SeqCst))];
        Ok(Box::new(client.get_connection()?))
    };
    let callers =
        Callers { connect, group, theme, pause_ms: 1, transactions: true, confirms: true };
    let (before_cut, after_cut) = (random.u64(30..100), random.u64(20..60));
    let mut killed = 0;
    let mut calls = callers.record(&mut random, |clock| {
        reaches(clock, before_cut);
        if link == Link::Cut {
            lock_out(&mut replica.connect());
            let _: i64 = ask(&mut admin, "CLIENT KILL TYPE replica");
            reaches(clock, before_cut + after_cut);
        }
        primary.kill9();
        killed = clock.fetch_add(1, Ordering::SeqCst);
        let () = ask(&mut replica.connect(), "REPLICAOF NO ONE");
        promoted.store(true, Ordering::SeqCst);
    });
    // Calls that clients sent to the dead primary did not happen.
    calls.retain(|seen| seen.end.is_some() || seen.begin < killed);
    Failover { calls, killed }
}

/// Waits until the clock has counted this many begins and ends of calls, which may take less than a
/// millisecond.
fn reaches(clock: &AtomicU64, number: u64) {
    let start = Instant::now();
    while clock.load(Ordering::SeqCst) < number {
        assert!(start.elapsed() < *DEADLINE, "clients make no progress");
        thread::yield_now();
    }
}

type Connect<'a> = dyn Fn() -> RedisResult<Box<dyn ConnectionLike>> + Sync + 'a;

/// Clients that call at once.
#[derive(Clone, Copy)]
struct Callers<'a> {
    connect: &'a Connect<'a>,
    group: &'a str,
    theme: Theme,
    /// The longest pause before a call.
    pause_ms: u64,
    transactions: bool,
    /// Whether they send `WAIT` after some calls.
    confirms: bool,
}

impl Callers<'_> {
    fn record(self, random: &mut fastrand::Rng, meanwhile: impl FnOnce(&AtomicU64)) -> Vec<Seen> {
        let clock = AtomicU64::new(0);
        thread::scope(|scope| {
            let callers: Vec<_> = (0..CLIENTS)
                .map(|_| (random.fork(), &clock))
                .map(|(random, clock)| scope.spawn(move || self.calls(random, clock)))
                .collect();
            meanwhile(&clock);
            callers.into_iter().flat_map(|caller| caller.join().expect("a client")).collect()
        })
    }

    /// The calls of one client.
    fn calls(self, mut random: fastrand::Rng, clock: &AtomicU64) -> Vec<Seen> {
        let now = || clock.fetch_add(1, Ordering::SeqCst);
        let (mut c, mut seen, mut unanswered) = (self.connected(), Vec::new(), None);
        while seen.len() < CALLS {
            thread::sleep(Duration::from_millis(random.u64(0..=self.pause_ms)));
            let call = match unanswered.take() {
                Some(call) => call,
                None => {
                    let position = seen.len() as f64 / CALLS as f64;
                    Call::random(self.theme, position, &mut random)
                }
            };
            let begin = now();
            let end = match self.send(&mut *c, &call, &mut random) {
                Ok(reply) => Some((now(), reply)),
                Err(error) if error.is_io_error() || error.is_connection_dropped() => {
                    c = self.connected();
                    unanswered = Some(call.clone());
                    None
                }
                // The slot moved while the client waited, so the server did not decide the call.
                Err(error) if error.code() == Some("UNBLOCKED") => continue,
                Err(error) => panic!("{call:?}: {error}"),
            };
            let wrote = end.as_ref().is_some_and(|(_, reply)| writes(&call, reply));
            let confirmed = self.confirms && wrote && random.u32(..3) == 0 && {
                let replicas = cmd("WAIT").arg(1).arg(CONFIRM_MS).query(&mut *c);
                replicas.is_ok_and(|replicas: u32| replicas > 0)
            };
            seen.push(Seen { call, begin, end, confirmed });
        }
        seen
    }

    /// Connects as soon as the server answers. While the server loads its file, it does not answer.
    fn connected(self) -> Box<dyn ConnectionLike> {
        let mut connected = None;
        eventually("a connection", || {
            connected = (self.connect)().ok();
            connected.as_mut().is_some_and(|c| cmd("PING").query::<()>(&mut **c).is_ok())
        });
        connected.expect("a connection")
    }

    fn send(
        self,
        c: &mut dyn ConnectionLike,
        call: &Call,
        random: &mut fastrand::Rng,
    ) -> RedisResult<Reply> {
        let words = call.words(self.group);
        let is_plain = matches!(call, Call::Wait { .. } | Call::SetPolicy { .. });
        let reply = match random.u32(..8) {
            0 if !is_plain && self.transactions => {
                let [reply]: [Value; 1] = pipe().atomic().add_command(command(&words)).query(c)?;
                reply
            }
            1 if !is_plain => {
                let script = Script::new("return redis.call(unpack(ARGV))");
                let mut script = script.prepare_invoke();
                // While a slot moves, the server finds the node by the keys that a script declares.
                for key in words.iter().filter(|word| word.starts_with('{')) {
                    script.key(key);
                }
                script.arg(&words).invoke(c)?
            }
            _ => command(&words).query(c)?,
        };
        Ok(read(call, reply))
    }
}

fn set_policies(group: &str, c: &mut redis::Connection) {
    for words in policies(group) {
        let () = command(&words).query(c).expect("a policy");
    }
}

fn command<T: AsRef<str>>(words: &[T]) -> Cmd {
    let mut command = Cmd::new();
    words.iter().for_each(|word| {
        command.arg(word.as_ref());
    });
    command
}

/// Whether a call with this reply has certainly written.
fn writes(call: &Call, reply: &Reply) -> bool {
    match (call, reply) {
        (Call::Peek { .. } | Call::At { peek: true, .. }, _) => false,
        (_, Reply::Ok | Reply::Days(_)) => true,
        (_, Reply::Number(number)) => *number > 0,
        (_, Reply::Decision { verdict, .. } | Reply::Timed([verdict, ..])) => *verdict == 0,
    }
}

fn read(call: &Call, value: Value) -> Reply {
    let days = |ms: i64| if ms < 0 { ms } else { (ms + DAY_MS - 1) / DAY_MS };
    match value {
        Value::Okay => Reply::Ok,
        Value::Int(ms) if matches!(call, Call::Pause { .. }) => Reply::Days(days(ms)),
        Value::Int(number) => Reply::Number(number),
        value if matches!(call, Call::At { .. }) => {
            Reply::Timed(from_redis_value(value).expect("five integers"))
        }
        value => {
            let all: Vec<i64> = from_redis_value(value).expect("integers");
            let [verdict, limit, remaining, wait_ms, _, ..] = all[..] else { panic!("{all:?}") };
            let wait_days = days(wait_ms);
            Reply::Decision { verdict, limit, remaining, wait_days, chosen: all.get(5).copied() }
        }
    }
}
