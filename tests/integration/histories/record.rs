//! Clients that call at once, and what they saw.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use redis::{Client, Cmd, Connection, RedisResult, Script, Value, cmd, from_redis_value, pipe};

use super::call::{Call, POLICIES, Theme};
use super::model::Reply;
use crate::support::server::{Server, eventually};

const CLIENTS: usize = 5;
/// How many calls a client makes in a history.
const CALLS: usize = 24;
/// How often the connections of all clients are cut.
const CUTS: usize = 4;
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

/// Records a history.
pub fn record(
    server: &mut Server,
    group: &str,
    theme: Theme,
    disturbance: Disturbance,
    mut random: fastrand::Rng,
) -> Vec<Seen> {
    let first = Call::SetPolicy { limit: POLICIES[0] };
    let () = command(&first.words(group)).query(&mut server.connect()).expect("a policy");
    let (clock, client) = (AtomicU64::new(0), server.client());
    thread::scope(|scope| {
        let callers: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let (client, clock, random) = (client.clone(), &clock, random.fork());
                scope.spawn(move || Caller { client, group, theme, random }.calls(clock))
            })
            .collect();
        match disturbance {
            Disturbance::None => {}
            Disturbance::Disconnect => {
                let mut admin = server.connect();
                for _ in 0..CUTS {
                    thread::sleep(Duration::from_millis(random.u64(2..12)));
                    let cut: RedisResult<i64> =
                        command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
                            .query(&mut admin);
                    cut.expect("an administrator");
                }
            }
            Disturbance::Kill => {
                thread::sleep(Duration::from_millis(random.u64(2..12)));
                server.kill9();
                server.resume();
            }
        }
        callers.into_iter().flat_map(|caller| caller.join().expect("a client")).collect()
    })
}

/// One client.
struct Caller<'a> {
    client: Client,
    group: &'a str,
    theme: Theme,
    random: fastrand::Rng,
}

impl Caller<'_> {
    fn calls(mut self, clock: &AtomicU64) -> Vec<Seen> {
        let now = || clock.fetch_add(1, Ordering::SeqCst);
        let (mut c, mut seen, mut unanswered) = (self.connect(), Vec::new(), None);
        while seen.len() < CALLS {
            let call = match unanswered.take() {
                Some(call) => call,
                None => Call::random(self.theme, &mut self.random),
            };
            let begin = now();
            let end = match self.send(&mut c, &call) {
                Ok(reply) => Some((now(), reply)),
                Err(error) if error.is_io_error() || error.is_connection_dropped() => {
                    c = self.connect();
                    unanswered = Some(call.clone());
                    None
                }
                Err(error) => panic!("{call:?}: {error}"),
            };
            seen.push(Seen { call, begin, end });
        }
        seen
    }

    /// Connects once the server answers, which it does not while it loads its file.
    fn connect(&self) -> Connection {
        let mut connected = None;
        eventually("a connection", || {
            connected = self.client.get_connection().ok();
            connected.as_mut().is_some_and(|c| cmd("PING").query::<()>(c).is_ok())
        });
        connected.expect("a connection")
    }

    fn send(&mut self, c: &mut Connection, call: &Call) -> RedisResult<Reply> {
        let words = call.words(self.group);
        let is_plain = matches!(call, Call::Wait { .. } | Call::SetPolicy { .. });
        let reply = match self.random.u32(..8) {
            0 if !is_plain => {
                let [reply]: [Value; 1] = pipe().atomic().add_command(command(&words)).query(c)?;
                reply
            }
            1 if !is_plain => {
                Script::new("return redis.call(unpack(ARGV))").arg(&words).invoke(c)?
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
