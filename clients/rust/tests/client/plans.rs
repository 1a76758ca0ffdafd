//! Policies that are bound to keys, on real servers.

use std::time::Duration;

use tokio::time::sleep;
use tower_redis_ratelimit::{Lease, Outage, Source, is_outage};

use crate::support::server::{ALL, Server};

const FREE: &str = "@plan:free";

fn start_selling(name: &'static str) -> Server {
    let server = Server::start(name);
    server.send("RL.POLICY SET free 1/h");
    server.send("RL.POLICY SET pro 5/h");
    server
}

#[tokio::test]
async fn a_plan_stands_until_its_end_or_until_it_is_forgotten() {
    for name in ALL {
        let server = start_selling(name);
        let limiter = server.limiter();
        let limit = async || limiter.peek(("a", FREE)).await.expect(name).limit;
        assert!(limiter.check(("a", FREE)).await.expect(name).is_allowed());
        assert!(!limiter.check(("a", FREE)).await.expect(name).is_allowed());
        assert_eq!(limiter.plan("a", "pro", None).await, Ok(()), "{name}");
        let bought = limiter.check(("a", FREE)).await.expect(name);
        assert_eq!(bought.remaining, Some(3), "{name}: counts stay");
        assert_eq!(limiter.unplan("a").await, Ok(true), "{name}");
        assert_eq!(limiter.unplan("a").await, Ok(false), "{name}");
        limiter.plan("a", "pro", Some(Duration::from_millis(300))).await.expect(name);
        assert_eq!(limit().await, Some(5), "{name}");
        sleep(Duration::from_millis(310)).await;
        assert_eq!(limit().await, Some(1), "{name}");
    }
}

#[tokio::test]
async fn a_denied_customer_who_buys_passes_within_a_second() {
    let server = start_selling("redis-7.0");
    let limiter = server.builder().remember_denials(10).build().expect("options");
    let source = async || limiter.check_all(("a", FREE)).await.expect("it runs").source;
    let sources = [source().await, source().await, source().await];
    assert_eq!(sources, [Source::Server, Source::Server, Source::Denial]);
    limiter.plan("a", "pro", None).await.expect("it runs");
    let bought = limiter.check_all(("a", FREE)).await.expect("it runs");
    assert!(bought.is_allowed(), "the limiter that sold the plan asks at once");
    limiter.unplan("a").await.expect("it runs");
    assert_eq!([source().await, source().await], [Source::Server, Source::Denial]);
    server.limiter().plan("a", "pro", None).await.expect("it runs");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(source().await, Source::Server);
}

#[tokio::test]
async fn a_denied_lease_asks_the_server_again_within_a_second() {
    let server = start_selling("redis-7.0");
    let lease = Lease::new(server.limiter(), "a", FREE).expect("rules");
    let source = async || lease.take(1).await.expect("it runs").source;
    let sources = [source().await, source().await, source().await];
    assert_eq!(sources, [Source::Server, Source::Server, Source::Denial]);
    server.limiter().plan("a", "pro", None).await.expect("it runs");
    sleep(Duration::from_secs(1)).await;
    assert!(lease.take(1).await.expect("it runs").is_allowed());
}

#[tokio::test]
async fn without_the_server_the_default_decides() {
    let mut server = Server::start("redis-7.0");
    let local = server.builder().outage(Outage::Local).policies([("free", "1/h"), ("pro", "5/h")]);
    let local = local.build().expect("options");
    server.kill();
    assert!(is_outage(&local.plan("k", "pro", None).await.expect_err("it is away")));
    assert!(is_outage(&local.unplan("k").await.expect_err("it is away")));
    assert!(local.check(("k", FREE)).await.expect("it decides").is_allowed());
    assert!(!local.check(("k", FREE)).await.expect("it decides").is_allowed());
}
