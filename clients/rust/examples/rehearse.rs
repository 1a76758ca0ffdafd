//! Sends 50 checks a second: `rehearse URL OUTAGE SECONDS`; see `clients/rehearsal/rehearse.py`.

use std::env::args;
use std::error::Error;
use std::time::{Duration, Instant};

use redis::Client;
use tower_redis_ratelimit::{Outage, RateLimiter};

const INTERVAL: Duration = Duration::from_millis(20);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let [url, outage, seconds] = &args().skip(1).collect::<Vec<_>>()[..] else {
        return Err("give URL OUTAGE SECONDS".into());
    };
    let builder = match url.strip_prefix("redis+cluster") {
        Some(rest) => RateLimiter::cluster([Client::open(format!("redis{rest}"))?]),
        None => RateLimiter::server(Client::open(&url[..])?),
    };
    let outage = match &outage[..] {
        "allow" => Outage::Allow,
        "deny" => Outage::Deny,
        "local" => Outage::Local,
        _ => Outage::Raise,
    };
    let limiter = builder.outage(outage).build()?;
    limiter.check(("rehearsal", "window:1000000/h")).await?;
    println!("ready");
    let (began, length) = (Instant::now(), Duration::from_secs(seconds.parse()?));
    let mut asking = Vec::new();
    let mut at = Duration::ZERO;
    while at < length {
        tokio::time::sleep_until((began + at).into()).await;
        asking.push(tokio::spawn(ask(limiter.clone(), began, at)));
        at += INTERVAL;
    }
    for asked in asking {
        asked.await?;
    }
    Ok(())
}

async fn ask(limiter: RateLimiter, began: Instant, at: Duration) {
    let answer = limiter.check(("rehearsal", "window:1000000/h")).await;
    let what = answer.map_or_else(
        |error| format!("error {:?}", error.kind()),
        |reply| format!("{:?}", reply.source).to_lowercase(),
    );
    let took_s = began.elapsed().saturating_sub(at).as_secs_f64();
    println!(r#"{{"at_s": {}, "took_s": {took_s}, "what": "{what}"}}"#, at.as_secs_f64());
}
