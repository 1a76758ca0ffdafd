//! Several hits at once, such as the tokens that a stream has used, and looks with 0 hits.

use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::server::{ALL, Server};
use crate::support::envoy::Envoy;
use crate::support::service::{PATIENCE, Service, descriptor, hits, shown};

const CONFIG: &str = "
domain: shop
descriptors:
  - key: tokens
    rate_limit: {unit: day, requests_per_unit: 1000}
  - key: requests
    rate_limit: {unit: day, requests_per_unit: 3}
  - key: strict
    rate_limit: {unit: day, requests_per_unit: 1000}
    all_or_nothing: true
  - key: trial
    rate_limit: {unit: day, requests_per_unit: 1000}
    shadow_mode: true
  - key: open
    rate_limit: {unlimited: true}
  - key: burst
    rules: ['bucket:1/d,burst=4']
";

#[tokio::test]
async fn reports_are_charged_whatever_is_left_and_say_whether_they_were_within_the_limit() {
    for name in ALL {
        let server = Server::start(name);
        let plain = Server::without_module(name, &[]);
        let by_script = [("ENGINE", "script")];
        for service in
            [Service::start(&server, CONFIG, &[]), Service::start(&plain, CONFIG, &by_script)]
        {
            let mut client = service.client().await;
            assert_eq!(client.report(&[("tokens=a", 300)]).await, "ok [ok:700/1000]", "{name}");
            assert_eq!(client.report(&[("tokens=a", 1500)]).await, "over [over:0/1000]");
            assert_eq!(client.report(&[("tokens=a", 0)]).await, "over [over:0/1000]", "{name}");
            assert_eq!(client.codes(&["tokens=a"]).await, "over [over:0/1000]");
            assert_eq!(client.report(&[("tokens=a", 7)]).await, "over [over:0/1000]", "{name}");
            let mut back = hits("tokens=a", 900);
            back.is_negative_hits = true;
            client.send(vec![back]).await.expect("an answer");
            assert_eq!(
                client.report(&[("tokens=a", 0)]).await,
                "ok [ok:93/1000]",
                "{name}: all counted"
            );
            assert_eq!(client.report(&[("tokens=b", 1000)]).await, "ok [ok:0/1000]", "exactly");
            assert_eq!(client.report(&[("tokens=b", 0)]).await, "over [over:0/1000]");
            // One at once is no report.
            assert_eq!(client.report(&[("tokens=b", 1)]).await, "over [over:0/1000]");
        }
    }
}

#[tokio::test]
async fn one_report_charges_all_plain_limits_of_its_request() {
    let server = Server::start("valkey-9.1");
    let service = Service::start(&server, CONFIG, &[]);
    let mut client = service.client().await;
    let all = [("tokens=a", 600), ("requests=a", 1), ("burst=a", 1), ("open=a", 9)];
    let open = u32::MAX;
    assert_eq!(client.report(&all).await, format!("ok [ok:400/1000 ok:2/3 ok:3/1 ok:{open}]"));
    let over = format!("over [over:0/1000 ok:1/3 ok:3/1 ok:{open}]");
    assert_eq!(client.report(&all).await, over, "rules are charged only if all limits admit it");
    assert_eq!(
        client.report(&[("tokens=b", 2), ("burst=b", 9)]).await,
        "over [ok:998/1000 over:0/1]"
    );
    assert_eq!(
        client.report(&[("tokens=b", 1), ("requests=b", 1)]).await,
        "ok [ok:997/1000 ok:2/3]"
    );
    let twice = [("requests=c", 2), ("requests=c", 2)];
    assert_eq!(client.report(&twice).await, "over [ok:1/3 over:0/3]", "one after the other");
    // The request's own hits, for descriptors without any.
    let of = vec![descriptor("tokens=d"), hits("requests=d", 1)];
    let response = client.send_as("shop", of, 1001).await.expect("an answer");
    assert_eq!(shown(&response), "over [over:0/1000 ok:2/3]");
}

