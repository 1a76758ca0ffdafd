//! Measures the figures of docs/operate/outages.md for this client:
//!
//! ```text
//! cargo bench --all-features -- outages   # what a request costs while the server is away
//! cargo bench --all-features -- leases    # answers a second of a hundred connections on one key
//! ```

#[allow(dead_code, reason = "the tests need more of it")]
#[path = "../tests/client/support/mod.rs"]
mod support;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::cluster::ClusterConfig;
use redis::{RedisResult, cmd};
use support::cluster::Cluster;
use support::server::Server;
use tokio::time::timeout;
use tower_redis_ratelimit::{Builder, Lease, Outage, RateLimiter, Rules};

const REQUESTS: usize = 200;
const PATIENCE: Duration = Duration::from_secs(10);
const SECONDS: Duration = Duration::from_secs(5);
const CONNECTIONS: usize = 100;
const NAME: &str = "valkey-9.1";
const RULE: &str = "20/m";

#[tokio::main]
async fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("outages") => outages().await,
        Some("leases") => leases().await,
        _ => println!("which: outages or leases?"),
    }
}

/// A state of the server, and a function that brings the server into it.
type Scene = (&'static str, fn(&mut Server));

async fn outages() {
    let scenes: [Scene; 6] = [
        ("fine", |_| {}),
        ("stopped", |server| server.freeze(true)),
        ("down", Server::kill),
        ("loading", Server::restart_slowly),
        ("out of memory", |server| server.send("CONFIG SET maxmemory 1")),
        ("failed over", |server| server.send("REPLICAOF 127.0.0.1 1")),
    ];
    for (name, begin) in scenes {
        let mut server = Server::start(NAME);
        let limiter = local(RateLimiter::server(server.client()));
        let config = ConnectionManagerConfig::new().set_number_of_retries(0);
        let alone = ConnectionManager::new_lazy_with_config(server.client(), config);
        let alone = alone.expect("an address");
        let _ = (ask(&limiter).await, ask_alone(alone.clone()).await);
        begin(&mut server);
        println!("{name}: {}", costs(|| ask(&limiter)).await);
        println!("{name}, alone: {}", costs(|| ask_alone(alone.clone())).await);
    }
    let mut cluster = Cluster::start(NAME);
    let limiter = local(RateLimiter::cluster(cluster.client()));
    let alone = cluster.client().get_pending_async_connection_with_config(ClusterConfig::new());
    let _ = (ask(&limiter).await, ask_alone(alone.clone()).await);
    cluster.lose_quorum();
    println!("cluster without quorum: {}", costs(|| ask(&limiter)).await);
    println!("cluster without quorum, alone: {}", costs(|| ask_alone(alone.clone())).await);
}

fn local(builder: Builder) -> RateLimiter {
    builder.outage(Outage::Local).build().expect("options")
}

async fn ask(limiter: &RateLimiter) -> RedisResult<()> {
    limiter.check(("k", RULE)).await.map(drop)
}

/// Asks by the crate `redis` alone, with a time-out of 250 ms and no breaker.
async fn ask_alone(mut redis: impl ConnectionLike) -> RedisResult<()> {
    let (command, late) = (cmd("RL.CHECK").arg("k").arg(RULE).clone(), io::ErrorKind::TimedOut);
    let asking = redis.req_packed_command(&command);
    let answer = timeout(Duration::from_millis(250), asking).await;
    answer.map_err(|_| io::Error::from(late))?.map(drop)
}

/// Sends requests one after the other until the patience ends. Returns the median and the longest
/// time, the number of requests, and the total time.
async fn costs<F: Future>(request: impl Fn() -> F) -> String {
    let (start, mut found) = (Instant::now(), Vec::new());
    while found.len() < REQUESTS && start.elapsed() < PATIENCE {
        let asked = Instant::now();
        let _ = request().await;
        found.push(asked.elapsed().as_secs_f64() * 1000.0);
    }
    let (all, number) = (start.elapsed(), found.len());
    found.sort_by(f64::total_cmp);
    let (median, longest) = (found[number / 2], found[number - 1]);
    format!("{median:.3} / {longest:.2} ms, {number} in {:.2} s", all.as_secs_f64())
}

async fn leases() {
    let server = Server::start(NAME);
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
