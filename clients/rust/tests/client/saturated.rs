//! More requests at once than a limiter sends at once: none of them is an outage.

use std::time::Duration;

use tower_redis_ratelimit::{Check, Outage, RateLimiter, is_outage, is_saturated, redis};

use crate::support::app::{App, limits};
use crate::support::log::Log;
use crate::support::server::Server;
use crate::support::until;

const MINUTE: Duration = Duration::from_secs(60);

/// A command that takes this number of seconds, during which the server answers others.
async fn take_s(limiter: &RateLimiter, seconds: u32) -> redis::RedisResult<redis::Value> {
    limiter.call(redis::cmd("BLPOP").arg("none").arg(seconds), "none").await
}

#[tokio::test]
async fn a_limiter_without_a_free_place_is_saturated_and_not_away() {
    let log = Log::start();
    let server = Server::start("valkey-8.1");
    let limiter = server.builder().concurrency(1).queue_timeout(Duration::from_millis(200));
    let limiter = limiter.outage(Outage::Allow).build().expect("options");
    let app = App::start(limits(limiter.clone(), &["9/h"])).await;
    let others = async {
        for _ in 0..4 {
            let error = limiter.check(("a", "9/h")).await.expect_err("there is no place");
            assert!(is_saturated(&error) && !is_outage(&error), "{error}");
        }
        let answer = app.ask(&["x-key: a"]).await;
        assert_eq!((answer.status, answer.field("retry-after")), (503, Some("1")));
        assert_eq!(answer.body, r#"{"title": "Service Unavailable", "status": 503}"#);
    };
    let (taken, ()) = tokio::join!(biased; take_s(&limiter, 6), others);
    assert_eq!(taken, Ok(redis::Value::Nil));
    assert_eq!((limiter.outages(), limiter.away(), app.served()), (0, false, 0));
    assert!(limiter.check(("a", "9/h")).await.expect("it is free").is_allowed());
    assert_eq!(log.with("WARN").len(), 1, "{:?}", log.with(""));
    assert_eq!(log.with("a request is refused: this process is saturated").len(), 1);
}

#[tokio::test]
async fn a_wait_in_line_takes_no_place() {
    let server = Server::start("redis-8.2");
    let limiter = server.builder().concurrency(1).build().expect("options");
    let slot = |id: &str| Check::new("s", "slots:1").with_hold(id, MINUTE);
    assert!(limiter.check(slot("a")).await.expect("it is free").is_allowed());
    let others = async {
        until("it waits", async || server.waiting().len() == 1).await;
        assert!(limiter.check(("b", "9/h")).await.expect("there is a place").is_allowed());
        limiter.settle("s", "a", tower_redis_ratelimit::Settlement::AsCharged).await
    };
    let (served, settled) = tokio::join!(limiter.wait(slot("b"), MINUTE), others);
    assert!(served.expect("its turn comes").is_allowed() && settled == Ok(true));
}
