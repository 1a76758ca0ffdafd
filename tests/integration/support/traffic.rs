//! Clients that send checks to a cluster while it changes, and the record of what passed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::cluster::{ClusterClient, ClusterConnection};
use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, cmd};

use crate::support::server::eventually;

/// How many clients send checks at the same time.
const CALLERS: usize = 3;

/// Rules that admit `N` units at once. No unit comes back while a test runs.
pub const RULES: [&str; 8] = [
    "log:N/1h",
    "bucket:N/366d",
    "fixed:N/366d,align=first",
    "window:N/366d,res=4",
    "leaky:1/366d,queue=Q", // Q is N - 1, because the first request does not queue
    "bucket:N/366d,refill=interval",
    "log:N/1h,ban=1h",
    "log:N/1h,count=all bucket:N/366d,name=burst",
];

/// A key, its rules, and how many units they admit.
#[derive(Debug)]
pub struct Limit {
    pub key: String,
    pub units: i64,
    rules: Vec<String>,
}

/// Limits of 30 to 99 units on these keys, which get [`RULES`] in turn.
pub fn limits_on(keys: Vec<String>) -> Vec<Limit> {
    let limit = |(index, key): (usize, String)| {
        let units = 30 + index as i64 * 7 % 70;
        let (n, q) = (units.to_string(), (units - 1).to_string());
        let rules = RULES[index % RULES.len()].split(' ');
        Limit { key, units, rules: rules.map(|r| r.replace('N', &n).replace('Q', &q)).collect() }
    };
    keys.into_iter().enumerate().map(limit).collect()
}

impl Limit {
    /// A check for some units.
    pub fn check(&self, units: i64) -> Cmd {
        cmd("RL.CHECK").arg(&self.key).arg("COST").arg(units).arg(&self.rules).to_owned()
    }

    /// Asks what a check would answer, and changes nothing.
    pub fn peek(&self) -> Cmd {
        cmd("RL.PEEK").arg(&self.key).arg(&self.rules).to_owned()
    }
}

/// Units that passed, or that may have passed: the connection ended before the reply.
#[derive(Debug)]
pub struct Pass {
    limit: usize,
    pub units: i64,
    pub at: Instant,
    pub answered: bool,
    /// Whether a replica surely has it.
    pub confirmed: bool,
}

impl Pass {
    /// A pass under the limit of this index, now.
    pub fn new(limit: usize, units: i64, answered: bool) -> Self {
        Self { limit, units, at: Instant::now(), answered, confirmed: false }
    }
}

/// The units of the passes that `counts` selects, limit by limit.
pub fn units(limits: &[Limit], passes: &[Pass], counts: impl Fn(&Pass) -> bool) -> Vec<i64> {
    let mut units = vec![0; limits.len()];
    passes.iter().filter(|pass| counts(pass)).for_each(|pass| units[pass.limit] += pass.units);
    units
}

/// A key's dump and expiry.
pub struct KeyState {
    pub dump: Vec<u8>,
    pub expires_ms: i64,
}

/// A client that knows the slots and follows redirections. It never sends a request again: if
/// the reply is lost, the request counts as one that may have passed.
pub struct Caller<'a> {
    client: &'a ClusterClient,
    connection: Option<ClusterConnection>,
}

enum Answer {
    Allowed {
        remaining: i64,
    },
    Limited,
    /// The request may have passed.
    Lost,
    /// No node decided the request.
    Unserved,
}

impl<'a> Caller<'a> {
    pub fn new(client: &'a ClusterClient) -> Self {
        Self { client, connection: None }
    }

    fn ask(&mut self, limit: &Limit, units: i64) -> Answer {
        let Ok(c) = self.connection() else { return Answer::Unserved };
        let reply: RedisResult<[i64; 5]> = limit.check(units).query(c);
        match reply {
            Ok([0, _, remaining, ..]) => Answer::Allowed { remaining },
            Ok(_) => Answer::Limited,
            Err(error) => {
                self.connection = None;
                if was_not_served(&error) {
                    return Answer::Unserved;
                }
                // `Client` is an error of the client's search for the slots.
                let is_lost = matches!(error.kind(), ErrorKind::Io | ErrorKind::Client);
                assert!(is_lost, "{}: {error}", limit.key);
                Answer::Lost
            }
        }
    }

