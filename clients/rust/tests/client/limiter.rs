//! The limiter's commands, on real servers.

use std::pin::Pin;
use std::time::Duration;

use tower_redis_ratelimit::{Check, Outage, RateLimiter, Settlement, Source};

use crate::support::cluster::Cluster;
use crate::support::server::Server;
use crate::support::until;

const MINUTE: Duration = Duration::from_secs(60);

type Frees<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

#[tokio::test]
async fn a_denial_gives_back_the_charges_of_other_keys() {
    let server = Server::start("redis-7.0");
    let limiter = server.builder().separately(true).build().expect("options");
    let rules = ["bucket:9/h,name=x", "bucket:9/h,cost=2,name=y"];
    let check = Check::new("a", rules).and("b", "1/h").and("c", "5/h");
    let report = limiter.check_all(check.clone()).await.expect("it runs");
    assert_eq!((report.is_allowed(), report.rules.len()), (true, 4));
    let denied = limiter.check_all(check.clone()).await.expect("it runs");
    assert_eq!((denied.is_allowed(), denied.key.as_deref()), (false, Some(&b"b"[..])));
    assert!(!limiter.check(check.clone()).await.expect("it runs").is_allowed());
    let left = async |key: &str, rule: &str| {
        limiter.peek((key, rule)).await.expect("it runs").remaining.expect("a limit")
    };
    assert_eq!(
        (left("a", rules[0]).await, left("a", rules[1]).await, left("c", "5/h").await),
        (8, 7, 4)
    );
    assert_eq!(server.calls("rl.refund"), 0, "settlements give the charges back");
    let unheld = Check::new("s", "slots:1").and("a", "9/h");
    let error = limiter.check_all(unheld).await.expect_err("slots are not taken unasked");
    assert!(error.to_string().contains("slots are held"), "{error}");
    let held = check.with_hold("id", MINUTE);
    assert!(!limiter.check_all(held).await.expect("it runs").is_allowed());
    assert_eq!((left("a", rules[0]).await, left("a", rules[1]).await), (8, 7));
}

#[tokio::test]
async fn more_keys_than_a_command_takes_pass_together_or_not_at_all() {
    let server = Server::start("redis-8.2");
    let limiter = server.limiter();
    let many = (0..65).fold(Check::new("one", "1/h"), |check, n| check.and(format!("k{n}"), "9/h"));
    let left = async || limiter.peek(("k0", "9/h")).await.expect("it runs").remaining;
    let report = limiter.check_all(many.clone()).await.expect("it runs");
    assert_eq!((report.is_allowed(), report.rules.len(), left().await), (true, 66, Some(8)));
    let denied =
        (0..65).fold(Check::new("two", "9/h"), |check, n| check.and(format!("k{n}"), "9/h"));
    let denied = limiter.check_all(denied.and("one", "1/h")).await.expect("it runs");
    assert_eq!((denied.key.as_deref(), left().await), (Some(&b"one"[..]), Some(8)));
}

#[tokio::test]
async fn a_key_that_is_given_twice_is_refused() {
    let server = Server::start("valkey-9.1");
    for separately in [false, true] {
        let limiter = server.builder().separately(separately).outage(Outage::Allow);
        let limiter = limiter.build().expect("options");
        let check = Check::new("a", "1/h").and("b", "9/h").and("a", "1/h");
        let error = limiter.check_all(check).await.expect_err("one of the two would not count");
        assert!(error.to_string().contains("is given twice, expected each key once"), "{error}");
        assert_eq!(limiter.peek(("a", "1/h")).await.expect("it runs").remaining, Some(1));
    }
}

/// The first key is charged, and the second waits for its place behind a long command.
#[tokio::test]
async fn a_check_that_is_dropped_between_its_keys_gives_charges_back() {
    let server = Server::start("valkey-9.1");
    let limiter = server.builder().separately(true).concurrency(1).build().expect("options");
    let left = async || {
        server.limiter().peek(("a", "9/h")).await.expect("it runs").remaining.expect("a limit")
    };
    let check = Check::new("a", "9/h").and("b", "9/h");
    let mut long = redis::cmd("BLPOP");
    long.arg("none").arg(2);
    let checking = limiter.check_all(check);
    tokio::select! {
        biased;
        _ = checking => panic!("the other command has the place"),
        _ = limiter.call::<redis::Value>(&long, "none") => panic!("it takes two seconds"),
        () = until("the first key is charged", async || left().await == 8) => {}
    }
    until("it comes back", async || left().await == 9).await;
}

