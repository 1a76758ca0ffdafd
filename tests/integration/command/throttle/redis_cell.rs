//! Compares `RL.THROTTLE` with redis-cell's `CL.THROTTLE`: on one server, with the same
//! arguments, at nearly the same time.
//!
//! The two calls are some microseconds apart, so the test computes the range of correct
//! replies. It uses redis-cell's key, which says when its bucket will be full (the theoretical
//! arrival time), and the earliest and the latest time of the decisions. Nearly always the
//! range is a single value.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use redis::{Cmd, Connection, RedisResult, cmd, pipe};

use crate::support::server::redis_cell;
use crate::support::server::{self, Builder};

const CALLS: usize = 10_000;

const MS: i64 = 1_000_000;
const SECOND: i64 = 1_000 * MS;

fn both_modules(builder: Builder) -> Builder {
    builder
        .module_args(&["throttle-alias", "no"])
        .config("loadmodule", &format!("{:?}", redis_cell()))
}

fn now_ns() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(now.as_nanos()).expect("before 2262")
}

/// The arguments after the key.
#[derive(Clone, Debug)]
struct Arguments {
    max_burst: i64,
    count: i64,
    period_s: i64,
    quantity: Option<i64>,
}

impl Arguments {
    fn to(&self, command: &str, key: &str) -> Cmd {
        let mut call = cmd(command);
        call.arg(key).arg(self.max_burst).arg(self.count).arg(self.period_s).arg(self.quantity);
        call
    }

    /// The time until one unit comes back: nanoseconds, rounded down as in redis-cell.
    fn emission(&self) -> i64 {
        self.period_s * SECOND / self.count
    }

    fn increment(&self) -> i64 {
        self.emission() * self.quantity.unwrap_or(1)
    }

    /// The time until an empty bucket is full.
    fn tolerance(&self) -> i64 {
        self.emission() * (self.max_burst + 1)
    }
}

/// The replies to a call of each command, in one transaction.
struct Answers {
    ours: [i64; 5],
    theirs: [i64; 5],
    /// When redis-cell's bucket will be full; `None` if its key does not exist.
    full_at: Option<i64>,
    /// When both decided.
    time: RangeInclusive<i64>,
}

fn ask(c: &mut Connection, key: &str, arguments: &Arguments, ours_first: bool) -> Answers {
    let (our_key, their_key) = (format!("our {key}"), format!("their {key}"));
    let ours = arguments.to("RL.THROTTLE", &our_key);
    let theirs = arguments.to("CL.THROTTLE", &their_key);
    let mut both = pipe();
    let (first, second) = if ours_first { (ours, theirs) } else { (theirs, ours) };
    both.atomic().add_command(first).add_command(second).get(&their_key);
    let earliest = now_ns();
    let (first, second, full_at) =
        both.query(c).unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
    let latest = now_ns();
    let (ours, theirs) = if ours_first { (first, second) } else { (second, first) };
    Answers { ours, theirs, full_at, time: earliest..=latest }
}

fn forget(c: &mut Connection, key: &str) {
    let () = cmd("DEL").arg(format!("our {key}")).arg(format!("their {key}")).query(c).unwrap();
}

/// A key in both modules, and how much their buckets may differ.
struct Key {
    name: String,
    /// The units and seconds of its rate. Calls may multiply both.
    rate: (i64, i64),
    full_at: i64,
    /// By how much the times at which the two buckets are full may differ.
    apart: i64,
}

/// How many calls had each outcome.
#[derive(Debug, Default)]
struct Tally {
    allowed: usize,
    limited: usize,
    never: usize,
    given_back: usize,
    /// One module allowed the call and the other denied it, because the limit was reached
    /// between them.
    on_the_edge: usize,
    /// Each integer had only one correct value.
    exact: usize,
}

impl Key {
    fn new(name: &str, rate: (i64, i64)) -> Self {
        Self { name: name.to_string(), rate, full_at: 0, apart: 0 }
    }

