//! Leases, on real servers.

use std::time::Duration;

use tower_redis_ratelimit::redis::RedisResult;
use tower_redis_ratelimit::{Lease, LeaseOptions, RateLimiter, Rules, Source};

use crate::support::server::Server;
use crate::support::{runtime, until};

fn of(limiter: RateLimiter, key: &str, rules: impl Into<Rules>) -> Lease {
    Lease::new(limiter, key, rules).expect("rules")
}

fn within(
    limiter: RateLimiter,
    key: &str,
    rule: &str,
    ttl: Duration,
    most: u64,
) -> RedisResult<Lease> {
    Lease::with(limiter, key, rule, LeaseOptions { ttl, most })
}

#[tokio::test]
async fn units_given_back_can_be_taken_again() {
    let server = Server::start("redis-7.0");
    let lease = of(server.limiter(), "hot", "3/h");
    let takes = async |units| lease.take(units).await.expect("it runs").is_allowed();
    lease.give_back(9);
    assert!(takes(3).await);
    lease.give_back(2);
    assert!(takes(2).await && !takes(1).await);
    lease.give_back(9);
    assert!(!takes(1).await, "the lease has ended");
}

#[tokio::test]
async fn a_lease_is_settled_even_if_nobody_waits_for_that() {
    let server = Server::start("valkey-8.1");
    let rule = "bucket:100/d";
    let limiter = server.limiter();
    let left = async |key: &str| limiter.peek((key, rule)).await.expect("it runs").remaining;
    let one_place = server.builder().concurrency(1).build().expect("options");
    let make = async |key: &'static str| {
        let lease = within(one_place.clone(), key, rule, Duration::from_secs(600), 50);
        let lease = lease.expect("options");
        for _ in 0..20 {
            assert!(lease.take(1).await.expect("it runs").is_allowed());
        }
        lease
    };
    let lease = make("dropped outside of the runtime").await;
    std::thread::spawn(move || drop(lease)).join().expect("no panic");
    let lease = make("given up").await;
    let mut long = redis::cmd("BLPOP");
    long.arg("none").arg(2);
    tokio::select! {
        biased;
        _ = one_place.call::<redis::Value>(&long, "none") => panic!("it takes two seconds"),
        _ = lease.close() => panic!("the other command has the place"),
        () = tokio::time::sleep(Duration::from_millis(50)) => {}
    }
    for key in ["dropped outside of the runtime", "given up"] {
        until(key, async || left(key).await == Some(80)).await;
    }
}

#[tokio::test]
async fn units_of_a_dead_process_come_back_at_the_end_of_the_hold() {
    let server = Server::start("valkey-9.1");
    let (watching, rule) = (server.limiter(), "bucket:100/d");
    let client = server.client();
    let process = std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("threads");
        let lease = runtime.block_on(async {
            let limiter = RateLimiter::server(client).build().expect("options");
            let lease = within(limiter, "k", rule, Duration::from_secs(5), 50);
            let lease = lease.expect("options");
            assert!(lease.take(30).await.expect("it runs").is_allowed());
            lease
        });
        drop((runtime, lease));
    });
    process.join().expect("no panic");
    let left = async || watching.peek(("k", rule)).await.expect("it runs").remaining;
    assert_eq!(left().await, Some(70));
    until("the hold ends", async || left().await == Some(100)).await;
}

#[tokio::test]
async fn a_denial_is_remembered_and_smaller_requests_are_tried() {
    let server = Server::start("redis-7.0");
    let lease = of(server.limiter(), "k", "bucket:10/h");
    let take = async |units| lease.take(units).await.expect("it runs");
    assert!(take(8).await.is_allowed());
    let (first, again) = (take(5).await, take(6).await);
    assert_eq!((first.source, again.source), (Source::Server, Source::Denial));
    assert!(!again.is_allowed() && again.wait <= first.wait);
    assert!(take(2).await.is_allowed(), "a lower cost passes");
}

#[tokio::test]
async fn a_dropped_take_loses_no_lease() {
    let server = Server::start("redis-7.0");
    let limiter = server.limiter();
    let lease = of(limiter.clone(), "k", "bucket:10/d");
    limiter.peek(("k", "bucket:10/d")).await.expect("it connects");
    server.freeze(true);
    assert!(tokio::time::timeout(Duration::from_millis(50), lease.take(10)).await.is_err());
    server.freeze(false);
    assert!(lease.take(10).await.expect("it runs").is_allowed());
}

#[tokio::test]
async fn exempt_keys_pass() {
    let server = Server::start("redis-7.0");
    server.send("RL.EXEMPT friend");
    let lease = of(server.limiter(), "friend", "0/s");
    for _ in 0..4 {
        assert!(lease.take(1).await.expect("it runs").is_allowed());
    }
    server.send("RL.UNEXEMPT friend");
    assert!(!lease.take(1).await.expect("it runs").is_allowed(), "the lease took nothing ahead");
}

#[tokio::test]
async fn wrong_rules_and_options_are_errors_at_construction() {
    let server = Server::start("valkey-9.1");
    let with = |rule: &str, ttl, most| {
        within(server.limiter(), "k", rule, Duration::from_millis(ttl), most).map(drop)
    };
    let (second, longest, most) = (1000, 366 * 86_400_000, 1_000_000_000);
    for (rule, ttl, most, says) in [
        ("5/x", second, 1, "the period 'x' has no known unit"),
        ("5/s", 0, 1, "the ttl is 0"),
        ("5/s", longest + 1, 1, "the ttl is"),
        ("5/s", second, 0, "most is 0"),
        ("5/s", second, most + 1, "expected at most"),
        ("", second, 1, "expected at least one"),
    ] {
        let error = with(rule, ttl, most).expect_err(says);
        assert!(error.to_string().contains(says), "{error}");
    }
    assert!(with("@free", 1, 1).is_ok());
    let lease = within(server.limiter(), "k", "5/s", Duration::from_millis(longest), most);
    assert!(lease.expect("the longest").take(1).await.expect("it runs").is_allowed());
}

/// The task that would settle the lease does not run either.
#[test]
fn a_lease_ends_after_half_of_its_time_though_its_runtime_did_not_run() {
    let (server, runtime, ttl) = (Server::start("redis-7.0"), runtime(), Duration::from_secs(4));
    let lease = within(server.limiter(), "k", "bucket:100/d", ttl, 50).expect("options");
    let take = || runtime.block_on(lease.take(1)).expect("it runs").source;
    for _ in 0..20 {
        take();
    }
    std::thread::sleep(ttl / 2);
    assert_eq!(take(), Source::Server);
}

#[test]
fn what_was_used_of_a_lease_that_lapsed_is_counted_again() {
    let (server, runtime, rule) = (Server::start("valkey-9.1"), runtime(), "log:3/h");
    let limiter = server.limiter();
    let lease = within(limiter.clone(), "k", rule, Duration::from_millis(100), 50);
    let lease = lease.expect("options");
    let take = || runtime.block_on(lease.take(1)).expect("it runs").is_allowed();
    for expected in [3, 2, 1] {
        assert!(take());
        let left = async || limiter.peek(("k", rule)).await.expect("it runs").remaining;
        // This runtime runs the settlement of no lease.
        crate::support::runtime()
            .block_on(until("it lapses", async || left().await == Some(expected)));
    }
    assert!(!take());
}
