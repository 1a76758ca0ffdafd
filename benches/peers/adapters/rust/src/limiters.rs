//! Our crate, as its README uses it, and INCR by the crate `redis` alone.

use std::cell::RefCell;

use tower_redis_ratelimit::{Outage, RateLimiter, redis};

use crate::{Hit, Rule};

pub fn make(peer: &str, url: &str) -> Hit {
    match peer {
        "redis-rs INCR" => incr(url),
        "ours rust" => own(url),
        _ => panic!("no peer is named {peer}"),
    }
}

fn text([limit, period_ms]: &Rule) -> String {
    let unit = match period_ms {
        1000 => "s",
        60_000 => "m",
        _ => "h",
    };
    format!("{limit}/{unit}")
}

fn own(url: &str) -> Hit {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let client = redis::Client::open(url).expect("an address");
    let limiter = {
        let _inside = runtime.enter();
        RateLimiter::server(client).outage(Outage::Local).build().expect("a limiter")
    };
    Box::new(move |key, rules| {
        let texts: Vec<_> = rules.iter().map(text).collect();
        let reply = runtime.block_on(limiter.check((key, texts)));
        let reply = reply.map_err(|error| error.to_string())?;
        Ok((reply.is_allowed(), reply.wait.map(|wait| wait.as_secs_f64() * 1000.0)))
    })
}

fn incr(url: &str) -> Hit {
    let client = redis::Client::open(url).expect("an address");
    let connection = RefCell::new(client.get_connection().expect("a connection"));
    Box::new(move |key, _| {
        let counted = redis::cmd("INCR").arg(key).query::<i64>(&mut *connection.borrow_mut());
        counted.map(|count| (count > 0, None)).map_err(|error| error.to_string())
    })
}
