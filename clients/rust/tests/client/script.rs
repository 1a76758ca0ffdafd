//! The script that limits on servers without the module.

use std::time::Duration;

use tower_redis_ratelimit::{Check, Engine, RateLimiter, Source, Verdict, is_outage};

use crate::support::app::{App, limits};
use crate::support::cluster::Cluster;
use crate::support::server::{ALL, Server};
use crate::support::until;

fn plain(name: &'static str) -> Server {
    Server::without_module(name, &[])
}

fn by_script(server: &Server) -> RateLimiter {
    server.builder().engine(Engine::Script).build().expect("options")
}

#[tokio::test]
async fn a_denial_gives_back_the_charges_of_other_keys_and_is_remembered() {
    for name in ["redis-6.2", "redis-7.0", "valkey-9.1"] {
        let server = plain(name);
        let limiter = by_script(&server);
        let rules = ["9/d,name=in", "bucket:9/d,name=out,cost=2", "window:9/d"];
        let check = |units| Check::new("ip", rules).and("user", "2/d").cost([("in", units)]);
        let first = limiter.check_all(check(3)).await.expect(name);
        let keys = first.rules.iter().map(|rule| rule.key.clone().expect("a key"));
        assert_eq!(keys.collect::<Vec<_>>(), [b"ip".to_vec(), b"user".to_vec()]);
        assert!(first.is_allowed() && limiter.check(check(2)).await.expect(name).is_allowed());
        let denied = limiter.check_all(check(4)).await.expect(name);
        assert_eq!((denied.verdict, denied.key), (Verdict::Limited, Some(b"user".to_vec())));
        let left = async |key: &str, rule: &str| {
            limiter.peek((key, rule)).await.expect(name).remaining.expect("a limit")
        };
        for (rule, expected) in rules.into_iter().zip([4, 5, 7]) {
            assert_eq!(left("ip", rule).await, expected, "{name}: {rule}");
        }
        let twice = limiter.check_all(Check::new("a", "1/d").and("a", "1/d")).await;
        assert!(twice.expect_err("it is wrong").to_string().contains("given twice"));
        let wrong = limiter.check_all(Check::new("other", "2/d").and("b", "5/x")).await;
        assert!(!is_outage(&wrong.expect_err("no rule")));
        until("it is given back", async || left("other", "2/d").await == 2).await;

        let limiter = server.builder().engine(Engine::Script).remember_denials(10);
        let limiter = limiter.build().expect("options");
        let pair = Check::new("c", "9/d").and("d", "1/d");
        for source in [Source::Server, Source::Server, Source::Denial] {
            assert_eq!(limiter.check(("b", "1/d")).await.expect(name).source, source);
            assert_eq!(limiter.check_all(pair.clone()).await.expect(name).source, source);
        }
        limiter.refund("b", 1, "1/d").await.expect(name);
        limiter.reset("d").await.expect(name);
        assert!(limiter.check(("b", "1/d")).await.expect(name).is_allowed());
        assert!(limiter.check_all(pair).await.expect(name).is_allowed());
        for _ in 0..3 {
            let counted = Check::new("e", ["9/d,count=all", "window:1/d"]);
            let report = limiter.check_all(counted).await.expect(name);
            assert_eq!(report.source, Source::Server, "the server must count these");
        }
    }
}

/// The first key is charged, and the node of the second is silent.
#[tokio::test]
async fn a_check_that_is_dropped_between_its_keys_gives_charges_back() {
    let cluster = Cluster::without_module("valkey-9.1");
    let limiter = || {
        let limiter = RateLimiter::cluster(cluster.clients()).timeout(Duration::from_secs(20));
        limiter.engine(Engine::Script).build().expect("options")
    };
    let (limiter, other) = (limiter(), limiter());
    let left = async || other.peek(("{b}", "9/h")).await.expect("it runs").remaining;
    let check = Check::new("{b}", "9/h").and("{a}", "9/h");
    assert!(limiter.check_all(check.clone()).await.expect("it runs").is_allowed());
    assert_eq!(left().await, Some(8));
    cluster.freeze_node_of_a(true);
    for polls in 1..40 {
        let mut checking = Box::pin(limiter.check_all(check.clone()));
        for _ in 0..polls {
            tokio::select! {
                biased;
                _ = &mut checking => panic!("one node is silent"),
                () = tokio::task::yield_now() => {}
            }
        }
        drop(checking);
        until("it comes back", async || left().await == Some(8)).await;
    }
    let checking = limiter.check_all(check);
    tokio::select! {
        biased;
        _ = checking => panic!("one node is silent"),
        () = until("the first key is charged", async || left().await == Some(7)) => {}
    }
    until("it comes back", async || left().await == Some(8)).await;
    cluster.freeze_node_of_a(false);
}

#[tokio::test]
async fn the_layer_limits_on_servers_without_the_module() {
    for name in ALL {
        let server = plain(name);
        let rules = ["2/d,name=day", "9/h"];
        let app = App::start(limits(by_script(&server), &rules)).await;
        for left in ["1", "0"] {
            let answer = app.ask(&["x-key: a"]).await;
            assert_eq!((answer.status, answer.body), (200, format!("{left} left")), "{name}");
            assert_eq!(answer.fields["ratelimit-policy"], r#""day";q=2;w=86400"#);
            let limit = &answer.fields["ratelimit"];
            assert!(limit.starts_with(&format!(r#""day";r={left};t=86"#)), "{limit}");
        }
        let denied = app.ask(&["x-key: a"]).await;
        assert_eq!(denied.status, 429, "{name}");
        assert!(denied.fields["retry-after"].starts_with("86"), "{denied:?}");
        assert!(denied.body.ends_with(r#""violated-policies": ["day"]}"#), "{denied:?}");
    }
}
