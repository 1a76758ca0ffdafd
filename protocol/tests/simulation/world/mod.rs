//! The servers, and what happens to them.

mod changes;
mod failures;
mod keys;
mod laws;
mod requests;
mod waiting;

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use fastrand::Rng;
use ratelimit_engine::check::Bounds;
use ratelimit_engine::key::Limiter;
use ratelimit_engine::rule::Rule;
use ratelimit_protocol::effect::Action;
use ratelimit_protocol::waiting::Cause;

use self::keys::Woken;
use super::disk::Disk;
use super::keyspace::Keyspace;
use super::line::{Ask, Line};
use super::link::Replica;

const START_US: u64 = 1_700_000_000_000_000;
const MS_US: u64 = 1_000;
const KEYS: u8 = 3;
/// How long a client waits at most.
const PATIENCE_MS: u64 = 20_000;
/// The bounds of each key.
const BOUNDS: Bounds = Bounds { max_states: 12, max_holds: 6 };

const RULES: [&str; 9] = [
    "3/s",
    "bucket:2/s,burst=4 10/m,count=all",
    "slots:2",
    "slots:1 fixed:5/2s",
    "leaky:2/s,queue=3",
    "window:4/s,ban=2s:5s,name=w",
    "log:6/3s bucket:3/s,refill=interval,name=r",
    "fixed:4/s,align=first,keep=2",
    // States of rules above, under a lower limit and a longer period.
    "bucket:1/s,burst=4 window:4/9s,name=w",
];

pub struct World {
    rng: Rng,
    /// The clock of the servers, which jumps.
    wall_us: u64,
    /// The clock of the line, which does not jump.
    steady_us: u64,
    rules: Vec<(Vec<Rule>, Vec<String>)>,
    primary: Keyspace,
    /// The keys after all propagated effects, applied as a replica applies them.
    told: Keyspace,
    /// The state after each effect.
    states: Vec<u64>,
    disk: Disk,
    syncs_always: bool,
    replica: Replica,
    line: Line,
    requests: u64,
    /// Requests that took holds.
    held: VecDeque<Ask>,
}

fn state(keys: &Keyspace) -> u64 {
    let mut hasher = DefaultHasher::new();
    keys.snapshot().hash(&mut hasher);
    hasher.finish()
}

fn rules_of(line: &str) -> (Vec<Rule>, Vec<String>) {
    let rule = |text: &str| Rule::from_text(text.as_bytes()).expect("a rule");
    line.split(' ').map(|text| (rule(text), text.to_string())).unzip()
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut replica = Replica::default();
        replica.begin_again(&Vec::new(), 0);
        Self {
            wall_us: START_US,
            steady_us: 1,
            rules: RULES.map(rules_of).to_vec(),
            primary: Keyspace::default(),
            told: Keyspace::default(),
            states: vec![state(&Keyspace::default())],
            disk: Disk::default(),
            syncs_always: rng.bool(),
            replica,
            line: Line::EMPTY,
            requests: 0,
            held: VecDeque::new(),
            rng,
        }
    }

    pub fn play(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step();
            self.serve();
            self.test();
        }
        self.pass(2 * PATIENCE_MS);
        self.line.assert_nobody_is_forgotten();
    }

    fn step(&mut self) {
        let key = self.rng.u8(..KEYS);
        match self.rng.u32(..100) {
            0..30 => {
                let ask = self.ask(key);
                self.check(self.requests, ask);
            }
            30..45 => self.wait(key),
            45..55 => self.settle(),
            55..58 => self.renew(),
            58..61 => {
                let woken = Woken::Returned(self.primary.get(key).states_refunded(&[]));
                self.change(key, Action::Refund { units: 2 }, woken, |limiter, now_us| {
                    limiter.refund(2, now_us, &[]) > 0
                });
            }
            61..62 => self.change(key, Action::Reset, Woken::All, Limiter::reset),
            62..64 => self.block(key),
            64..66 => self.change(key, Action::Unblock, Woken::All, |limiter, now_us| {
                let pardons = limiter.can_unblock(now_us);
                if pardons {
                    limiter.unblock();
                }
                pardons
            }),
            66..67 => self.pause(key),
            67..68 => self.sync(key),
            68..69 => self.change(key, Action::Resume, Woken::All, |limiter, now_us| {
                let paused = limiter.pause_at(now_us).is_some();
                if paused {
                    limiter.resume();
                }
                paused
            }),
            69..82 => {
                let ms = self.rng.u64(..2_500);
                self.pass(ms);
            }
            82..83 => self.line.give_up(&mut self.rng),
            83..84 => (0..KEYS).for_each(|key| self.expire(key)),
            84..86 => {
                self.wall_us = self.wall_us.saturating_add_signed(self.rng.i64(-9..=9) * 700_000);
                (0..KEYS).for_each(|key| self.line.queues.key_changed(&[key], Cause::Changed));
            }
            86..90 => self.replica.receive(self.rng.usize(..9)),
            90..92 => self.replica.cut(),
            92..95 => self.replica.link(|| self.told.snapshot(), self.last()),
            95..96 => self.disk = Disk::rewritten(self.told.snapshot(), self.last()),
            96..98 => self.disk.sync(self.last()),
            98..99 => self.crash(),
            _ => self.promote(),
        }
    }

    fn last(&self) -> usize {
        self.states.len() - 1
    }
}
