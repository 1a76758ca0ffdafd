//! An axum application behind the layer, on real servers.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::support::app::{App, limits};
use crate::support::log::Log;
use crate::support::server::{ALL, Server};
use crate::support::until;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::http::Extensions;
use axum::response::IntoResponse;
use axum::{Router, routing::get};
use tower_redis_ratelimit::{Check, Count, Outage, RateLimitLayer, Refusal};
use tower_service::Service;

#[tokio::test]
async fn the_layer_answers_denials_of_every_server_with_429() {
    for name in ALL {
        let server = Server::start(name);
        let rules = ["2/m,name=minute", "9/h"];
        let app = App::start(limits(server.limiter(), &rules)).await;
        for left in ["1", "0"] {
            let answer = app.ask(&["x-key: a"]).await;
            assert_eq!((answer.status, answer.body), (200, format!("{left} left")), "{name}");
            let policy = answer.fields["ratelimit-policy"].as_str();
            assert_eq!(policy, r#""minute";q=2;w=60, "log:9/1h";q=9;w=3600"#);
            let limit = &answer.fields["ratelimit"];
            assert!(limit.starts_with(&format!(r#""minute";r={left};t="#)), "{limit}");
            // One more unit comes back when the first request leaves its minute.
            let time = limit.split([';', ',', '=']).nth(4).and_then(|time| time.parse().ok());
            assert!(time.is_some_and(|time: u64| (40..=60).contains(&time)), "{limit}");
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
        assert!(denied.body.contains(r#""title": "Too many requests""#), "{}", denied.body);
        assert!(
            denied.body.ends_with(r#""status": 429, "violated-policies": ["minute"]}"#),
            "{denied:?}"
        );
        assert_eq!(app.ask(&["x-key: b"]).await.status, 200, "another key");
        assert_eq!(app.served(), 3, "a denied request does not reach the application");
    }
}

#[tokio::test]
async fn a_block_is_answered_with_403_and_an_exemption_has_no_fields() {
    let server = Server::start("redis-7.0");
    let app = App::start(limits(server.limiter(), &["2/m"])).await;
    server.send("RL.BLOCK ended EX 100");
    server.send("RL.BLOCK endless");
    server.send("RL.EXEMPT friend");
    let ended = app.ask(&["x-key: ended"]).await;
    assert_eq!(ended.status, 403);
    assert!(
        ended.field("retry-after").is_some_and(|wait| wait == "100" || wait == "99"),
        "{ended:?}"
    );
    assert!(ended.body.contains(r#""title": "Forbidden", "status": 403"#));
    let endless = app.ask(&["x-key: endless"]).await;
    assert_eq!((endless.status, endless.field("retry-after")), (403, None));
    let friend = app.ask(&["x-key: friend"]).await;
    assert_eq!((friend.status, friend.body.as_str()), (200, "no limit"));
    assert_eq!((friend.field("ratelimit"), friend.field("ratelimit-policy")), (None, None));
}

#[tokio::test]
async fn a_request_chooses_its_cost_its_rules_or_no_check() {
    let server = Server::start("valkey-9.1");
    let app = App::start(limits(server.limiter(), &["10/m"])).await;
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
async fn a_request_under_a_leaky_rule_waits_for_its_turn() {
    let server = Server::start("valkey-8.1");
    let app = App::start(limits(server.limiter(), &["leaky:2/s"])).await;
    let start = Instant::now();
    let (first, second) = tokio::join!(app.ask(&["x-key: a"]), app.ask(&["x-key: a"]));
    assert_eq!((first.status, second.status), (200, 200));
    assert!(start.elapsed() >= Duration::from_millis(450), "{:?}", start.elapsed());
}

#[tokio::test]
async fn requests_that_do_not_count_get_their_cost_back() {
    let server = Server::start("redis-7.0");
    for (count, key, counted, free) in [
        (Count::Failed, "f", "x-fail: 1", "x-ok: 1"),
        (Count::Successful, "s", "x-ok: 1", "x-fail: 1"),
    ] {
        let app = App::start(
            limits(server.limiter(), &["2/h", "bucket:9/h,cost=3"])
                .count(count)
                .expect("no rule bans"),
        )
        .await;
        let key = format!("x-key: {key}");
        for _ in 0..4 {
            assert_ne!(app.ask(&[&key, free]).await.status, 429, "{count:?}");
            wait_until_free(&server, &key[7..]).await;
        }
        assert_eq!(app.ask(&[&key, counted]).await.body, "1 left");
        assert_eq!(app.ask(&[&key, counted]).await.body, "0 left");
        assert_eq!(app.ask(&[&key, counted]).await.status, 429);
    }
}

/// The units come back after the answer.
async fn wait_until_free(server: &Server, key: &str) {
    let limiter = server.limiter();
    until("the units come back", async || {
        let reply = limiter.peek((key, ["2/h", "bucket:9/h"])).await.expect("it runs");
        reply.reset == Some(Duration::ZERO)
    })
    .await;
}

#[tokio::test]
async fn an_application_may_refuse_in_its_own_words() {
    let server = Server::start("valkey-9.1");
    let refuse = |why: &Refusal| (why.status(), "not now").into_response();
    let app = App::start(limits(server.limiter(), &["0/m"]).refuse(refuse)).await;
    let denied = app.ask(&["x-key: a"]).await;
    assert_eq!((denied.status, denied.body.as_str()), (429, "not now"));
    assert!(denied.field("ratelimit").is_some());
}

#[tokio::test]
async fn each_outage_option_has_its_answer() {
    let mut server = Server::start("redis-6.2");
    let with = |outage| server.builder().outage(outage).processes(2).build().expect("options");
    let [raise, allow, deny, local] =
        [Outage::Raise, Outage::Allow, Outage::Deny, Outage::Local].map(with);
    server.kill();
    let status = async |limiter| {
        let app = App::start(limits(limiter, &["2/h"])).await;
        let mut statuses = Vec::new();
        for _ in 0..5 {
            let answer = app.ask(&["x-key: a"]).await;
            statuses.push((answer.status, answer.field("retry-after").map(str::to_string)));
        }
        statuses.dedup();
        statuses
    };
    assert_eq!(status(raise).await, [(503, Some("1".to_string()))]);
    assert_eq!(status(allow).await, [(200, None)]);
    assert_eq!(status(deny).await, [(503, Some("1".to_string()))]);
    let limited = status(local).await;
    assert!(matches!(&limited[..], [(200, None), (429, Some(_)), ..]), "{limited:?}");
}

#[tokio::test]
async fn a_wrong_request_is_a_fault_of_the_application() {
    let server = Server::start("redis-7.0");
    let limiter = server.builder().outage(Outage::Allow).build().expect("options");
    let app = App::start(limits(limiter, &["5/x"])).await;
    let failed = app.ask(&["x-key: a"]).await;
    assert_eq!(
        (failed.status, failed.field("content-type")),
        (500, Some("application/problem+json"))
    );
    assert_eq!(app.served(), 0);
    let limits = limits(server.limiter(), &["slots:1"]).count(Count::Failed).expect("no rule bans");
    assert_eq!(App::start(limits).await.ask(&["x-key: s"]).await.status, 500, "slots need a hold");
}

fn carrying<T: Clone + Send + Sync + 'static>(value: T) -> Extensions {
    let mut carried = Extensions::new();
    carried.insert(value);
    carried
}

#[tokio::test]
async fn clients_are_counted_by_the_networks_of_their_addresses() {
    let (log, server) = (Log::start(), Server::start("redis-7.0"));
    let limits = RateLimitLayer::by_address(server.limiter(), "1/m").expect("a rule");
    let limits = limits.prefix(56).expect("a prefix");
    let app = Router::new().route("/", get(|| async { "here" })).layer(limits);
    let ask = async |carried: Extensions| {
        let mut request = Request::new(Body::empty());
        *request.extensions_mut() = carried;
        app.clone().call(request).await.expect("an answer")
    };
    let of = |address: &str| address.parse::<SocketAddr>().expect("an address");
    let mut statuses = Vec::new();
    for address in ["203.0.113.9:1", "203.0.113.9:2", "[2001:db8::1]:1", "[2001:db8:0:ff::2]:1"] {
        let plain = ask(carrying(of(address))).await;
        let of_axum = ask(carrying(ConnectInfo(of(address)))).await;
        statuses.push((plain.status().as_u16(), of_axum.status().as_u16()));
    }
    assert_eq!(statuses, [(200, 429), (429, 429), (200, 429), (429, 429)]);
    let reply = server.limiter().peek(("ip:2001:db8::/56", "1/m")).await.expect("it runs");
    assert_eq!(reply.remaining, Some(0));
    let without = [ask(Extensions::new()).await, ask(Extensions::new()).await];
    assert_eq!(without.map(|answer| answer.status().as_u16()), [200, 429], "one key for all");
    let reply = server.limiter().peek(("ip:unknown", "1/m")).await.expect("it runs");
    assert_eq!(reply.remaining, Some(0));
    assert_eq!(log.with("share the limit of ip:unknown").len(), 1);
}

#[tokio::test]
async fn wrong_rules_and_prefixes_are_errors_at_construction() {
    let server = Server::start("redis-7.0");
    let with = |rules: &[&str]| RateLimitLayer::by_address(server.limiter(), rules);
    let error = with(&["@free", "5/m", "5/x"]).expect_err("a wrong rule");
    assert!(error.to_string().contains("the period 'x' has no known unit"), "{error}");
    let error = with(&["5/m", "slots:2"]).expect_err("a layer takes no hold of them");
    assert!(error.to_string().contains("slots are held"), "{error}");
    let error = with(&["5/m,ban=1h"]).expect("rules").count(Count::Failed);
    let error = error.expect_err("requests would ban before their outcome");
    assert!(error.to_string().contains("`ban=`"), "{error}");
    assert!(with(&[]).is_err() && with(&[""]).is_err());
    let limits = with(&["@free", "5/m"]).expect("rules");
    assert!(limits.clone().prefix(128).is_ok() && limits.prefix(129).is_err());
}

#[tokio::test]
async fn a_policy_that_bans_is_an_error_if_requests_are_charged_ahead() {
    let server = Server::start("redis-7.0");
    server.send("RL.POLICY SET strict 9/m,ban=1h");
    for rule in ["@strict", "9/m,ban=1h"] {
        let app = limits(server.limiter(), &[rule]).count(Count::Failed).expect("unknown rules");
        let app = App::start(app).await;
        assert_eq!((app.ask(&["x-key: a"]).await.status, app.served()), (500, 0), "{rule}");
        until("it is given back", async || {
            server.limiter().peek(("a", "9/m")).await.expect("it runs").remaining == Some(9)
        })
        .await;
    }
}

#[tokio::test]
async fn a_policy_with_slots_is_an_error_and_takes_no_slot() {
    let server = Server::start("redis-7.0");
    server.send("RL.POLICY SET shared 9/m slots:2");
    let left = async |key: &str, rule: &str| {
        server.limiter().peek((key, rule)).await.expect("it runs").remaining
    };
    for (key, separately) in [("together", false), ("apart", true)] {
        let limiter = server.builder().separately(separately).build().expect("options");
        let other = format!("{key}2");
        let target = move |_: &Request| Check::new(key, "@shared").and(&other[..], "9/h");
        let app = App::start(
            RateLimitLayer::new(limiter, target).count(Count::Failed).expect("no rule bans"),
        )
        .await;
        let log = Log::start();
        assert_eq!((app.ask(&[]).await.status, app.served()), (500, 0));
        assert_eq!(log.with("the rules have 'slots:2'").len(), 1, "{:?}", log.with(""));
        until("it is given back", async || {
            left(key, "slots:2").await == Some(2) && left(key, "9/m").await == Some(9)
        })
        .await;
        assert_eq!(left(&format!("{key}2"), "9/h").await, Some(9));
    }
}

#[tokio::test]
async fn a_key_with_too_many_holds_counts_all_requests() {
    let (log, server) = (Log::start(), Server::start("redis-7.0"));
    server.send("CONFIG SET ratelimit.max-holds 1");
    let app =
        App::start(limits(server.limiter(), &["3/h"]).count(Count::Failed).expect("no rule bans"))
            .await;
    let first = app.ask(&["x-key: a", "x-slow: 1"]);
    let others = async {
        until("the first is served", async || app.served() == 1).await;
        let answers = [app.ask(&["x-key: a"]).await, app.ask(&["x-key: a"]).await];
        app.end(1);
        answers.map(|answer| answer.status)
    };
    let (first, others) = tokio::join!(first, others);
    assert_eq!((first.status, others), (200, [200, 200]));
    let limiter = server.limiter();
    let left = async || limiter.peek(("a", "3/h")).await.expect("it runs").remaining;
    until("the first gets its unit back", async || left().await == Some(1)).await;
    assert_eq!(log.with("max-holds").len(), 1, "once a minute");
}

#[tokio::test]
async fn a_request_whose_client_goes_away_is_settled() {
    let server = Server::start("redis-8.2");
    for (count, key, left) in [(Count::Failed, "f", 8), (Count::Successful, "s", 9)] {
        let app =
            App::start(limits(server.limiter(), &["9/h"]).count(count).expect("no rule bans"))
                .await;
        let field = format!("x-key: {key}");
        let settled = server.calls("rl.settle");
        let head = [&field[..], "x-slow: 1"];
        tokio::select! {
            _ = app.ask(&head) => panic!("it does not end"),
            () = until("it is served", async || app.served() == 1) => {}
        }
        until("it is settled", async || server.calls("rl.settle") > settled).await;
        let reply = server.limiter().peek((key, "9/h")).await.expect("it runs");
        assert_eq!(reply.remaining, Some(left), "{count:?}");
    }
}

#[tokio::test]
async fn charges_of_a_late_answer_are_given_back() {
    let server = Server::start("redis-7.0");
    let limiter = server.builder().timeout(Duration::from_secs(1)).outage(Outage::Allow);
    let limiter = limiter.build().expect("options");
    let left = async || limiter.peek(("a", "9/h")).await.expect("it runs").remaining;
    assert_eq!(left().await, Some(9));
    let app =
        App::start(limits(limiter.clone(), &["9/h"]).count(Count::Failed).expect("no rule bans"))
            .await;
    server.freeze(true);
    assert_eq!(app.ask(&["x-key: a", "x-fail: 1"]).await.body, "no limit");
    server.freeze(false);
    until("it was charged", async || server.calls("rl.check") == 1).await;
    until("it is given back", async || left().await == Some(9)).await;
}

#[tokio::test]
async fn a_denial_is_remembered_even_if_not_all_requests_count() {
    let server = Server::start("valkey-8.1");
    let limiter = server.builder().remember_denials(10).build().expect("options");
    let app =
        App::start(limits(limiter, &["1/h"]).count(Count::Failed).expect("no rule bans")).await;
    assert_eq!(app.ask(&["x-key: a", "x-fail: 1"]).await.status, 400);
    for _ in 0..5 {
        assert_eq!(app.ask(&["x-key: a"]).await.status, 429);
    }
    assert_eq!(server.calls("rl.check"), 2);
}