    fn random_arguments(&self, rng: &mut Rng) -> Arguments {
        const LARGEST_BURST: i64 = 40;
        let times = rng.i64(1..=3);
        let mut arguments = Arguments {
            max_burst: [0, 1, 5, 15, LARGEST_BURST][rng.usize(..5)],
            count: self.rate.0 * times,
            period_s: self.rate.1 * times,
            quantity: [None, None, None, Some(0), Some(1), Some(2), Some(7), Some(30)]
                [rng.usize(..8)],
        };
        // redis-cell fails if a call gives back more than was taken, or if its burst is too
        // small for the units taken so far. The two seconds allow for pauses of the machine.
        let back = arguments.emission() * 2 + 2 * SECOND;
        if rng.u8(..10) == 0 && self.full_at - now_ns() > back {
            arguments.max_burst = 100;
            arguments.quantity = Some(rng.i64(-2..=-1));
        }
        arguments
    }

    /// Calls both, and compares the replies.
    fn compare(
        &mut self,
        c: &mut Connection,
        arguments: &Arguments,
        rng: &mut Rng,
        tally: &mut Tally,
    ) {
        let answers = ask(c, &self.name, arguments, rng.bool());
        let Answers { ours, theirs, full_at, ref time } = answers;
        let (earliest, latest) = (*time.start(), *time.end());
        let passed = latest - earliest;
        let context = || format!("{} {arguments:?}: ours {ours:?}, theirs {theirs:?}", self.name);
        let (emission, increment) = (arguments.emission(), arguments.increment());
        let tolerance = arguments.tolerance();

        // Before the call. redis-cell's key expires up to 3 ms before its bucket is full.
        let was_full = self.full_at + self.apart < earliest;
        if !was_full && self.full_at < latest + 3 * MS {
            self.apart = self.apart.max(3 * MS + passed);
        }
        let apart = self.apart.max(passed);
        let debt = |at: i64, apart: i64| (self.full_at + apart - at).max(0);
        let (least, most) =
            if was_full { (0, 0) } else { (debt(latest, -apart), debt(earliest, apart)) };

        if ours[0] != theirs[0] {
            let edge = tolerance - increment;
            assert!((least..=most).contains(&edge), "{}", context());
            tally.on_the_edge += 1;
            self.start_again(c);
            return;
        }
        let limited = theirs[0] == 1;

        // After the call: the time until the bucket is full, from redis-cell's key if it
        // exists.
        let consumed = if limited { 0 } else { increment };
        let reset = match full_at {
            _ if was_full => consumed.max(0)..=consumed.max(0),
            Some(full_at) => {
                (full_at - latest - apart).max(0)..=(full_at - earliest + apart).max(0)
            }
            None => 0..=(most + consumed).max(0),
        };
        let mut exact = true;
        let mut within = |what: &str, value: i64, range: RangeInclusive<i64>| {
            exact &= range.start() == range.end();
            assert!(range.contains(&value), "{what}: not in {range:?}: {}", context());
        };
        let through = |f: fn(i64) -> i64| f(*reset.start())..=f(*reset.end());
        within("their reset", theirs[4], through(|ns| ns / SECOND));
        within("our reset", ours[4], through(seconds_up));

        let left = |reset: i64| ((tolerance - reset) / emission).max(0);
        // redis-cell divides microseconds, so it may show slightly more than is left.
        let rounding = (arguments.max_burst + 1) * 1_000;
        let least = left(*reset.end());
        within("their remaining", theirs[2], least..=left((reset.start() - rounding).max(0)));
        within("our remaining", ours[2], least..=left(*reset.start()));

        assert_eq!((ours[1], theirs[1]), (arguments.max_burst + 1, arguments.max_burst + 1));
        if limited && increment <= tolerance {
            let retry = |reset: i64| reset + increment - tolerance;
            let (soonest, latest) = (retry(*reset.start()).max(0), retry(*reset.end()));
            within("their retry", theirs[3], soonest / SECOND..=latest / SECOND);
            within("our retry", ours[3], seconds_up(soonest).max(1)..=seconds_up(latest));
            tally.limited += 1;
        } else {
            let our_retry = if limited { i64::from(i32::MAX) } else { -1 };
            assert_eq!((ours[3], theirs[3]), (our_retry, -1), "{}", context());
            tally.never += usize::from(limited);
            tally.allowed += usize::from(!limited);
            tally.given_back += usize::from(increment < 0);
        }
        tally.exact += usize::from(exact);

        // redis-cell rounds the emission, which adds a nanosecond per unit.
        self.apart = if was_full { passed } else { apart } + consumed / emission + 1;
        if !limited {
            self.full_at = full_at.unwrap_or(self.full_at.max(earliest) + consumed);
        }
        if self.apart > 5 * MS {
            self.start_again(c); // The machine paused, so the ranges would be too wide.
        }
    }