#[tokio::test]
async fn with_all_or_nothing_a_denied_report_charges_nothing() {
    let server = Server::start("redis-8.2");
    for (key, option) in [("strict=a", "false"), ("tokens=a", "true")] {
        let options = [("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", option)];
        let service = Service::start(&server, CONFIG, &options);
        let mut client = service.client().await;
        assert_eq!(client.report(&[(key, 700)]).await, "ok [ok:300/1000]");
        assert_eq!(client.report(&[(key, 301)]).await, "over [over:0/1000]");
        assert_eq!(client.report(&[(key, 300)]).await, "ok [ok:0/1000]");
    }
}

#[tokio::test]
async fn a_look_denies_a_request_without_charging_the_others() {
    for name in ["redis-6.2", "valkey-9.1"] {
        let server = Server::start(name);
        let service = Service::start(&server, CONFIG, &[]);
        let mut client = service.client().await;
        let ask = [("tokens=a", 0), ("requests=a", 1), ("burst=a", 1)];
        assert_eq!(client.report(&ask).await, "ok [ok:1000/1000 ok:2/3 ok:3/1]", "{name}");
        client.report(&[("tokens=a", 1000)]).await;
        for _ in 0..3 {
            assert_eq!(client.report(&ask).await, "over [over:0/1000 ok:2/3 ok:3/1]", "{name}");
        }
        let response = client.send(vec![hits("tokens=a", 0)]).await.expect("an answer");
        let wait = response.statuses[0].duration_until_reset.expect("the window's end");
        assert!((1..=86_400).contains(&wait.seconds), "{wait:?}");
        let field = &response.response_headers_to_add[0];
        assert_eq!((&*field.key, &*field.value), ("Retry-After", &*wait.seconds.to_string()));
        for left in [3, 2, 1] {
            assert_eq!(client.report(&[("burst=b", 1)]).await, format!("ok [ok:{left}/1]"));
        }
        assert_eq!(client.report(&[("burst=b", 0)]).await, "ok [ok:1/1]", "rules, too");
        client.report(&[("burst=b", 1)]).await;
        assert_eq!(client.report(&[("burst=b", 0)]).await, "over [over:0/1]");
    }
}

#[tokio::test]
async fn reports_meet_trials_blocks_exemptions_and_leases() {
    let server = Server::start("valkey-8.1");
    let config = format!(
        "{CONFIG}  - key: hot\n    rate_limit: {{unit: day, requests_per_unit: 100}}\n    lease: 5\n"
    );
    let service = Service::start(&server, &config, &[]);
    let mut client = service.client().await;
    assert_eq!(client.report(&[("trial=a", 1500)]).await, "ok [ok:0/1000]", "it denies nobody");
    assert_eq!(client.report(&[("trial=a", 0)]).await, "ok [ok:0/1000]");
    server.send("RL.BLOCK shop|tokens=eve EX 60");
    assert_eq!(
        client.report(&[("tokens=eve", 9), ("requests=eve", 1)]).await,
        "over [over:0 ok:2/3]"
    );
    server.send("RL.EXEMPT shop|tokens=root");
    assert_eq!(client.report(&[("tokens=root", 5000)]).await, "ok [ok:0]");
    assert_eq!(client.report(&[("tokens=root", 0)]).await, "ok [ok:0]");
    assert!(client.passes(&["hot=a"]).await, "by a lease of 5");
    assert_eq!(client.report(&[("hot=a", 200)]).await, "over [over:0/100]");
    // A unit of the lease may be left.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(client.report(&[("hot=a", 0)]).await, "over [over:0/100]");
    assert!(!client.passes(&["hot=a"]).await);
}

