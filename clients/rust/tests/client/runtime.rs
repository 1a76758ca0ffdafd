//! Limiters in several runtimes, in none, on connections of the application, and without a server.

use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use tokio::runtime::Runtime;
use tower_redis_ratelimit::{Check, Hold, Outage, RateLimiter, Source, is_misuse, is_saturated};

use crate::support::cluster::Cluster;
use crate::support::server::Server;
use crate::support::{runtime, until};

const MINUTE: Duration = Duration::from_secs(60);

async fn source(limiter: &RateLimiter) -> Source {
    limiter.check(("a", "1000/h")).await.expect("no outage is an error").source
}

/// Waits until something holds, while no runtime runs but during `holds` itself.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < MINUTE, "not in time: {what}");
        sleep(Duration::from_millis(10));
    }
}

/// Connections and probes end with their runtime, and the next runtime has its own.
#[test]
fn one_limiter_serves_one_runtime_after_the_other() {
    let mut server = Server::start("valkey-9.1");
    let limiter = server.builder().outage(Outage::Allow).build().expect("options");
    for _ in 0..3 {
        assert_eq!(runtime().block_on(source(&limiter)), Source::Server);
    }
    server.kill();
    assert_eq!(runtime().block_on(source(&limiter)), Source::Outage);
    server.restart();
    let is_served = async || source(&limiter).await == Source::Server;
    runtime().block_on(until("another runtime probes", is_served));
}

/// A program may enter a runtime for each check alone. Then probes go on only during checks.
#[test]
fn a_runtime_that_runs_only_during_checks_finds_the_server_back() {
    let mut server = Server::start("redis-7.0");
    let limiter = server.builder().outage(Outage::Allow).build().expect("options");
    let runtime = runtime();
    let until = |from| wait_until("its answer", || runtime.block_on(source(&limiter)) == from);
    until(Source::Server);
    server.kill();
    until(Source::Outage);
    server.restart();
    until(Source::Server);
}

/// What drives a connection, and what probes, stands still with its runtime.
#[test]
fn a_runtime_that_stands_still_stops_no_other() {
    let mut server = Server::start("valkey-8.1");
    let limiter = server.builder().timeout(Duration::from_secs(1)).outage(Outage::Allow);
    let limiter = limiter.build().expect("options");
    let [first, second] = [runtime(), runtime()];
    for _ in 0..3 {
        assert_eq!(first.block_on(source(&limiter)), Source::Server);
        assert_eq!(second.block_on(source(&limiter)), Source::Server);
    }
    assert_eq!(limiter.outages(), 0);
    server.kill();
    wait_until("it is away", || second.block_on(source(&limiter)) == Source::Outage);
    server.restart();
    wait_until("the other probes", || first.block_on(source(&limiter)) == Source::Server);
    assert_eq!(second.block_on(source(&limiter)), Source::Server);
}

/// The runtime that asks for the map of a cluster stands still meanwhile.
#[test]
fn a_runtime_that_stands_still_stops_no_survey_of_a_cluster() {
    let cluster = Cluster::start("valkey-9.1");
    let limiter = RateLimiter::cluster(cluster.clients()).timeout(Duration::from_secs(1));
    let limiter = limiter.outage(Outage::Allow).build().expect("options");
    let [first, second] = [runtime(), runtime()];
    let asks = |runtime: &Runtime, from| {
        wait_until("its answer", || runtime.block_on(source(&limiter)) == from);
    };
    cluster.freeze(true);
    asks(&first, Source::Outage);
    // This waits a while for the probe, which asks for the map first.
    asks(&first, Source::Outage);
    cluster.freeze(false);
    asks(&second, Source::Server);
}

/// All connections end while nobody runs the runtime.
#[test]
fn a_connection_that_the_server_ended_costs_no_check_of_a_runtime_that_did_not_run() {
    let (server, runtime) = (Server::start("redis-7.0"), runtime());
    let manager = runtime.block_on(ConnectionManager::new(server.client())).expect("it runs");
    for of in [server.builder(), RateLimiter::on(manager)] {
        let limiter = of.build().expect("options");
        let both = async || tokio::join!(source(&limiter), source(&limiter));
        for _ in 0..3 {
            assert_eq!(runtime.block_on(both()), (Source::Server, Source::Server));
            server.send("CLIENT KILL TYPE normal");
            sleep(Duration::from_millis(50));
        }
        assert_eq!(runtime.block_on(both()), (Source::Server, Source::Server));
    }
}

#[test]
fn a_limiter_that_is_closed_has_no_connection_though_its_runtime_runs_no_more() {
    let (server, runtime) = (Server::start("redis-7.0"), runtime());
    let limiter = server.limiter();
    assert_eq!(runtime.block_on(source(&limiter)), Source::Server);
    assert_eq!(server.clients(), 2);
    runtime.block_on(limiter.close());
    wait_until("it is closed", || server.clients() == 1);
}

