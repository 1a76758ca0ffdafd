//! Clients of a cluster that keep asking while it changes, and the account of what passed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::cluster::{ClusterClient, ClusterConnection};
use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, cmd};

use crate::support::server::eventually;

/// Clients that ask at the same time.
const CALLERS: usize = 3;

/// What keys are limited by, `N` at once. Nothing comes back while a test runs.
pub const RULES: [&str; 8] = [
    "log:N/1h",
    "bucket:N/366d",
    "fixed:N/366d,align=first",
    "window:N/366d,res=4",
    "leaky:1/366d,queue=Q", // Q is N - 1: the first does not queue
    "bucket:N/366d,refill=interval",
    "log:N/1h,ban=1h",
    "log:N/1h,count=all bucket:N/366d,name=burst",
];

/// A key and what it is limited by.
#[derive(Debug)]
pub struct Limit {
    pub key: String,
    pub units: i64,
    rules: Vec<String>,
}

/// Limits from 30 to 99 units on these keys, by all kinds of rules in turn.
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
    /// Asks for some units.
    pub fn check(&self, units: i64) -> Cmd {
        cmd("RL.CHECK").arg(&self.key).arg("COST").arg(units).arg(&self.rules).to_owned()
    }
}

/// Units that passed, or may have: the connection ended before it said so.
#[derive(Debug)]
pub struct Pass {
    limit: usize,
    pub units: i64,
    pub at: Instant,
    pub answered: bool,
    /// Whether a replica knew of it too.
    pub confirmed: bool,
}

impl Pass {
    /// Under the limit of this index, as of now.
    pub fn new(limit: usize, units: i64, answered: bool) -> Self {
        Self { limit, units, at: Instant::now(), answered, confirmed: false }
    }
}

/// The units of some of the passes, limit by limit.
pub fn units(limits: &[Limit], passes: &[Pass], counts: impl Fn(&Pass) -> bool) -> Vec<i64> {
    let mut units = vec![0; limits.len()];
    passes.iter().filter(|pass| counts(pass)).for_each(|pass| units[pass.limit] += pass.units);
    units
}

/// How a key looks from outside.
pub struct Look {
    pub dump: Vec<u8>,
    pub expires_ms: i64,
}

/// A client that knows slots and follows redirections. What it sends it sends once: a request
/// whose answer was lost is not repeated but accounted for.
pub struct Caller<'a> {
    client: &'a ClusterClient,
    connection: Option<ClusterConnection>,
}

enum Answer {
    Allowed {
        remaining: i64,
    },
    Limited,
    /// It may have passed.
    Lost,
    /// Nobody was there to decide it.
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
                // The client's own errors come from looking for the slots anew.
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
                // Over a new connection it would send again what the old one had sent already.
                connection.set_auto_reconnect(false);
                connection
            }
        };
        Ok(self.connection.insert(connection))
    }

    /// Takes these shares of the limits, in turn. What passed.
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

    /// Asks until denied, all at once where the reply says how much that is. What passed.
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

    pub fn look_at(&mut self, limits: &[Limit]) -> Vec<Look> {
        let c = self.connection().expect("the cluster serves");
        let look = |limit: &Limit| {
            let dump = cmd("DUMP").arg(&limit.key).query(c).expect("the key is there");
            let left_ms: i64 = cmd("PTTL").arg(&limit.key).query(c).expect("the key is there");
            assert!(left_ms > 0, "{limit:?} never expires");
            let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is past 1970");
            Look { dump, expires_ms: now.as_millis() as i64 + left_ms }
        };
        limits.iter().map(look).collect()
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

/// Something that happens once, for other threads to see.
#[derive(Default)]
pub struct Flag(AtomicBool);

impl Flag {
    pub fn is_up(&self) -> bool {
        self.0.load(Relaxed)
    }

    pub fn raise(&self) {
        self.0.store(true, Relaxed);
    }

    /// Raises it when the returned value goes, in a panic too: else threads would wait for ever.
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

/// Clients asking, each for one unit of some key at a time.
#[derive(Default)]
pub struct Traffic {
    ended: Flag,
    answers: AtomicUsize,
}

impl Traffic {
    /// Waits until the clients have got some more answers.
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

/// What `change` gives back, and what passed before, while and after it happened.
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
