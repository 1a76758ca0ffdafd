//! Random commands of every kind, to compare the data of servers after them.
//!
//! ```ignore
//! let mut workload = Workload::new(7);
//! workload.run(10_000, &mut connection);
//! ```
//!
//! A seed gives the same commands each time; times with `AT` are relative to the server's
//! clock. There are three sorts of keys: with windows of at most a second, so that keys expire
//! meanwhile; with windows of an hour or more; and with both. No window is in between, so a
//! test can wait until all short keys have expired.

pub mod data;
mod holds;
pub mod link;
pub mod rules;
mod tally;

use fastrand::Rng;
use redis::{Cmd, Connection, ConnectionLike, Value, cmd, pipe};

use crate::support::client::now_us;
use rules::{Pool, Rule};
pub use tally::Tally;

const KEYS: usize = 300;
const DATABASES: [u32; 2] = [0, 1];

const SECOND_US: u64 = 1_000_000;
const HOUR_US: u64 = 3_600 * SECOND_US;
const HOUR_MS: u64 = HOUR_US / 1_000;
const DAY_US: u64 = 24 * HOUR_US;
/// The last microsecond that `AT` takes.
const MAX_TIME_US: u64 = 253_402_300_799_999_999;

/// Scripts on a key: a single call; a call and one that depends on its reply; and several
/// calls, so that one script has several effects.
const SCRIPTS: [&str; 3] = [
    "return redis.call('RL.CHECK', KEYS[1], unpack(ARGV))",
    "local r = redis.call('RL.CHECK', KEYS[1], unpack(ARGV)) \
     if r[1] == 0 then redis.call('RL.REFUND', KEYS[1], 1) else redis.call('DEL', KEYS[1]) end \
     return r",
    "for _ = 1, 3 do redis.call('RL.CHECK', KEYS[1], unpack(ARGV)) end \
     redis.call('RL.RESET', KEYS[1]) \
     return redis.call('RL.CHECK', KEYS[1], unpack(ARGV))",
];

/// An endless sequence of commands.
pub struct Workload {
    rng: Rng,
    pools: [Pool; 3],
    /// Whether commands may have `AT`, which the server must allow.
    pub with_at: bool,
    /// Whether commands may be `PEXPIRE`. Redis 6.2 propagates it unchanged, so a replica,
    /// which executes it later, gets a later expiry.
    pub with_pexpire: bool,
    /// The shortest time to live that a command may give a key. Commands also give an hour.
    soonest_ms: u64,
    now_us: u64,
    database: u32,
}

/// The names of all keys; some are not UTF-8.
fn keys() -> impl Iterator<Item = Vec<u8>> {
    (0..KEYS).map(key)
}

fn key(n: usize) -> Vec<u8> {
    let mut name = format!("k{n}").into_bytes();
    if n % 50 == 7 {
        name.extend_from_slice(b" \r\n\0\xff\"");
    }
    name
}

