//! Holds and waits, on real servers.

use std::time::{Duration, Instant};

use tower_redis_ratelimit::{Check, Hold, HoldError, Outage, RateLimiter, Source, Verdict};

use crate::support::cluster::Cluster;
use crate::support::server::Server;
use crate::support::until;

const MINUTE: Duration = Duration::from_secs(60);

async fn left(limiter: &RateLimiter, key: &str, rule: &str) -> u64 {
    limiter.peek((key, rule)).await.expect("it runs").remaining.expect("a limit")
}

fn in_line(check: impl Into<Check>) -> Check {
    check.into().wait(MINUTE)
}

async fn slot(limiter: &RateLimiter, ttl: Duration) -> Result<Hold, HoldError> {
    limiter.hold(("s", "slots:1"), ttl).await
}

#[tokio::test]
async fn an_exempt_key_has_no_hold_to_lose() {
    let server = Server::start("redis-7.0");
    server.send("RL.EXEMPT s");
    let hold = slot(&server.limiter(), Duration::from_secs(2)).await.expect("it is free");
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert!(!hold.is_lost());
    assert_eq!(hold.settle().await, Ok(true));
}

const SLOTS: &str = "slots:100";

async fn are_free(server: &Server) {
    let limiter = server.limiter();
    until("all slots are free", async || left(&limiter, "s", SLOTS).await == 100).await;
}

#[tokio::test]
async fn holds_that_are_cancelled_while_they_are_taken_are_given_back() {
    let server = Server::start("valkey-9.1");
    // Half of them wait for a place.
    let limiter = server.builder().concurrency(50).build().expect("options");
    limiter.peek(("s", SLOTS)).await.expect("it connects");
    server.freeze(true);
    let tasks = (0..100)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.hold(("s", SLOTS), MINUTE).await })
        })
        .collect::<Vec<_>>();
    tokio::time::sleep(Duration::from_millis(200)).await;
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    tokio::task::yield_now().await;
    server.freeze(false);
    until("they were taken", async || server.calls("rl.check") >= 50).await;
    are_free(&server).await;
}

#[tokio::test]
async fn a_hold_that_is_dropped_outside_of_the_runtime_is_settled() {
    let server = Server::start("redis-6.2");
    let hold = server.limiter().hold(("s", SLOTS), MINUTE).await.expect("it is free");
    std::thread::spawn(move || drop(hold)).join().expect("no panic");
    are_free(&server).await;
}

#[tokio::test]
async fn waits_that_are_dropped_leave_no_holds() {
    let server = Server::start("valkey-8.1");
    let limiter = server.limiter();
    let first = limiter.hold(("w", "slots:1"), MINUTE).await.expect("it is free");
    let tasks = (0..20)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.hold(in_line(("w", "slots:1")), MINUTE).await })
        })
        .collect::<Vec<_>>();
    until("all wait", async || server.waiting().len() == 20).await;
    // The slot is free for them just when they leave.
    let settling = tokio::spawn(first.settle());
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    assert_eq!(settling.await.expect("no panic"), Ok(true));
    until("all have left", async || server.waiting().is_empty()).await;
    until("the slot is free", async || left(&limiter, "w", "slots:1").await == 1).await;
}

/// The server has already answered with the hold's turn under a `leaky` rule.
#[tokio::test]
async fn a_hold_that_is_dropped_before_its_turn_gives_all_back() {
    let server = Server::start("redis-7.0");
    let limiter = server.limiter();
    let rule = "leaky:1/h,queue=5";
    let _first = limiter.hold(("l", rule), MINUTE).await.expect("its turn is now");
    let second = tokio::time::timeout(Duration::from_secs(1), limiter.hold(("l", rule), MINUTE));
    assert!(second.await.is_err(), "its turn is in an hour");
    until("it leaves the queue", async || left(&limiter, "l", rule).await == 5).await;
}

#[tokio::test]
async fn a_higher_priority_goes_first() {
    let server = Server::start("redis-7.0");
    let limiter = server.limiter();
    let first = slot(&limiter, MINUTE).await.expect("it is free");
    let wait = async |check: Check, already: usize| {
        until("others wait", async || server.waiting().len() == already).await;
        let hold = limiter.hold(in_line(check), MINUTE).await.expect("its turn comes");
        let turn = Instant::now();
        hold.settle().await.map(|_| turn)
    };
    let check = Check::new("s", "slots:1").flow("tenant", 2);
    let free = async {
        until("both wait", async || server.waiting().len() == 2).await;
        first.settle().await
    };
    let urgent = check.clone().priority(5);
    let (later, sooner, settled) = tokio::join!(wait(check, 0), wait(urgent, 1), free);
    assert_eq!(settled, Ok(true));
    assert!(sooner.expect("it runs") < later.expect("it runs"));
}

