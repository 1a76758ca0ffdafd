//! Measures how many answers a second a hundred limiters get on one key, by checks, by leases and by
//! denials that they remember, for docs/operate/outages.md: `cargo bench --all-features`

#[allow(dead_code, reason = "the tests need more of it")]
#[path = "../tests/client/support/mod.rs"]
mod support;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use support::server::Server;
use tower_redis_ratelimit::{Lease, RateLimiter, Rules};

const SECONDS: Duration = Duration::from_secs(5);
const CONNECTIONS: usize = 100;
const NAME: &str = "valkey-9.1";

#[tokio::main]
async fn main() {
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
