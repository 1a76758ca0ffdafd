//! An axum application behind the layer, on real servers.

mod support;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use support::app::{App, limits, limits_of};
use support::cluster::Cluster;
use support::server::{ALL, Server};
use tower_redis_ratelimit::OnError;

/// Patience of layers whose server must decide, however busy the machine is.
const LONG: Duration = Duration::from_secs(10);

#[tokio::test]
async fn what_the_rules_deny_is_answered_with_429_on_every_server() {
    for name in ALL {
        let server = Server::start(name);
        let rules = ["2/m,name=minute", "9/h"];
        let app = App::start(limits(&server, &rules).patience(LONG)).await;
        for left in ["1", "0"] {
            let answer = app.ask(&["x-key: a"]).await;
            assert_eq!((answer.status, answer.body), (200, format!("{left} left")), "{name}");
            let policy = answer.fields["ratelimit-policy"].as_str();
            assert_eq!(policy, r#""minute";q=2;w=60, "log:9/1h";q=9;w=3600"#);
            let limit = &answer.fields["ratelimit"];
            assert!(limit.starts_with(&format!(r#""minute";r={left};t=60, "#)), "{limit}");
            assert!(!answer.fields.contains_key("retry-after"));
        }
        let denied = app.ask(&["x-key: a"]).await;
        assert_eq!(denied.status, 429, "{name}");
        let wait: u64 = denied.fields["retry-after"].parse().expect("seconds");
        assert!((40..=60).contains(&wait), "{wait}");
        let limit = &denied.fields["ratelimit"];
        assert!(
            limit.starts_with(&format!(r#""minute";r=0;t={wait}, "log:9/1h";r=7;t="#)),
            "{limit}"
        );
        assert_eq!(denied.field("content-type"), Some("application/problem+json"));
        assert!(
            denied.body.ends_with(r#""status": 429, "violated-policies": ["minute"]}"#),
            "{denied:?}"
        );
        assert_eq!(app.ask(&["x-key: b"]).await.status, 200, "another key");
        assert_eq!(app.served(), 3, "a denied request does not reach the application");
    }
}

#[tokio::test]
async fn a_cluster_decides_on_the_node_of_each_key() {
    let cluster = Cluster::start("valkey-9.1");
    let redis = cluster.client().get_async_connection().await.expect("it runs");
    let limits = limits_of(redis, &["1/h"]).patience(LONG).on_error(|_| OnError::Refuse);
    let app = App::start(limits).await;
    let clients = (0..20).map(|client| format!("x-key: client:{client}"));
    for client in clients {
        let statuses = [app.ask(&[&client]).await.status, app.ask(&[&client]).await.status];
        assert_eq!(statuses, [200, 429], "{client}");
    }
    let keys = cluster.keys();
    assert!(keys.iter().sum::<i64>() == 20 && !keys.contains(&0), "{keys:?}");
}

#[tokio::test]
async fn a_block_is_answered_with_403_and_an_exemption_has_no_fields() {
    let server = Server::start("redis-7.0");
    let app = App::start(limits(&server, &["2/m"]).patience(LONG)).await;
    server.send("RL.BLOCK ended EX 100");
    server.send("RL.BLOCK endless");
    server.send("RL.EXEMPT friend");
    let ended = app.ask(&["x-key: ended"]).await;
    assert_eq!(ended.status, 403);
    assert!(
        ended.field("retry-after").is_some_and(|wait| wait == "100" || wait == "99"),
        "{ended:?}"
    );
    assert!(ended.body.contains(r#""status": 403, "violated-policies": []"#));
    let endless = app.ask(&["x-key: endless"]).await;
    assert_eq!((endless.status, endless.field("retry-after")), (403, None));
    let friend = app.ask(&["x-key: friend"]).await;
    assert_eq!((friend.status, friend.body.as_str()), (200, "no limit"));
    assert_eq!((friend.field("ratelimit"), friend.field("ratelimit-policy")), (None, None));
}

#[tokio::test]
async fn a_request_chooses_its_cost_its_rules_or_no_check() {
    let server = Server::start("valkey-9.1");
    let app = App::start(limits(&server, &["10/m"]).patience(LONG)).await;
    assert_eq!(app.ask(&["x-key: a", "x-cost: 7"]).await.body, "3 left");
    assert_eq!(app.ask(&["x-key: a", "x-cost: 4"]).await.status, 429);
    let never = app.ask(&["x-key: a", "x-cost: 11"]).await;
    assert_eq!((never.status, never.field("retry-after")), (429, None), "no wait helps");
    assert_eq!(never.field("ratelimit"), Some(r#""log:10/1m";r=3"#));
    assert_eq!(app.ask(&["x-key: a", "x-rule: 100/m"]).await.body, "92 left");
    for _ in 0..20 {
        assert_eq!(app.ask(&[]).await.body, "no limit");
    }
}

#[tokio::test]
async fn a_rule_on_trial_is_not_told() {
    let server = Server::start("redis-8.2");
    let app = App::start(limits(&server, &["0/h,shadow", "5/m"]).patience(LONG)).await;
    let answer = app.ask(&["x-key: a"]).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.field("ratelimit-policy"), Some(r#""log:5/1m";q=5;w=60"#));
}

#[tokio::test]
async fn a_leaky_rule_answers_in_turn() {
    let server = Server::start("valkey-8.1");
    let app = App::start(limits(&server, &["leaky:2/s"]).patience(LONG)).await;
    let start = Instant::now();
    let (first, second) = tokio::join!(app.ask(&["x-key: a"]), app.ask(&["x-key: a"]));
    assert_eq!((first.status, second.status), (200, 200));
    assert!(start.elapsed() >= Duration::from_millis(500), "{:?}", start.elapsed());
}

#[tokio::test]
async fn without_a_server_requests_pass_or_are_refused_as_chosen() {
    let mut server = Server::start("redis-6.2");
    let open = App::start(limits(&server, &["1/h"]).patience(LONG)).await;
    let closed = limits(&server, &["1/h"]).patience(LONG).on_error(|_| OnError::Refuse);
    let closed = App::start(closed).await;
    assert_eq!(open.ask(&["x-key: a"]).await.status, 200);
    assert_eq!(closed.ask(&["x-key: a"]).await.status, 429);
    server.kill();
    for _ in 0..3 {
        let passed = open.ask(&["x-key: a"]).await;
        assert_eq!((passed.status, passed.field("ratelimit")), (200, None));
        let refused = closed.ask(&["x-key: a"]).await;
        assert_eq!((refused.status, refused.field("retry-after")), (503, None));
    }
    server.restart();
    // The manager connects again at the first request after the failure that it noticed.
    let mut statuses = Vec::new();
    for _ in 0..50 {
        statuses.push(open.ask(&["x-key: a"]).await.status);
    }
    assert_eq!(statuses.last(), Some(&429), "limits again: {statuses:?}");
}

#[tokio::test]
async fn a_server_that_hangs_costs_a_request_its_patience_and_no_more() {
    let server = Server::start("redis-7.0");
    let app = App::start(limits(&server, &["1/h"]).patience(Duration::from_millis(100))).await;
    app.ask(&["x-key: a"]).await;
    server.freeze(true);
    let start = Instant::now();
    let answer = app.ask(&["x-key: a"]).await;
    let took = start.elapsed();
    server.freeze(false);
    assert_eq!(answer.status, 200);
    assert!(took >= Duration::from_millis(100), "{took:?}");
}

#[tokio::test]
async fn an_error_of_the_server_is_told_to_the_application() {
    let server = Server::start("redis-7.0");
    let told = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&told);
    let limits = limits(&server, &["5/x"]).patience(LONG).on_error(move |error| {
        log.lock().expect("no panic").push(error.to_string());
        OnError::Refuse
    });
    assert_eq!(App::start(limits).await.ask(&["x-key: a"]).await.status, 503);
    let told = told.lock().expect("no panic");
    assert!(
        matches!(&told[..], [one] if one.contains("the period 'x' has no known unit")),
        "{told:?}"
    );
}