#[tokio::test]
async fn costs_by_name_are_the_same_for_keys_asked_separately() {
    let server = Server::start("redis-7.0");
    server.send("RL.POLICY SET plan 9/h,name=out bucket:9/d,name=day");
    for separately in [false, true] {
        let limiter = server.builder().separately(separately).build().expect("options");
        for key in ["a", "b", "c", "d"] {
            limiter.reset(key).await.expect("it runs");
        }
        let costs = async |check: Check| {
            let report = limiter.check_all(check).await?;
            redis::RedisResult::Ok(report.rules.iter().map(|rule| rule.cost).collect::<Vec<_>>())
        };
        let both =
            Check::new("a", "9/h,name=in").and("b", ["9/h,name=out", "bucket:9/m,name=inner"]);
        assert_eq!(costs(both.clone().cost([("in", 5), ("out", 2)])).await, Ok(vec![5, 2, 1]));
        assert_eq!(costs(both.clone().cost([("in", 3), ("", 2)])).await, Ok(vec![3, 2, 2]));
        let policy = Check::new("c", "9/h,name=in").and("d", "@plan");
        let policy = policy.cost([("in", 2), ("out", 3), ("other", 4)]);
        assert_eq!(costs(policy.clone()).await, Ok(vec![2, 3, 1]));
        assert_eq!(costs(policy.cost([("out", 3), ("", 2)])).await, Ok(vec![2, 3, 2]));
        let typo = costs(both.clone().cost([("typo", 1), ("in", 1)])).await.expect_err("no rule");
        assert!(typo.to_string().contains("COST typo= is for no rule here"), "{typo}");
        let range = costs(both.cost(1..=2)).await;
        assert_eq!(range.is_err(), separately, "{range:?}");
    }
}

#[tokio::test]
async fn a_cluster_decides_on_the_node_of_each_key() {
    let cluster = Cluster::start("valkey-9.1");
    let limiter = RateLimiter::cluster(cluster.clients()).timeout(Duration::from_secs(10)).build();
    let limiter = limiter.expect("options");
    for client in (0..20).map(|client| format!("client:{client}")) {
        let both =
            Check::new(format!("{{{client}}}:a"), "1/h").and(format!("{{{client}}}:b"), "9/h");
        let verdicts = [(); 2].map(|()| limiter.check_all(both.clone()));
        let [first, second] = verdicts;
        assert!(first.await.expect("it runs").is_allowed(), "{client}");
        assert!(!second.await.expect("it runs").is_allowed(), "{client}");
    }
    let keys = cluster.keys();
    assert!(keys.iter().sum::<i64>() == 40 && !keys.contains(&0), "{keys:?}");
    assert_eq!(cluster.redirections(), 0, "the client knows the node of RL.MCHECK");
}

/// The check has the only place, so that what frees the key is sent after the denial is remembered.
#[tokio::test]
async fn a_denial_that_is_decided_before_units_come_back_is_forgotten() {
    let server = Server::start("redis-7.0");
    let limiter = server.builder().concurrency(1).remember_denials(100);
    let limiter = limiter.build().expect("options");
    let hold = limiter.hold(("hold", "1/h"), MINUTE).await.expect("it fits");
    let source = async |key: &str| limiter.check((key, "1/h")).await.expect("it runs").source;
    let forgets = async |key: &'static str, frees: Frees<'_>| {
        if key != "hold" {
            assert_eq!(source(key).await, Source::Server);
        }
        let (denied, ()) = tokio::join!(limiter.check((key, "1/h")), frees);
        let denied = denied.expect("it runs");
        assert_eq!((denied.is_allowed(), denied.source), (false, Source::Server), "{key}");
        assert_eq!(source(key).await, Source::Server, "{key}");
    };
    let settlement = Settlement::Refund;
    forgets("hold", Box::pin(async { drop(hold.refund().await) })).await;
    forgets("settle", Box::pin(async { drop(limiter.settle("settle", "id", settlement).await) }))
        .await;
    forgets("refund", Box::pin(async { drop(limiter.refund("refund", 1, "1/h").await) })).await;
    forgets("reset", Box::pin(async { drop(limiter.reset("reset").await) })).await;
    forgets("resume", Box::pin(async { drop(limiter.resume("resume").await) })).await;
    forgets("plan", Box::pin(async { drop(limiter.plan("plan", "pro", None).await) })).await;
    forgets("unplan", Box::pin(async { drop(limiter.unplan("unplan").await) })).await;
}
