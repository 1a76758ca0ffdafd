//! Many clients on one key, with the real clock: exactly what the rules allow passes.
//!
//! Eight Rust clients and four redis-py processes (`hammer.py`) hammer each key for six
//! seconds. For each request that passed, a client records the server's time before and after
//! it. The decision happened between the two, so a pass is a violation only if both times break
//! a rule. Each client also records the periods in which it sent requests without a pause, so that
//! capacity left unused while the machine stood still does not count as lost.

use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::{Connection, Value, cmd, from_redis_value, pipe};

use crate::support::machine;
use crate::support::server::{self, Server};

const RUN: Duration = Duration::from_secs(6);
const RUST_CLIENTS: usize = 8;
const PYTHON_CLIENTS: usize = 4;
/// The total time for which short pauses of a busy machine may stop the requests.
const SLOWNESS_US: i64 = 800_000;
/// The longest gap between two requests that is not a pause.
const PAUSE_US: i64 = 50_000;

/// Each key and its rules.
const SCENARIOS: [(&str, &str); 6] = [
    ("log", "log:100/s log:160/2s"),
    ("fixed", "fixed:150/s"),
    ("window", "window:120/s,res=4"),
    ("bucket", "bucket:200/s,burst=50"),
    ("interval", "bucket:90/s,refill=interval"),
    ("leaky", "leaky:100/s,queue=20"),
];

/// A request that passed: the server's time before and after it, and the wait for its turn.
#[derive(Clone, Copy, Debug)]
struct Pass {
    before_us: i64,
    after_us: i64,
    wait_us: i64,
}

/// What one client saw.
#[derive(Default)]
struct Seen {
    /// The passes of each scenario.
    passes: [Vec<Pass>; SCENARIOS.len()],
    /// The periods in which the client sent requests without a pause, in microseconds.
    asking: Vec<(i64, i64)>,
}

impl Seen {
    fn asked_at(&mut self, time_us: i64) {
        match self.asking.last_mut() {
            Some((_, until_us)) if time_us - *until_us <= PAUSE_US => *until_us = time_us,
            _ => self.asking.push((time_us, time_us)),
        }
    }

    fn add(&mut self, other: Self) {
        for (mine, theirs) in self.passes.iter_mut().zip(other.passes) {
            mine.extend(theirs);
        }
        self.asking.extend(other.asking);
    }
}

#[test]
fn many_clients_pass_exactly_as_often_as_the_rules_allow() {
    server::one_is_enough();
    machine::alone();
    server::on_all(|server| hammer(server));
}

fn server_time_us(reply: &Value) -> i64 {
    let (seconds, micros): (i64, i64) = from_redis_value(reply.clone()).expect("a time");
    seconds * 1_000_000 + micros
}

fn now_us() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(now.as_micros()).expect("a time")
}

/// Checks every key in turn until the time is up.
fn ask_in_rust(mut c: Connection) -> Seen {
    let mut asked = pipe();
    asked.cmd("TIME");
    for (key, rules) in SCENARIOS {
        asked.cmd("RL.CHECK").arg(key).arg(rules.split(' ').collect::<Vec<_>>());
        asked.cmd("TIME");
    }
    let start = Instant::now();
    let mut seen = Seen::default();
    while start.elapsed() < RUN {
        let replies: Vec<Value> = asked.query(&mut c).expect("replies");
        let received_us = now_us();
        let times_us: Vec<i64> = replies.iter().step_by(2).map(server_time_us).collect();
        times_us.iter().for_each(|&time_us| seen.asked_at(time_us));
        for (index, reply) in replies.iter().skip(1).step_by(2).enumerate() {
            let reply: [i64; 5] = from_redis_value(reply.clone()).expect("five integers");
            if reply[0] == 0 {
                // Valkey 9.1 reads its clock once for several commands, so the next TIME may repeat an
                // older reading. Only a reading later than that one surely follows the decision.
                let [next, rest @ ..] = &times_us[index + 1..] else { panic!("no time after") };
                let after_us = rest.iter().find(|time| *time > next).copied();
                seen.passes[index].push(Pass {
                    before_us: times_us[index],
                    after_us: after_us.unwrap_or(received_us),
                    wait_us: reply[3] * 1_000,
                });
            }
        }
    }
    seen
}