#[tokio::test]
async fn an_unblocked_client_waits_again() {
    let server = Server::start("redis-7.0");
    let limiter = server.builder().outage(Outage::Deny).build().expect("options");
    let first = slot(&limiter, MINUTE).await.expect("it is free");
    let waiting = limiter.wait(Check::new("s", "slots:1").with_hold("x", MINUTE), MINUTE);
    let unblock = async {
        until("it waits", async || server.waiting().len() == 1).await;
        let id = server.waiting()[0].clone();
        server.send(&format!("CLIENT UNBLOCK {id} ERROR"));
        let waits_anew = async || matches!(&server.waiting()[..], [other] if *other != id);
        until("it waits again", waits_anew).await;
        first.settle().await.expect("it was held");
    };
    let (reply, ()) = tokio::join!(waiting, unblock);
    let reply = reply.expect("it decides");
    assert_eq!((reply.verdict, reply.source), (Verdict::Allowed, Source::Server));
    assert!(!limiter.away());
}

#[tokio::test]
async fn a_server_that_hangs_ends_a_wait_long_before_its_deadline() {
    let server = Server::start("valkey-9.1");
    let limiter = RateLimiter::server(server.client()).outage(Outage::Deny);
    let limiter = limiter.build().expect("options");
    until("it is asked", async || {
        limiter.check(("k", "1/50s")).await.expect("no error").source == Source::Server
    })
    .await;
    let start = Instant::now();
    let freezing = async {
        // Meanwhile the limiter asks the server once whether it still answers.
        tokio::time::sleep(Duration::from_millis(5500)).await;
        assert_eq!(server.waiting().len(), 1);
        server.freeze(true);
    };
    let (reply, ()) = tokio::join!(limiter.wait(("k", "1/50s"), MINUTE), freezing);
    assert_eq!(reply.expect("no error").source, Source::Outage);
    let took = start.elapsed();
    assert!((Duration::from_secs(10)..Duration::from_secs(14)).contains(&took), "{took:?}");
    server.freeze(false);
}

#[tokio::test]
async fn waits_need_connections() {
    let server = Server::start("redis-7.0");
    let shared = server.client().get_multiplexed_async_connection().await.expect("it runs");
    let limiter = RateLimiter::on(shared).outage(Outage::Allow).build().expect("options");
    let error = limiter.wait(("a", "1/s"), MINUTE).await.expect_err("none is given");
    assert!(error.to_string().contains("Builder::waits_on"), "{error}");
}

#[tokio::test]
async fn callers_wait_and_hold_in_a_cluster() {
    let cluster = Cluster::start("valkey-9.1");
    let limiter = RateLimiter::cluster(cluster.clients()).timeout(Duration::from_secs(10)).build();
    let limiter = limiter.expect("options");
    for key in ["a", "b", "c", "d"] {
        let hold = limiter.hold((key, "slots:1"), MINUTE).await.expect("it is free");
        let line = limiter.hold(in_line((key, "slots:1")), MINUTE);
        let free = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            hold.settle().await
        };
        let (second, settled) = tokio::join!(line, free);
        assert_eq!(settled, Ok(true), "{key}");
        assert_eq!(second.expect("it was its turn").refund().await, Ok(true), "{key}");
    }
}

#[tokio::test]
async fn a_hold_under_a_leaky_rule_begins_at_its_turn() {
    let server = Server::start("redis-7.0");
    let limiter = server.limiter();
    let start = Instant::now();
    for _ in 0..2 {
        let hold = limiter.hold(("l", "leaky:2/s"), MINUTE).await.expect("it queues");
        hold.settle().await.expect("it runs");
    }
    assert!(start.elapsed() >= Duration::from_millis(450), "{:?}", start.elapsed());
}

#[tokio::test]
async fn only_a_wait_takes_a_place_in_line() {
    let server = Server::start("redis-7.0");
    let limiter = server.builder().outage(Outage::Allow).build().expect("options");
    let check = Check::new("a", "9/h");
    for check in [check.clone().flow("acme", 2), check.priority(3)] {
        let hold = limiter.hold(check.clone(), MINUTE).await.expect_err("it does not wait");
        let errors = [
            limiter.check(check.clone()).await.expect_err("it does not wait"),
            limiter.check_all(check.clone()).await.expect_err("it does not wait"),
            limiter.check_any(check.clone()).await.expect_err("it does not wait"),
            limiter.peek(check.clone()).await.expect_err("it does not wait"),
        ];
        for error in errors {
            assert!(error.to_string().contains("only a wait takes a flow"), "{error}");
        }
        assert!(hold.to_string().contains("only a wait takes a flow"), "{hold}");
        assert!(limiter.hold(in_line(check), MINUTE).await.is_ok());
    }
}