    fn start_again(&mut self, c: &mut Connection) {
        forget(c, &self.name);
        (self.full_at, self.apart) = (0, 0);
    }
}

/// Nanoseconds as seconds, rounded up as `RL.THROTTLE` does; redis-cell rounds down.
fn seconds_up(ns: i64) -> i64 {
    (ns + SECOND - 1) / SECOND
}

#[test]
fn replies_equal_those_of_redis_cell_but_for_rounded_seconds() {
    server::one_is_enough();
    const RATES: [(i64, i64); 8] =
        [(200, 1), (100, 1), (30, 1), (3, 1), (30, 60), (7, 60), (100, 3_600), (1, 86_400)];
    server::on_all_with(both_modules, |server| {
        let mut c = server.connect();
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = Rng::with_seed(seed);
        let mut keys: Vec<Key> =
            RATES.iter().map(|rate| Key::new(&format!("{rate:?}"), *rate)).collect();
        let mut tally = Tally::default();
        for call in 0..CALLS {
            let key = &mut keys[rng.usize(..RATES.len())];
            // Otherwise slow buckets would soon stay empty.
            if key.rate.1 / key.rate.0 > 0 && rng.u8(..50) == 0 {
                key.start_again(&mut c);
            }
            let arguments = key.random_arguments(&mut rng);
            key.compare(&mut c, &arguments, &mut rng, &mut tally);
            if call % 100 == 0 {
                // Gives fast buckets time to fill.
                let () = cmd("DEBUG").arg("SLEEP").arg("0.01").query(&mut c).unwrap();
            }
        }
        println!("{}: {tally:?}", server.flavor().name);
        for (what, seen) in [
            ("allowed", tally.allowed),
            ("limited", tally.limited),
            ("never", tally.never),
            ("given back", tally.given_back),
        ] {
            assert!(seen >= CALLS / 100, "{what}: {tally:?}");
        }
        assert!(tally.on_the_edge < CALLS / 100, "{tally:?}");
        assert!(tally.exact > CALLS * 8 / 10, "{tally:?}");
    });
}

/// The replies of both modules to calls in turn on a new key, all within a second.
fn in_turn(c: &mut Connection, calls: &[[i64; 4]]) -> Vec<([i64; 5], [i64; 5])> {
    forget(c, "key");
    let start = Instant::now();
    let answer = |&[max_burst, count, period_s, quantity]: &[i64; 4]| {
        let arguments = Arguments { max_burst, count, period_s, quantity: Some(quantity) };
        let answers = ask(c, "key", &arguments, true);
        (answers.ours, answers.theirs)
    };
    let answers = calls.iter().map(answer).collect();
    // If the machine paused, try again.
    if start.elapsed() < Duration::from_secs(1) { answers } else { in_turn(c, calls) }
}

// The differences that docs/migrate.md describes.

