//! A server ends when an allocation fails. Whichever allocation fails, the files on disk load
//! afterwards, with the effect of each answered command. An unanswered command takes effect
//! completely or not at all.
//!
//! Here only some allocations fail. `make out-of-memory` lets each allocation of the scenario
//! fail; `RATELIMIT_STRIDE=10` lets every tenth fail.

use std::env;
use std::thread;

use redis::{Connection, ErrorKind, Value};

use crate::support::allocator::Countdown;
use crate::support::client::{ask, attempt, blocks};
use crate::support::files::with_synced_aof;
use crate::support::policies::{Policies, known};
use crate::support::server::{Flavor, Server, all};
use crate::support::waiters::wait_unread;

/// Everything that allocates: values of each kind, policies, holds, several keys at once,
/// saving, rewriting, loading, and `DEL wait`, which admits a waiting client.
const SCENARIO: [&str; 22] = [
    "RL.POLICY SET free 9/d 100/30d",
    "RL.CHECK log 9/d",
    "RL.CHECK log COST 3 META somebody 9/d",
    "RL.CHECK states log:9/d,name=a window:9/d,name=b fixed:9/366d,name=c bucket:9/d,name=d",
    "RL.CHECK hold HOLD one EX 9000 slots:3",
    "RL.CHECK hold HOLD another EX 9000 slots:3",
    "RL.BLOCK block FOR 1d REASON a-reason-that-is-longer-than-a-word",
    "SAVE",
    "RL.MCHECK 3 log states new 9/d",
    "RL.SETTLE hold one",
    "RL.RENEW hold another EX 8000",
    "DEL wait",
    "BGREWRITEAOF",
    "RL.REFUND log 2",
    "COPY log copy",
    "RL.POLICY SET free 8/d",
    "RL.CHECK copy @free",
    "DEBUG RELOAD",
    "RL.RESET states",
    "RL.UNBLOCK block",
    "RL.CHECK new 9/d",
    "SAVE",
];

/// The part of a server's state that is compared: limits, slots, blocks and policies, but no times.
type State = (Vec<[i64; 3]>, Vec<(String, String, String)>, Policies);

fn state(c: &mut Connection) -> State {
    let peeks = [
        "RL.PEEK log 9/d",
        "RL.PEEK copy 9/d",
        "RL.PEEK new 9/d",
        "RL.PEEK states log:9/d,name=a",
        "RL.PEEK states window:9/d,name=b",
        "RL.PEEK states fixed:9/366d,name=c",
        "RL.PEEK states bucket:9/d,name=d",
        "RL.PEEK states 9/d",
        "RL.PEEK hold slots:3",
    ];
    let limits = peeks.map(|peek| {
        let [verdict, limit, remaining, ..] = ask::<[i64; 5]>(c, peek);
        [verdict, limit, remaining]
    });
    let blocked = blocks(c, "").into_iter().map(|(key, what, _, reason)| (key, what, reason));
    (limits.into(), blocked.collect(), known(c))
}

fn start(flavor: Flavor, countdown: &Countdown) -> Server {
    // Otherwise a server that ends would test the machine's memory for its crash report.
    let builder = with_synced_aof(flavor.builder()).config("crash-log-enabled", "no");
    let server = countdown.of(builder).start();
    let () = ask(&mut server.connect(), "RL.BLOCK other FOR 1d");
    let _: Value = ask(&mut server.connect(), "RL.CHECK wait 1/50s");
    server
}

/// The state before the scenario and after each step, and how many allocations the steps make
/// in all.
fn undisturbed(flavor: Flavor) -> (Vec<State>, i64) {
    const MANY: i64 = 1 << 60;
    let countdown = Countdown::new();
    let server = start(flavor, &countdown);
    let _waiter = wait_unread(&server, "RL.WAIT wait 60000 1/50s");
    let mut c = server.connect();
    let (mut states, mut allocations) = (vec![state(&mut c)], 0);
    for line in SCENARIO {
        countdown.begin(MANY);
        let _: Value = ask(&mut c, line);
        allocations += MANY - countdown.left();
        countdown.end();
        states.push(state(&mut c));
    }
    (states, allocations)
}

/// Lets one allocation of the scenario fail, and compares the server's state after a restart.
fn disturb(flavor: Flavor, failing: i64, states: &[State]) -> usize {
    let countdown = Countdown::new();
    let mut server = start(flavor, &countdown);
    let _waiter = wait_unread(&server, "RL.WAIT wait 60000 1/50s");
    let mut c = server.connect();
    countdown.begin(failing);
    // An error reply means that the command did nothing.
    let (mut answered, mut saved, mut unanswered) = (0, None, 0);
    for line in SCENARIO {
        match attempt(&mut c, line) {
            Ok(_) => answered += 1,
            Err(error) => {
                unanswered = usize::from(error.kind() == ErrorKind::Io);
                break;
            }
        }
        if line == "SAVE" || line == "DEBUG RELOAD" {
            saved = Some(answered);
        }
    }
    countdown.end();
    let what = format!("{}, allocation {failing}, {answered} steps answered", flavor.name);
    server.kill9();
    server.try_resume().unwrap_or_else(|log| panic!("{what}: {log}"));
    let possible = &states[answered..=(answered + unanswered).min(SCENARIO.len())];
    let found = state(&mut server.connect());
    assert!(possible.contains(&found), "{what}: {found:#?}, expected one of {possible:#?}");
    if let Some(saved) = saved {
        server.kill9();
        server.edit_config(|lines| lines.retain(|line| !line.starts_with("append")));
        server.try_resume().unwrap_or_else(|log| panic!("{what}: {log}"));
        let found = state(&mut server.connect());
        let possible = &states[saved..=(answered + unanswered).min(SCENARIO.len())];
        assert!(possible.contains(&found), "{what}: RDB file: {found:#?}, {possible:#?}");
    }
    answered
}

/// Calls a function for each number, in a dozen threads, and returns the results. Most threads
/// wait: in Redis 6.2 the child that rewrites the AOF keeps the sockets of an ended server for 5
/// s.
fn in_parallel(numbers: &[i64], of: impl Fn(i64) -> usize + Sync) -> Vec<usize> {
    let share = numbers.len().div_ceil(12);
    thread::scope(|scope| {
        let of = &of;
        let threads: Vec<_> = numbers
            .chunks(share)
            .map(|share| scope.spawn(move || share.iter().map(|&n| of(n)).collect::<Vec<_>>()))
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    })
}

#[test]
fn the_files_on_disk_load_whichever_allocation_failed() {
    for flavor in all().into_iter().filter(|flavor| flavor.has_shared_malloc()) {
        let (states, allocations) = undisturbed(flavor);
        assert!(allocations > 200, "{allocations} allocations");
        let stride = env::var("RATELIMIT_STRIDE")
            .map_or(allocations / 6, |stride| stride.parse().expect("a number"));
        let first = fastrand::i64(1..=stride);
        let failing: Vec<_> = (first..=allocations).step_by(stride as usize).collect();
        let reached = in_parallel(&failing, |failing| disturb(flavor, failing, &states));
        println!("{}: every {stride}th of {allocations} from {first}: {reached:?}", flavor.name);
        assert!(reached.iter().any(|&steps| steps < SCENARIO.len()), "no allocation failed");
    }
}