impl Workload {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let pools = [Pool::short(&mut rng), Pool::long(&mut rng), Pool::mixed(&mut rng)];
        let database = DATABASES[0];
        let (with_at, with_pexpire) = (true, false);
        Self { rng, pools, with_at, with_pexpire, soonest_ms: 0, now_us: 0, database }
    }

    /// A workload without short windows or early expiries, so that keys stay.
    pub fn lasting(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let pools = [(); 3].map(|()| Pool::long(&mut rng));
        Self { pools, soonest_ms: HOUR_MS, ..Self::new(seed) }
    }

    /// Sends the next commands in one pipeline.
    pub fn run(&mut self, count: usize, c: &mut Connection) -> Tally {
        let now_us = now_us(c);
        send(c, &self.commands(count, now_us))
    }

    /// Peeks at every key at this time, with rules of that key.
    pub fn peek(&self, at_us: u64, c: &mut Connection) -> Vec<Value> {
        let mut peeks = pipe();
        for database in DATABASES {
            peeks.add_command(select(database)).ignore();
            for (n, name) in keys().enumerate() {
                let rules = self.pools[n % self.pools.len()].of(n).iter().map(|r| r.text(None));
                let rules: Vec<String> = rules.collect();
                peeks.cmd("RL.PEEK").arg(name).arg("AT").arg(at_us).arg("FULL").arg(rules);
            }
        }
        peeks.query(c).expect("replies")
    }

    /// The next commands: this many, or a few more to complete a transaction.
    pub fn commands(&mut self, count: usize, now_us: u64) -> Vec<Cmd> {
        self.now_us = now_us;
        // The connection may have selected another database.
        let mut commands = vec![select(self.database)];
        while commands.len() < count {
            if self.one_in(40) {
                commands.push(cmd("MULTI"));
                for _ in 0..self.rng.usize(1..=6) {
                    commands.push(self.command());
                }
                commands.push(cmd("EXEC"));
            } else {
                commands.push(self.command());
            }
        }
        commands
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(0..n) == 0
    }

    fn command(&mut self) -> Cmd {
        let key = self.rng.usize(0..KEYS);
        match self.rng.u32(0..1_000) {
            0..490 => self.check("RL.CHECK", key),
            490..500 => self.wait(key),
            500..530 => self.settle(key),
            530..550 => self.renew(key),
            550..600 => self.check("RL.PEEK", key),
            600..620 => self.explain(key),
            620..720 => self.refund(key),
            720..735 => on("RL.RESET", key),
            735..740 => self.plan(key),
            740..760 => on("DEL", key),
            760..765 => on("UNLINK", key),
            765..785 => self.onto_another("RENAME", key),
            785..810 => self.copy(key),
            810..815 => on("MOVE", key).arg(self.other_database()).to_owned(),
            815..840 => self.expire(key),
            840..855 => on("PERSIST", key),
            855..865 => {
                self.database = self.other_database();
                select(self.database)
            }
            865 => cmd("SWAPDB").arg(&DATABASES).to_owned(),
            866 if self.one_in(20) => cmd("FLUSHDB"),
            867..877 => self.block_or_exempt(key),
            877..897 => {
                let lift = ["RL.UNBLOCK", "RL.UNEXEMPT"];
                on(self.rng.choice(lift).expect("two"), key)
            }
            897..907 => {
                let report = ["RL.LOG", "RL.INFO"];
                on(self.rng.choice(report).expect("two"), key)
            }
            907..940 => self.mcheck(key),
            _ => self.script(key),
        }
    }

    fn other_database(&self) -> u32 {
        let [first, second] = DATABASES;
        if self.database == first { second } else { first }
    }

    fn check(&mut self, name: &str, key: usize) -> Cmd {
        let rules = self.rules(key);
        let options = self.check_options(name != "RL.PEEK", &rules);
        on(name, key).arg(options).arg(rules).to_owned()
    }

    /// A check that waits for at most a few milliseconds, always by the server's clock.
    fn wait(&mut self, key: usize) -> Cmd {
        let with_at = std::mem::replace(&mut self.with_at, false);
        let rules = self.rules(key);
        let options = self.check_options(true, &rules);
        self.with_at = with_at;
        on("RL.WAIT", key).arg(self.rng.u32(0..4)).arg(options).arg(rules).to_owned()
    }

    /// A check of several keys: keys of one sort with common rules, or any keys with rules for each.
    fn mcheck(&mut self, key: usize) -> Cmd {
        let separate = self.rng.bool();
        let step = if separate { self.rng.usize(1..=7) } else { self.pools.len() };
        let count = self.rng.usize(1..=5);
        let keys: Vec<usize> = (0..count).map(|n| (key + n * step) % KEYS).collect();
        let names: Vec<_> = keys.iter().map(|&key| self::key(key)).collect();
        let groups = if separate { &keys[..] } else { &keys[..1] };
        let groups: Vec<_> = groups.iter().map(|&key| self.rules(key)).collect();
        let options = self.check_options(true, &groups.concat());
        let mut command = cmd("RL.MCHECK");
        command.arg(count).arg(names).arg(options).arg(&groups[0]);
        for rules in &groups[1..] {
            command.arg("NEXT").arg(rules);
        }
        command
    }

    /// The options of a check with these rules; `changes` is false for a peek.
    fn check_options(&mut self, changes: bool, rules: &[String]) -> Vec<String> {
        let mut options = self.options(changes, rules);
        if self.one_in(12) {
            options.push("FULL".into());
        }
        if changes && self.one_in(30) {
            options.extend(["META".into(), format!("user:{}\r\n", self.rng.u32(0..100))]);
        }
        options
    }

    /// A block or an exemption, for a while or for good.
    fn block_or_exempt(&mut self, key: usize) -> Cmd {
        let name = if self.rng.bool() { "RL.BLOCK" } else { "RL.EXEMPT" };
        let mut command = on(name, key);
        match self.rng.u32(0..8) {
            0 => &mut command,
            1 => command.arg("EX").arg(HOUR_MS / 1_000),
            _ => command.arg("PX").arg(self.soonest_ms + self.rng.u64(1..400)),
        };
        if self.rng.bool() {
            command.arg("REASON").arg(format!("case {}", self.rng.u32(0..9)));
        }
        command
    }

    /// Binds a plan, for a while or for good, or ends one. No policy has the plan's name.
    fn plan(&mut self, key: usize) -> Cmd {
        match self.rng.u32(0..3) {
            0 => on("RL.UNPLAN", key),
            1 => on("RL.PLAN", key).arg("pro").to_owned(),
            _ => on("RL.PLAN", key).arg(&["pro", "PX"]).arg(self.soonest_ms + 200).to_owned(),
        }
    }

    fn script(&mut self, key: usize) -> Cmd {
        let script = self.rng.choice(SCRIPTS).expect("some");
        let rules = self.rules(key);
        let options = self.options(true, &rules);
        cmd("EVAL").arg(script).arg(1).arg(self::key(key)).arg(options).arg(rules).to_owned()
    }

    fn explain(&mut self, key: usize) -> Cmd {
        cmd("RL.EXPLAIN").arg(self.rules(key)).to_owned()
    }

    /// A refund to the states of some rules, or to all states.
    fn refund(&mut self, key: usize) -> Cmd {
        let mut command = on("RL.REFUND", key);
        command.arg(self.units());
        if self.with_at && self.one_in(4) {
            command.arg("AT").arg(self.time_us());
        }
        if self.rng.bool() {
            command.arg(self.rules(key));
        }
        command
    }

    fn onto_another(&mut self, name: &str, key: usize) -> Cmd {
        let other = (key + self.rng.usize(1..KEYS)) % KEYS;
        on(name, key).arg(self::key(other)).to_owned()
    }

    fn copy(&mut self, key: usize) -> Cmd {
        let mut command = self.onto_another("COPY", key);
        if self.rng.bool() {
            command.arg("DB").arg(self.other_database());
        }
        if self.rng.bool() {
            command.arg("REPLACE");
        }
        command
    }

    fn expire(&mut self, key: usize) -> Cmd {
        let left_ms = if self.rng.bool() { self.soonest_ms } else { HOUR_MS };
        let left_ms = left_ms + self.rng.u64(0..400);
        if self.with_pexpire && self.rng.bool() {
            on("PEXPIRE", key).arg(left_ms).to_owned()
        } else {
            on("PEXPIREAT", key).arg(self.now_us / 1_000 + left_ms).to_owned()
        }
    }

    /// Rules for a check: mostly those of the key, sometimes those of another key.
    fn rules(&mut self, key: usize) -> Vec<String> {
        let pool = &self.pools[key % self.pools.len()];
        let set = match self.rng.u32(0..20) {
            0 => pool.any(&mut self.rng),
            1 | 2 => pool.of(key + 1),
            _ => pool.of(key),
        };
        // Limits may change from call to call.
        let redrawn = self.rng.u32(0..4) == 0;
        let mut texts = Vec::with_capacity(set.len());
        texts.extend(set.iter().map(|rule: &Rule| rule.text(redrawn.then_some(&mut self.rng))));
        texts
    }

    fn options(&mut self, changes: bool, rules: &[String]) -> Vec<String> {
        let mut options = Vec::new();
        if self.one_in(3) {
            let units = self.units();
            let cost = if self.one_in(4) {
                format!("{}..{}", units.clamp(1, 9), units.max(1))
            } else {
                units.to_string()
            };
            options.extend(["COST".into(), cost]);
        }
        options.extend(self.named_costs(rules));
        if changes {
            options.extend(self.hold(rules));
        }
        if self.with_at && self.one_in(4) {
            options.extend(["AT".into(), self.time_us().to_string()]);
        }
        options
    }

    fn units(&mut self) -> u32 {
        match self.rng.u32(0..20) {
            0 => 0,
            1 => self.rng.u32(0..=1_000),
            2 => 1_000_000_000,
            3..8 => self.rng.u32(2..=6),
            _ => 1,
        }
    }

    /// A time near the server's clock or far from it, before or after.
    fn time_us(&mut self) -> u64 {
        let (least_us, most_us) = match self.rng.u32(0..200) {
            0 => return 0,
            1 => return MAX_TIME_US,
            2..6 => (DAY_US, 2 * DAY_US),
            6..10 => (HOUR_US, 2 * HOUR_US),
            10..40 => (0, 2 * SECOND_US),
            40..90 => (0, 30_000),
            90..150 => (0, 1_000),
            _ => (0, 1),
        };
        let far_us = self.rng.u64(least_us..=most_us);
        if self.rng.bool() { self.now_us + far_us } else { self.now_us - far_us }
    }
}

/// A command on a key.
fn on(name: &str, key: usize) -> Cmd {
    cmd(name).arg(self::key(key)).to_owned()
}

fn select(database: u32) -> Cmd {
    cmd("SELECT").arg(database).to_owned()
}

/// Sends commands in one pipeline. Panics on a reply that no command should get.
pub fn send(c: &mut Connection, commands: &[Cmd]) -> Tally {
    let packed: Vec<u8> = commands.iter().flat_map(Cmd::get_packed_command).collect();
    let replies = c.req_packed_commands(&packed, 0, commands.len()).expect("replies");
    let mut tally = Tally::default();
    for (command, reply) in commands.iter().zip(&replies) {
        tally.count(command, reply);
    }
    tally
}
