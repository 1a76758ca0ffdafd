//! Our crate, as its README uses it, and INCR by the crate `redis` alone.

use std::cell::RefCell;

use tokio::runtime::{Builder, Runtime};
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

/// A caller that makes one request after the other needs one thread.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn own(url: &str) -> Hit {
    let (runtime, client) = (runtime(), redis::Client::open(url).expect("an address"));
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
    let (runtime, client) = (runtime(), redis::Client::open(url).expect("an address"));
    let connection =
        runtime.block_on(client.get_multiplexed_async_connection()).expect("a connection");
    let connection = RefCell::new(connection);
    Box::new(move |key, _| {
        let (mut connection, incr) = (connection.borrow_mut(), redis::cmd("INCR"));
        let counted = runtime.block_on(incr.clone().arg(key).query_async::<i64>(&mut *connection));
        counted.map(|count| (count > 0, None)).map_err(|error| error.to_string())
    })
}
