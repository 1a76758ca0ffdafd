//! Clients that call at once, and what they saw.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use redis::{Cmd, ConnectionLike, RedisResult, Script, Value, cmd, from_redis_value, pipe};

use super::call::{Call, POLICIES, Theme};
use super::model::Reply;
use crate::support::server::cluster::Cluster;
use crate::support::server::{Server, eventually};

const CLIENTS: usize = 5;
/// How many calls a client makes in a history.
const CALLS: usize = 24;
/// How often the connections of all clients are cut.
const CUTS: usize = 4;
/// So that a history lasts as long as its slot moves.
const MOVE_PAUSE_MS: u64 = 120;
const DAY_MS: i64 = 86_400_000;

/// What happens while clients call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    None,
    /// Their connections are cut, and they send again what had no reply.
    Disconnect,
    /// The server is killed and starts again from its append-only file.
    Kill,
}

/// One call. Numbers order the begins and ends of all calls.
#[derive(Clone, Debug)]
pub struct Seen {
    pub call: Call,
    pub begin: u64,
    /// The end and the reply; `None` if the connection broke before.
    pub end: Option<(u64, Reply)>,
}

/// Records a history of a server.
pub fn record(
    server: &mut Server,
    group: &str,
    theme: Theme,
    disturbance: Disturbance,
    mut random: fastrand::Rng,
) -> Vec<Seen> {
    let first = Call::SetPolicy { limit: POLICIES[0] };
    let () = command(&first.words(group)).query(&mut server.connect()).expect("a policy");
    let client = server.client();
    let connect: &Connect = &|| Ok(Box::new(client.get_connection()?));
    let callers = Callers { connect, group, theme, pause_ms: 0, transactions: true };
    let mut calls = random.fork();
    let mut meanwhile = || thread::sleep(Duration::from_millis(random.u64(2..12)));
    callers.record(&mut calls, || match disturbance {
        Disturbance::None => {}
        Disturbance::Disconnect => {
            let mut admin = server.connect();
            for _ in 0..CUTS {
                meanwhile();
                let cut = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
                let _: i64 = command(&cut).query(&mut admin).expect("an administrator");
            }
        }
        Disturbance::Kill => {
            meanwhile();
            server.kill9();
            server.resume();
        }
    })
}

/// Records a history of keys whose slot moves, in `meanwhile`.
pub fn record_moves(
    cluster: &Cluster,
    group: &str,
    mut random: fastrand::Rng,
    meanwhile: impl FnOnce(),
) -> Vec<Seen> {
    let client = cluster.client();
    let connect: &Connect = &|| Ok(Box::new(client.get_connection()?));
    // Policies are a node's; a connection to a cluster has no transactions.
    let theme = Theme::Holds;
    let callers = Callers { connect, group, theme, pause_ms: MOVE_PAUSE_MS, transactions: false };
    callers.record(&mut random, meanwhile)
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
}

impl Callers<'_> {
    fn record(self, random: &mut fastrand::Rng, meanwhile: impl FnOnce()) -> Vec<Seen> {
        let clock = AtomicU64::new(0);
        thread::scope(|scope| {
            let callers: Vec<_> = (0..CLIENTS)
                .map(|_| (random.fork(), &clock))
                .map(|(random, clock)| scope.spawn(move || self.calls(random, clock)))
                .collect();
            meanwhile();
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
                None => Call::random(self.theme, &mut random),
            };
            let begin = now();
            let end = match self.send(&mut *c, &call, &mut random) {
                Ok(reply) => Some((now(), reply)),
                Err(error) if error.is_io_error() || error.is_connection_dropped() => {
                    c = self.connected();
                    unanswered = Some(call.clone());
                    None
                }
                // Its slot has moved while it waited: it is not decided.
                Err(error) if error.code() == Some("UNBLOCKED") => continue,
                Err(error) => panic!("{call:?}: {error}"),
            };
            seen.push(Seen { call, begin, end });
        }
        seen
    }

    /// Connects once the server answers, which it does not while it loads its file.
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
                script.key(format!("{{{}}}", self.group)).arg(&words).invoke(c)?
            }
            _ => command(&words).query(c)?,
        };
        Ok(read(call, reply))
    }
}

fn command<T: AsRef<str>>(words: &[T]) -> Cmd {
    let mut command = Cmd::new();
    words.iter().for_each(|word| {
        command.arg(word.as_ref());
    });
    command
}

fn read(call: &Call, value: Value) -> Reply {
    let days = |ms: i64| if ms < 0 { ms } else { (ms + DAY_MS - 1) / DAY_MS };
    match value {
        Value::Okay => Reply::Ok,
        Value::Int(ms) if matches!(call, Call::Pause { .. }) => Reply::Days(days(ms)),
        Value::Int(number) => Reply::Number(number),
        value => {
            let [verdict, limit, remaining, wait_ms, _] =
                from_redis_value(value).expect("five integers");
            Reply::Decision { verdict, limit, remaining, wait_days: days(wait_ms) }
        }
    }
}