    fn connection(&mut self) -> RedisResult<&mut ClusterConnection> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let connection = self.client.get_connection()?;
                // Otherwise the client would send a request again over a new connection.
                connection.set_auto_reconnect(false);
                connection
            }
        };
        Ok(self.connection.insert(connection))
    }

    /// Takes from each limit the next of these shares, in a cycle. Returns what passed.
    pub fn spend(&mut self, limits: &[Limit], shares: &[f64]) -> Vec<Pass> {
        let mut passes = Vec::new();
        for (index, (limit, share)) in limits.iter().zip(shares.iter().cycle()).enumerate() {
            let units = (limit.units as f64 * share) as i64;
            let answer = self.ask(limit, units);
            assert!(matches!(answer, Answer::Allowed { .. }), "{units} of {limit:?} are refused");
            passes.push(Pass::new(index, units, true));
        }
        passes
    }

    /// Takes all that the limits still allow, and returns what passed.
    pub fn take_what_is_left(&mut self, limits: &[Limit]) -> Vec<Pass> {
        let mut passes = Vec::new();
        for (index, limit) in limits.iter().enumerate() {
            let mut units = 1;
            loop {
                match self.ask(limit, units) {
                    Answer::Allowed { remaining } => {
                        passes.push(Pass::new(index, units, true));
                        units = remaining.max(1);
                    }
                    Answer::Limited => break,
                    Answer::Lost | Answer::Unserved => panic!("{limit:?} is not served"),
                }
            }
        }
        passes
    }

    pub fn key_states(&mut self, limits: &[Limit]) -> Vec<KeyState> {
        let c = self.connection().expect("the cluster serves");
        let state = |limit: &Limit| {
            let dump = cmd("DUMP").arg(&limit.key).query(c).expect("the key is there");
            let left_ms: i64 = cmd("PTTL").arg(&limit.key).query(c).expect("the key is there");
            assert!(left_ms > 0, "{limit:?} never expires");
            let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is past 1970");
            KeyState { dump, expires_ms: now.as_millis() as i64 + left_ms }
        };
        limits.iter().map(state).collect()
    }
}

fn was_not_served(error: &RedisError) -> bool {
    use ServerErrorKind as Server;
    let kind = error.kind();
    error.is_connection_refusal()
        || kind == ErrorKind::ClusterConnectionNotFound
        || [Server::Moved, Server::Ask, Server::TryAgain, Server::ReadOnly, Server::BusyLoading]
            .map(ErrorKind::Server)
            .contains(&kind)
        || [Server::ClusterDown, Server::MasterDown].map(ErrorKind::Server).contains(&kind)
}

/// An event that happens once, seen by other threads.
#[derive(Default)]
pub struct Flag(AtomicBool);

impl Flag {
    pub fn is_up(&self) -> bool {
        self.0.load(Relaxed)
    }

    pub fn raise(&self) {
        self.0.store(true, Relaxed);
    }

    /// Raises the flag when the returned value drops, even in a panic, so that no thread waits
    /// forever.
    pub fn raise_on_drop(&self) -> impl Drop + '_ {
        struct Raise<'a>(&'a Flag);
        impl Drop for Raise<'_> {
            fn drop(&mut self) {
                self.0.raise();
            }
        }
        Raise(self)
    }
}

/// Clients that each check one unit of a random key at a time.
#[derive(Default)]
pub struct Traffic {
    ended: Flag,
    answers: AtomicUsize,
}

impl Traffic {
    /// Waits until the clients have got some more replies.
    pub fn flows(&self) {
        let enough = self.answers.load(Relaxed) + 300;
        eventually("clients to be answered", || self.answers.load(Relaxed) >= enough);
    }

    fn call(&self, client: &ClusterClient, limits: &[Limit]) -> Vec<Pass> {
        let mut caller = Caller::new(client);
        let mut passes = Vec::new();
        while !self.ended.is_up() {
            let index = fastrand::usize(..limits.len());
            let mut pause = Duration::from_micros(500);
            match caller.ask(&limits[index], 1) {
                Answer::Allowed { .. } => passes.push(Pass::new(index, 1, true)),
                Answer::Limited => {}
                Answer::Lost => passes.push(Pass::new(index, 1, false)),
                Answer::Unserved => pause = Duration::from_millis(10),
            }
            if caller.connection.is_some() {
                self.answers.fetch_add(1, Relaxed);
            }
            thread::sleep(pause);
        }
        passes
    }
}

/// Runs `change` under traffic. Returns its result and what passed before, during and after it.
pub fn under_traffic<R>(
    client: &ClusterClient,
    limits: &[Limit],
    change: impl FnOnce(&Traffic) -> R,
) -> (R, Vec<Pass>) {
    let traffic = Traffic::default();
    thread::scope(|scope| {
        let call = || scope.spawn(|| traffic.call(client, limits));
        let callers = [(); CALLERS].map(|()| call());
        let ended_at_the_end = traffic.ended.raise_on_drop();
        traffic.flows();
        let changed = change(&traffic);
        traffic.flows();
        drop(ended_at_the_end);
        (changed, callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect())
    })
}