/// Starts a client that does what [`ask_in_rust`] does.
fn start_redis_py(port: u16) -> Child {
    const ROOT: &str = env!("CARGO_MANIFEST_DIR");
    Command::new("python3")
        .arg(format!("{ROOT}/tests/integration/command/hammer.py"))
        .args([&port.to_string(), &RUN.as_secs().to_string(), &PAUSE_US.to_string()])
        .args(SCENARIOS.map(|(key, rules)| format!("{key} {rules}")))
        .env("PYTHONPATH", format!("{ROOT}/.cache/python"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("a client")
}

/// Reads what a redis-py client prints at its end: `SCENARIO BEFORE AFTER WAIT` for each pass
/// and `FROM UNTIL` for each period without a pause.
fn seen_by_redis_py(mut client: Child) -> Seen {
    let mut seen = Seen::default();
    for line in BufReader::new(client.stdout.take().expect("piped")).lines() {
        let line = line.expect("text");
        let fields: Vec<i64> =
            line.split(' ').map(|field| field.parse().expect("a number")).collect();
        match fields[..] {
            [scenario, before_us, after_us, wait_us] => {
                seen.passes[scenario as usize].push(Pass { before_us, after_us, wait_us });
            }
            [from_us, until_us] => seen.asking.push((from_us, until_us)),
            _ => panic!("{line}"),
        }
    }
    assert!(client.wait().expect("ended").success(), "a redis-py client failed");
    seen
}

/// What all clients saw, combined.
fn seen_by_all(server: &Server) -> Seen {
    thread::scope(|scope| {
        let connections: Vec<_> = (0..RUST_CLIENTS).map(|_| server.connect()).collect();
        let python: Vec<_> = (0..PYTHON_CLIENTS).map(|_| start_redis_py(server.port())).collect();
        let rust: Vec<_> =
            connections.into_iter().map(|c| scope.spawn(|| ask_in_rust(c))).collect();
        let mut seen = Seen::default();
        python.into_iter().for_each(|client| seen.add(seen_by_redis_py(client)));
        assert!(
            seen.passes.iter().any(|passes| !passes.is_empty()),
            "redis-py got nothing through"
        );
        rust.into_iter().for_each(|client| seen.add(client.join().expect("a client")));
        seen
    })
}

fn hammer(server: &Server) {
    let Seen { mut passes, asking } = seen_by_all(server);
    println!("{}:", server.flavor().name);
    for ((_, rules), passes) in SCENARIOS.iter().zip(&mut passes) {
        passes.sort_by_key(|pass| pass.before_us);
        println!("  {rules}: {} let through", passes.len());
    }
    let silences = silences(asking);
    let lost_us = SLOWNESS_US + silences.iter().map(|gap| gap.end - gap.start).sum::<i64>();
    println!("  no client asked in {silences:?}");
    at_most_in_any_window(&passes[0], 100, 1_000_000);
    at_most_in_any_window(&passes[0], 160, 2_000_000);
    reaches_limit(&passes[0], 160, 2_000_000, lost_us);
    fixed_windows(&passes[1], 150, 1_000_000, &silences);
    window_counter(&passes[2], 120, 1_000_000, 4, lost_us);
    token_bucket(&passes[3], 200, 50, lost_us);
    at_most_in_any_window(&passes[4], 2 * 90, 1_000_000);
    reaches_limit(&passes[4], 90, 1_000_000, lost_us);
    leaky_turns(&passes[5], 100, 20, lost_us, &mut server.connect());
}

/// The times at which no client sent requests, because clients, server or machine stood still.
fn silences(mut asking: Vec<(i64, i64)>) -> Vec<Range<i64>> {
    asking.sort_unstable();
    let mut until_us = asking[0].1;
    let mut silences = Vec::new();
    for (from_us, to_us) in asking {
        if from_us > until_us {
            silences.push(until_us..from_us);
        }
        until_us = until_us.max(to_us);
    }
    silences
}

/// Checks that no window of `period_us` has more than `limit` passes. A pass surely belongs to
/// a window only if both times of the pass lie in the window. If the client paused, the two times
/// lie far apart.
fn at_most_in_any_window(passes: &[Pass], limit: usize, period_us: i64) {
    for (index, first) in passes.iter().enumerate() {
        let end_us = first.before_us + period_us;
        let began = passes[index..].iter().take_while(|pass| pass.before_us < end_us);
        let surely = began.filter(|pass| pass.after_us < end_us).count();
        assert!(surely <= limit, "{surely} requests passed within {period_us} us");
    }
}

/// Checks that no capacity is lost: as soon as a request leaves the window, another passes.
fn reaches_limit(passes: &[Pass], limit: usize, period_us: i64, lost_us: i64) {
    assert!(passes.len() > limit, "only {} passed", passes.len());
    for many in passes.windows(limit + 1) {
        let late = many[limit].before_us - many[0].after_us - period_us;
        assert!(late <= lost_us, "the limit of {limit} was reached {late} us late");
    }
}

/// Checks that each aligned window has at most `limit` passes, and that each whole window
/// without a silence has exactly `limit`.
fn fixed_windows(passes: &[Pass], limit: usize, period_us: i64, silences: &[Range<i64>]) {
    let (first, last) =
        (passes[0].after_us / period_us, passes[passes.len() - 1].before_us / period_us);
    for window in first..=last {
        let surely =
            |p: &&Pass| p.before_us / period_us == window && p.after_us / period_us == window;
        let maybe =
            |p: &&Pass| p.before_us / period_us <= window && p.after_us / period_us >= window;
        let at_least = passes.iter().filter(surely).count();
        let at_most = passes.iter().filter(maybe).count();
        assert!(at_least <= limit, "{at_least} passed in a window of {limit}");
        let (start, end) = (window * period_us, (window + 1) * period_us);
        let is_silent = silences.iter().any(|gap| gap.start < end && start < gap.end);
        if window > first && window < last && !is_silent {
            assert!(at_most >= limit, "only {at_most} passed in a full window of {limit}");
        }
    }
}

/// Checks the definition of the sliding window counter. A pass whose two times lie in different
/// sub-intervals does not count.
fn window_counter(passes: &[Pass], limit: i64, period_us: i64, res: i64, lost_us: i64) {
    let sub = period_us / res;
    let count = |from: i64, to: i64, upto: usize| {
        passes[..upto].iter().filter(|p| p.before_us >= from && p.after_us < to).count() as i64
    };
    for (index, pass) in passes.iter().enumerate() {
        let now = pass.after_us;
        let start = now / sub * sub;
        if pass.before_us < start {
            continue;
        }
        // Only passes that surely came before this one count.
        let old = count(start - period_us, start - period_us + sub, index);
        let current = count(start - period_us + sub, pass.before_us, index);
        assert!(
            old * (sub - (now - start)) + (current + 1) * sub <= limit * sub,
            "request {index} passed with {old} and {current} before it"
        );
    }
    reaches_limit(passes, limit as usize, period_us + sub, lost_us);
}

/// Checks that between any two times at most the burst and the refill pass. Only passes that
/// surely lie between them count.
fn token_bucket(passes: &[Pass], per_second: i64, burst: i64, lost_us: i64) {
    for (index, first) in passes.iter().enumerate() {
        let mut ends_us: Vec<i64> = passes[index..].iter().map(|pass| pass.after_us).collect();
        ends_us.sort_unstable();
        for (passed, end_us) in (1..).zip(ends_us) {
            let there_was = burst * 1_000_000 + (end_us - first.before_us) * per_second;
            assert!(passed * 1_000_000 <= there_was, "{passed} passed, more than the bucket had");
        }
    }
    let (first, last) = (passes[0], passes[passes.len() - 1]);
    let refilled_us = last.before_us - first.after_us - lost_us;
    let refilled = refilled_us * per_second / 1_000_000;
    assert!(passes.len() as i64 >= refilled, "only {} of {refilled} passed", passes.len());
}

/// Checks that turns are at least `1/rate` apart, except for rounding to the millisecond, and
/// that no wait is longer than the queue.
fn leaky_turns(passes: &[Pass], per_second: i64, queue: i64, lost_us: i64, c: &mut Connection) {
    let apart_us = 1_000_000 / per_second;
    let mut turns: Vec<Pass> = passes.to_vec();
    turns.sort_by_key(|pass| pass.before_us + pass.wait_us);
    for pair in turns.windows(2) {
        // Either pass of the pair may have been decided first.
        let apart = |a: Pass, b: Pass| (b.after_us + b.wait_us) - (a.before_us + a.wait_us);
        let apart = apart(pair[0], pair[1]).max(apart(pair[1], pair[0]));
        assert!(apart >= apart_us - 1_000, "two turns only {apart} us apart");
        assert!(pair[1].wait_us <= queue * apart_us, "a wait of {} us", pair[1].wait_us);
    }
    let (first, last) = (passes[0], passes[passes.len() - 1]);
    let left = (last.before_us - first.after_us - lost_us) / apart_us;
    assert!(passes.len() as i64 >= left, "only {} of {left} passed", passes.len());
    let kind: String = cmd("TYPE").arg("leaky").query(c).expect("a type");
    assert!(kind == "ratelimit" || kind == "none", "{kind}");
}