#[test]
fn a_hold_is_lost_at_its_end_even_if_no_runtime_ran() {
    let (server, runtime) = (Server::start("redis-7.0"), runtime());
    let (limiter, ttl) = (server.limiter(), Duration::from_millis(300));
    let hold = runtime.block_on(limiter.hold(("s", "slots:1"), ttl)).expect("it is free");
    sleep(ttl);
    assert!(hold.is_lost());
    let hold = runtime.block_on(limiter.hold(("t", "slots:1"), MINUTE)).expect("it is free");
    assert!(!hold.is_lost());
    let lost = hold.lost();
    assert_eq!(runtime.block_on(hold.settle()), Ok(true));
    let soon = async { tokio::time::timeout(Duration::from_millis(50), lost).await };
    assert!(runtime.block_on(soon).is_err(), "it was settled");
    let hold = runtime.block_on(limiter.hold(("u", "slots:1"), ttl)).expect("it is free");
    drop(runtime);
    crate::support::runtime().block_on(until_lost(&hold));
}

async fn until_lost(hold: &Hold) {
    tokio::time::timeout(MINUTE, hold.lost()).await.expect("its time ends");
    assert!(hold.is_lost());
}

/// The runtime in which the limiter was used first has ended.
#[test]
fn a_hold_that_is_dropped_outside_of_any_runtime_is_settled_by_the_last_one() {
    let server = Server::start("valkey-9.1");
    let limiter = server.limiter();
    assert_eq!(runtime().block_on(source(&limiter)), Source::Server);
    let runtime = runtime();
    let hold = runtime.block_on(limiter.hold(("s", "slots:1"), MINUTE)).expect("it is free");
    drop(hold);
    let is_free =
        async || limiter.peek(("s", "slots:1")).await.expect("it runs").remaining == Some(1);
    runtime.block_on(until("the slot is free", is_free));
    assert_eq!(limiter.given_up(), 0);
}

#[test]
fn settlements_that_end_with_their_runtime_are_given_up() {
    let server = Server::start("valkey-9.1");
    let (limiter, runtime) = (server.limiter(), runtime());
    let take = |key| runtime.block_on(limiter.hold((key, "slots:1"), MINUTE)).expect("it is free");
    let (under_way, later) = (take("a"), take("b"));
    server.freeze(true);
    runtime.block_on(async move {
        drop(under_way);
        tokio::task::yield_now().await;
    });
    drop(runtime);
    assert_eq!(limiter.given_up(), 1);
    drop(later);
    assert_eq!(limiter.given_up(), 2);
    server.freeze(false);
}

#[tokio::test]
async fn the_limiter_in_the_process_asks_no_server() {
    let limiter = RateLimiter::in_process([("free", "2/h")]).expect("rules");
    let check = async |rule: &str| limiter.check(("a", rule)).await.expect("it decides");
    assert_eq!(
        (check("@free").await.source, check("@free").await.remaining),
        (Source::Local, Some(0))
    );
    assert!(!check("@free").await.is_allowed());
    let both = Check::new("b", "2/h").and("c", "@free");
    assert!(limiter.check_all(both.clone()).await.expect("it decides").is_allowed());
    let any = limiter.check_any(both).await.expect("it decides");
    assert_eq!(any.key.as_deref(), Some(&b"b"[..]));
    let hold = limiter.hold(("s", "slots:1"), MINUTE).await.expect("it is free");
    assert!(limiter.hold(("s", "slots:1"), MINUTE).await.is_err());
    let freed = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        hold.settle().await
    };
    let waits = Check::new("r", "bucket:10/s,burst=1");
    assert!(limiter.check(waits.clone()).await.expect("it decides").is_allowed());
    let (waited, freed) = tokio::join!(limiter.wait(waits, MINUTE), freed);
    assert!(waited.expect("its turn comes").is_allowed() && freed == Ok(true));
    assert_eq!(limiter.reset("a").await, Ok(true));
    assert!(check("@free").await.is_allowed());
    assert!(limiter.plan("a", "free", None).await.is_err(), "a server has plans");
    assert_eq!((limiter.outages(), limiter.away()), (0, false));
    let error = limiter.check(("", "2/h")).await.expect_err("no key");
    assert!(is_misuse(&error) && !is_saturated(&error), "{error}");
    limiter.close().await;
}

/// Meanwhile the `ConnectionManager` connects again, is refused, and remembers the refusal.
#[tokio::test]
async fn a_connection_of_the_application_is_used_again_after_an_outage() {
    let mut server = Server::start("redis-7.0");
    let config = ConnectionManagerConfig::new().set_number_of_retries(0);
    let manager = ConnectionManager::new_lazy_with_config(server.client(), config);
    let limiter = RateLimiter::on(manager.expect("an address")).outage(Outage::Allow);
    let limiter = limiter.timeout(Duration::from_secs(10)).build().expect("options");
    assert_eq!(source(&limiter).await, Source::Server);
    server.kill();
    until("it is away", async || source(&limiter).await == Source::Outage && limiter.away()).await;
    server.restart();
    until("it is back", async || source(&limiter).await == Source::Server).await;
}

/// All connections end while nobody uses them.
#[tokio::test]
async fn a_connection_that_the_server_ended_costs_no_check() {
    let server = Server::start("valkey-9.1");
    let manager = ConnectionManager::new(server.client()).await.expect("it runs");
    for of in [server.builder(), RateLimiter::on(manager)] {
        let limiter = of.build().expect("options");
        for _ in 0..3 {
            assert_eq!(source(&limiter).await, Source::Server);
            server.send("CLIENT KILL TYPE normal");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!((source(&limiter).await, limiter.outages()), (Source::Server, 0));
    }
}
