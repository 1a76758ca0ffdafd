//! A real Envoy asks the service, and clients get responses from Envoy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::server::Server;
use crate::support::envoy::{Envoy, ask};
use crate::support::service::{PATIENCE, Service};

const NONE: &[&str] = &[];
const CONFIG: &str = include_str!("../../../../examples/envoy/config/shop.yaml");

#[tokio::test]
async fn clients_get_a_429_with_fields_at_the_edge() {
    let server = Server::start("valkey-9.1");
    let service = Service::start(&server, CONFIG, &[]);
    let envoy = Envoy::start(&service, &[]).await;
    for left in [2, 1, 0] {
        let passed = envoy.get("/search?q=a", NONE).await;
        assert_eq!(passed.status, 200);
        assert_eq!(passed.field("x-ratelimit-remaining"), Some(&*left.to_string()));
        assert!(
            passed.field("x-ratelimit-limit").is_some_and(|limit| limit.starts_with("3, 3;w=60"))
        );
    }
    // Each path has its own limit, since the path is the value of the descriptor.
    let denied = envoy.get("/search?q=a", NONE).await;
    assert_eq!(denied.status, 429);
    let wait = denied.field("retry-after").expect("a field").parse::<u64>().expect("seconds");
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(denied.field("x-envoy-ratelimited"), Some("true"));
    assert_eq!(envoy.get("/other", NONE).await.status, 200);
}

#[tokio::test]
async fn a_denied_request_charges_no_other_limit_at_the_edge() {
    let server = Server::start("redis-8.2");
    let service = Service::start(&server, CONFIG, &[]);
    let envoy = Envoy::start(&service, &[]).await;
    for expected in [200, 200, 200, 429, 429, 429, 429] {
        assert_eq!(envoy.get("/search", &["x-user: ann"]).await.status, expected);
    }
    assert_eq!(
        envoy.get("/", &["x-user: ann"]).await.status,
        200,
        "the user's bucket has units left"
    );
}

#[tokio::test]
async fn a_new_configuration_takes_effect_at_the_edge() {
    let server = Server::start("redis-7.0");
    let service = Service::start(&server, CONFIG, &[]);
    let envoy = Envoy::start(&service, &[]).await;
    assert_eq!(envoy.get("/buy", NONE).await.status, 200);
    service.configure(
        "{domain: shop, descriptors: [{key: path, rate_limit: {unit: day, requests_per_unit: 0}}]}",
    );
    let start = Instant::now();
    while envoy.get("/buy", NONE).await.status != 429 {
        assert!(start.elapsed() < PATIENCE, "the new file was not read");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn without_the_server_or_the_service_envoy_fails_open_or_closed_as_its_option_says() {
    for (deny, expected) in [("false", 200), ("true", 500)] {
        let mut server = Server::start("valkey-8.1");
        let mut service = Service::start(&server, CONFIG, &[]);
        let closed = format!("failure_mode_deny: {deny}");
        let envoy = Envoy::start(&service, &[("failure_mode_deny: false", &closed)]).await;
        assert_eq!(envoy.get("/", &["x-user: ann"]).await.status, 200);
        server.kill();
        assert_eq!(envoy.get("/", &["x-user: ann"]).await.status, expected, "the server is gone");
        service.kill();
        assert_eq!(envoy.get("/", &["x-user: ann"]).await.status, expected, "the service is gone");
    }
}

#[tokio::test]
async fn a_thousand_concurrent_requests_consume_exactly_the_limit() {
    let server = Server::start("valkey-9.1");
    let config = "{domain: shop, descriptors: [{key: user, rules: ['300/d']}]}";
    let service = Service::start(&server, config, &[]);
    let service_port = Envoy::start(&service, &[]).await;
    let port = Arc::new(service_port);
    let tasks = (0..1000).map(|_| {
        let port = port.port();
        tokio::spawn(
            async move { ask(port, "/", &["x-user: all"]).await.map(|answer| answer.status) },
        )
    });
    let mut statuses = std::collections::HashMap::new();
    for task in tasks.collect::<Vec<_>>() {
        *statuses.entry(task.await.expect("no panic").expect("an answer")).or_insert(0) += 1;
    }
    assert_eq!(statuses, [(200, 300), (429, 700)].into());
}

#[tokio::test]
async fn no_byte_of_a_client_lifts_the_limits_at_the_edge() {
    let server = Server::start("valkey-9.1");
    let config = "{domain: shop, descriptors: [{key: user, rules: ['2/d']}]}";
    let service = Service::start(&server, config, &[]);
    let envoy = Envoy::start(&service, &[]).await;
    let huge = [b"x-user: ".to_vec(), vec![0xe4; 40_000]].concat();
    let odd =
        [&b"x-user: \xff"[..], b"x-user: a\xc3\x28b", b"x-user: \xed\xa0\x80", b"x-user: ", &huge];
    for (place, head) in odd.into_iter().enumerate() {
        for expected in [200, 200, 429] {
            let answer = envoy.get(&format!("/{place}"), &[head]).await;
            assert_eq!(answer.status, expected, "{:?}", &head[..head.len().min(20)]);
        }
    }
    let metrics = ask(service.http, "/metrics", NONE).await.expect("an answer").head;
    assert!(!metrics.contains("should_rate_limit_error"), "{metrics}");
}