#[tokio::test]
async fn reports_in_a_cluster_without_a_hash_tag_charge_each_key() {
    let cluster = Cluster::start("redis-7.0");
    let nodes = cluster.addresses().join(",");
    let service = Service::on(&nodes, CONFIG, &[("REDIS_TYPE", "CLUSTER")]);
    let mut client = service.client().await;
    let all = [("tokens=a", 1500), ("tokens=b", 2), ("requests=c", 1), ("tokens=d", 0)];
    let expected = "over [over:0/1000 ok:998/1000 ok:2/3 ok:1000/1000]";
    assert_eq!(client.report(&all).await, expected);
}

#[tokio::test]
async fn reports_meet_outages() {
    for (outage, expected) in [
        ("allow", "ok [ok:0 ok:0]"),
        ("deny", "over [over:0 over:0]"),
        ("local", "over [over:0/1000 ok:1000/1000]"),
    ] {
        let mut server = Server::start("valkey-9.1");
        let service = Service::start(&server, CONFIG, &[("OUTAGE", outage)]);
        let mut client = service.client().await;
        assert_eq!(client.report(&[("tokens=a", 3)]).await, "ok [ok:997/1000]");
        server.kill();
        let answer = client.report(&[("tokens=b", 1001), ("tokens=c", 0)]).await;
        assert_eq!(answer, expected, "{outage}");
    }
}

#[tokio::test]
async fn concurrent_reports_are_all_counted_and_within_the_limit_as_often_as_they_fit() {
    let server = Server::start("redis-7.0");
    let service = Service::start(&server, CONFIG, &[]);
    let client = service.client().await;
    let tasks = (0..100).map(|_| {
        let mut client = client.clone();
        tokio::spawn(async move { client.report(&[("tokens=a", 30)]).await })
    });
    let mut within = 0;
    for task in tasks.collect::<Vec<_>>() {
        within += usize::from(task.await.expect("no panic").starts_with("ok"));
    }
    assert_eq!(within, 33);
    let used = server.limiter().refund("shop|tokens=a", 1_000_000, "fixed:1000/d").await;
    assert_eq!(used.expect("it runs"), 3000, "none was lost");
}

const EXAMPLE: &str = include_str!("../../../../examples/envoy/config/shop.yaml");

/// Sends requests that use these tokens, each after the last one's report has arrived, and returns
/// their statuses.
async fn statuses(server: &Server, limit: u32, changes: &[(&str, &str)], used: &[u32]) -> Vec<u16> {
    let config = EXAMPLE.replace("per_unit: 1000\n", &format!("per_unit: {limit}\n"));
    let service = Service::start(server, &config, &[]);
    let envoy = Envoy::start(&service, changes).await;
    let left = async || {
        let rule = format!("fixed:{limit}/h");
        server.limiter().peek(("shop|tokens=chat", rule)).await.expect("it runs").remaining
    };
    let mut statuses = Vec::new();
    for tokens in used {
        let before = left().await;
        let status = envoy.get("/chat", &[format!("x-tokens: {tokens}")]).await.status;
        statuses.push(status);
        let start = Instant::now();
        while status == 200 && left().await == before {
            assert!(start.elapsed() < PATIENCE, "the report of {tokens} does not arrive");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    statuses
}

/// The reference's example of a token quota: each request reports one. There the third request passes,
/// too, since a look is denied only once more than the limit was used.
#[tokio::test]
async fn the_token_quota_of_the_reference_limits_at_the_edge() {
    let server = Server::start("valkey-9.1");
    let one = [("format: \"%RESP(x-tokens)%\"", "number: 1")];
    assert_eq!(statuses(&server, 2, &one, &[1; 4]).await, [200, 200, 429, 429]);
}

#[tokio::test]
async fn tokens_reported_when_streams_end_are_counted_even_above_the_limit_at_the_edge() {
    let server = Server::start("redis-8.2");
    let same = statuses(&server, 1000, &[], &[300; 6]).await;
    assert_eq!(same, [200, 200, 200, 200, 429, 429]);
    let server = Server::start("redis-6.2");
    assert_eq!(statuses(&server, 1000, &[], &[1500, 1, 1]).await, [200, 429, 429]);
}