#[test]
fn a_wait_as_long_as_redis_cell_replies_is_too_short() {
    server::on_all_with(both_modules, |server| {
        let mut c = server.connect();
        // All 16 units, and then one more, which comes back after a little less than 2 seconds.
        let answers = in_turn(&mut c, &[[15, 30, 60, 16], [15, 30, 60, 1]]);
        assert_eq!(answers[0], ([0, 16, 0, -1, 32], [0, 16, 0, -1, 32]));
        assert_eq!(answers[1], ([1, 16, 0, 2, 32], [1, 16, 0, 1, 31]));
    });
}

#[test]
fn at_thousands_a_second_redis_cell_shows_more_than_is_left() {
    server::on_all_with(both_modules, |server| {
        let answers = in_turn(&mut server.connect(), &[[6_000, 6_000, 1, 1]]);
        assert_eq!(answers, [([0, 6_001, 6_000, -1, 1], [0, 6_001, 6_024, -1, 0])]);
    });
}

#[test]
fn a_changed_rate_keeps_units_where_redis_cell_keeps_seconds() {
    server::on_all_with(both_modules, |server| {
        let mut c = server.connect();
        // Ten units of a second each become units of ten seconds, and the reverse.
        let slower = in_turn(&mut c, &[[19, 60, 60, 10], [19, 6, 60, 0]]);
        assert_eq!(slower[1], ([0, 20, 10, -1, 10], [0, 20, 19, -1, 9]));
        let faster = in_turn(&mut c, &[[19, 6, 60, 10], [19, 60, 60, 0]]);
        assert_eq!(faster[1], ([0, 20, 10, -1, 10], [1, 20, 0, 79, 99]));
        // The same rate over another period changes neither.
        let same = in_turn(&mut c, &[[19, 60, 60, 10], [19, 3_600, 3_600, 0]]);
        assert_eq!(same[1], ([0, 20, 10, -1, 10], [0, 20, 10, -1, 9]));
    });
}

#[test]
fn giving_back_too_much_breaks_the_key_of_redis_cell() {
    server::on_all_with(both_modules, |server| {
        let mut c = server.connect();
        let back = Arguments { max_burst: 4, count: 5, period_s: 60, quantity: Some(-1) };
        let theirs: RedisResult<[i64; 5]> = back.to("CL.THROTTLE", "their key").query(&mut c);
        assert!(theirs.is_err());
        let left: i64 = cmd("TTL").arg("their key").query(&mut c).unwrap();
        assert_eq!(left, -1);

        let ours: [i64; 5] = back.to("RL.THROTTLE", "our key").query(&mut c).unwrap();
        assert_eq!(ours, [0, 5, 5, -1, 0]);
        let exists: bool = cmd("EXISTS").arg("our key").query(&mut c).unwrap();
        assert!(!exists);
    });
}

#[test]
fn cl_throttle_belongs_to_the_module_loaded_first() {
    let without_argument =
        |builder: Builder| builder.config("loadmodule", &format!("{:?}", redis_cell()));
    server::on_all_with(without_argument, |server| {
        let mut c = server.connect();
        // redis-cell does not notice that the name is in use.
        let _: [i64; 5] = cmd("CL.THROTTLE").arg(&["key", "1", "1", "1"]).query(&mut c).unwrap();
        let holds: String = cmd("TYPE").arg("key").query(&mut c).unwrap();
        assert_eq!(holds, "ratelimit");

        // This module notices, and refuses to load.
        let () = cmd("FLUSHALL").query(&mut c).unwrap();
        server.edit_config(|lines| {
            let line = lines.iter().position(|line| line.contains("redis_cell"));
            lines[..=line.expect("its line")].rotate_right(1);
        });
        server.kill9();
        let why = server.try_resume().expect_err("the server must not start");
        assert!(why.contains("'cl.throttle', another module may have it"), "{why}");
    });
}
