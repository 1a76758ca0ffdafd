//! Measures what a check costs beside the crate `redis` alone, and how many answers a second a hundred
//! limiters get on one key, by checks, by leases and by denials that they remember, for
//! docs/operate/outages.md and docs/guide/clients.md: `cargo bench --all-features`, and with `-- cost` only the first.

#[allow(dead_code, reason = "the tests need more of it")]
#[path = "../tests/client/support/mod.rs"]
mod support;

use std::env;
use std::fs;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::cmd;
use support::server::Server;
use tower_redis_ratelimit::{Lease, RateLimiter, Rules};

const SECONDS: Duration = Duration::from_secs(5);
const CONNECTIONS: usize = 100;
const NAME: &str = "valkey-9.1";
/// A turn of one side, and how often each has its turn: what else the machine does meets both sides.
const TURN: Duration = Duration::from_millis(500);
const TURNS: usize = 20;

#[tokio::main]
async fn main() {
    let server = Server::start(NAME);
    for callers in [1, 8] {
        compare(&server, callers).await;
    }
    if env::args().any(|argument| argument == "cost") {
        return;
    }
    let limiters = |remembered| {
        let make = || server.builder().remember_denials(remembered).build().expect("options");
        (0..CONNECTIONS).map(|_| make()).collect::<Vec<_>>()
    };
    let (rate, burst) = (1_000_000, 100_000);
    let rules = Rules::from(format!("bucket:{rate}/s,burst={burst}"));
    let plain = checks(limiters(0), "plain".to_string(), rules.clone());
    measure("RL.CHECK", plain, (rate, burst)).await;
    let leases = limiters(0).into_iter().map(|limiter| {
        let lease = Arc::new(Lease::new(limiter, "leased", &rules).expect("rules"));
        move || {
            let lease = Arc::clone(&lease);
            async move { lease.take(1).await.expect("it runs").is_allowed() }
        }
    });
    measure("leases", leases.collect(), (rate, burst)).await;
    let remembered = checks(limiters(1000), "denied".to_string(), Rules::from("2000/h"));
    measure("denials remembered", remembered, (0, 2000)).await;
}

/// Prints the calls a second and the CPU time a call of checks by the package, divided by those of the
/// same command on a `MultiplexedConnection`.
async fn compare(server: &Server, callers: usize) {
    let client = server.client();
    let limiter = RateLimiter::server(client.clone()).build().expect("options");
    let alone = client.get_multiplexed_async_connection().await.expect("a connection");
    let rules = Rules::from("bucket:1000000/s");
    let ours = move || {
        let (limiter, rules) = (limiter.clone(), rules.clone());
        async move { _ = limiter.check(("cost", rules)).await.expect("it runs") }
    };
    let theirs = move || {
        let mut alone = alone.clone();
        async move {
            let mut command = cmd("RL.CHECK");
            command.arg("cost").arg("bucket:1000000/s");
            _ = command.query_async::<Vec<i64>>(&mut alone).await.expect("it runs");
        }
    };
    let mut sums = [[0.0; 3]; 2];
    for _ in 0..TURNS {
        let turns = [turn(callers, ours.clone()).await, turn(callers, theirs.clone()).await];
        for (sum, add) in sums.iter_mut().flatten().zip(turns.into_iter().flatten()) {
            *sum += add;
        }
    }
    let [[our_calls, our_user, our_all], [calls, user, all]] = sums;
    let user_a_call = (our_user / our_calls) / (user / calls);
    let all_a_call = (our_all / our_calls) / (all / calls);
    println!(
        "a check by {callers} tasks: {:.2} of the calls; of the CPU time a call {user_a_call:.2} in \
         this process's own code and {all_a_call:.2} with the kernel's",
        our_calls / calls
    );
}

/// The calls in one turn, the user time and the user and system time of this process.
async fn turn<F>(callers: usize, call: impl Fn() -> F + Clone + Send + 'static) -> [f64; 3]
where
    F: Future<Output = ()> + Send,
{
    let (start, [user, all]) = (Instant::now(), cpu_time());
    let tasks = (0..callers).map(|_| {
        let call = call.clone();
        tokio::spawn(async move {
            let mut calls = 0.0;
            while start.elapsed() < TURN {
                call().await;
                calls += 1.0;
            }
            calls
        })
    });
    let mut calls = 0.0;
    for task in tasks.collect::<Vec<_>>() {
        calls += task.await.expect("no panic");
    }
    let [user_then, all_then] = cpu_time();
    [calls, user_then - user, all_then - all]
}

/// The ticks that this process has run in its own code, and those with the kernel's.
fn cpu_time() -> [f64; 2] {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux");
    let (_, rest) = stat.rsplit_once(") ").expect("a name in brackets");
    let mut ticks = rest.split(' ').skip(11).map(|ticks| ticks.parse::<f64>().expect("a number"));
    let [user, system] = [ticks.next(), ticks.next()].map(Option::unwrap_or_default);
    [user, user + system]
}

type Taking = Pin<Box<dyn Future<Output = bool> + Send>>;

fn checks(
    limiters: Vec<RateLimiter>,
    key: String,
    rules: Rules,
) -> Vec<impl Fn() -> Taking + Send + 'static> {
    let check = move |limiter: RateLimiter| {
        let (key, rules) = (key.clone(), rules.clone());
        move || {
            let (limiter, key, rules) = (limiter.clone(), key.clone(), rules.clone());
            let asking = async move { limiter.check((key, rules)).await };
            Box::pin(async move { asking.await.expect("it runs").is_allowed() }) as Taking
        }
    };
    limiters.into_iter().map(check).collect()
}

/// Prints the answers a second, and the units that passed divided by the units that the limit
/// allows (the rate times the time, plus the burst).
async fn measure<F>(
    name: &str,
    takes: Vec<impl Fn() -> F + Send + 'static>,
    (rate, burst): (u32, u32),
) where
    F: Future<Output = bool> + Send,
{
    let start = Instant::now();
    let tasks = takes.into_iter().map(|take| {
        tokio::spawn(async move {
            let (mut asked, mut passed) = (0_u32, 0_u32);
            while start.elapsed() < SECONDS {
                for _ in 0..100 {
                    passed += u32::from(take().await);
                }
                asked += 100;
                tokio::task::yield_now().await;
            }
            (asked, passed)
        })
    });
    let (mut asked, mut passed) = (0, 0);
    for task in tasks.collect::<Vec<_>>() {
        let (some, of_them) = task.await.expect("no panic");
        (asked, passed) = (asked + some, passed + of_them);
    }
    let seconds = start.elapsed().as_secs_f64();
    let part = f64::from(passed) / (f64::from(rate) * seconds + f64::from(burst));
    println!("{name}: {:.0} a second, {part:.4} of the limit", f64::from(asked) / seconds);
}
