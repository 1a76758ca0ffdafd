//! The metrics that dashboards of the reference read.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;

use crate::server::Server;
use crate::support::get;
use crate::support::service::{Service, descriptor};

const CONFIG: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 2}
  - key: ten
    rate_limit: {unit: day, requests_per_unit: 10}
  - key: trial
    rate_limit: {unit: day, requests_per_unit: 0}
    shadow_mode: true
";
const NAMES: [&str; 6] = [
    "total_hits",
    "within_limit",
    "near_limit",
    "over_limit",
    "over_limit_with_local_cache",
    "shadow_mode",
];

/// The numbers of a limit, by the names above.
fn numbers(service: &Service, key: &str) -> [u64; 6] {
    let metrics = get(service.http, "/metrics");
    NAMES.map(|name| {
        let labels =
            format!("ratelimit_service_rate_limit_{name}{{domain=\"shop\",key1=\"{key}\"}} ");
        let found = metrics.lines().find_map(|line| line.strip_prefix(&labels));
        found.map_or_else(
            || panic!("{labels}\n{metrics}"),
            |number| number.parse().expect("a number"),
        )
    })
}

fn has(service: &Service, line: &str) -> bool {
    get(service.http, "/metrics").lines().any(|found| found == line)
}

#[tokio::test]
async fn the_service_counts_its_decisions() {
    let server = Server::start("redis-8.2");
    let service = Service::start(&server, CONFIG, &[("REMEMBERED_DENIALS", "9")]);
    let mut client = service.client().await;
    for _ in 0..4 {
        client.ask(&["user=ann"]).await;
    }
    client.ask(&["trial=1"]).await;
    assert_eq!(numbers(&service, "user"), [4, 2, 1, 2, 1, 0]);
    assert_eq!(numbers(&service, "trial"), [1, 0, 0, 1, 0, 1]);
    client.ask(&["trial=1", "user=ann"]).await;
    let denied = numbers(&service, "trial");
    assert_eq!(denied, [2, 0, 0, 2, 0, 1], "the trial let no hit of a denied request pass");
    assert!(!get(service.http, "/metrics").contains("ann"), "clients choose the values");
}

#[tokio::test]
async fn hits_above_a_part_of_the_limit_are_near_it() {
    let server = Server::start("redis-8.2");
    for (ratio, expected) in [("0.8", [0, 1, 2, 2]), ("0.5", [1, 4, 5, 5])] {
        let options = [("NEAR_LIMIT_RATIO", ratio), ("CACHE_KEY_PREFIX", ratio)];
        let service = Service::start(&server, CONFIG, &options);
        let mut client = service.client().await;
        for (hits, expected) in [6, 3, 1, 1].into_iter().zip(expected) {
            client.report(&[("ten=a", hits)]).await;
            let [_, _, near, ..] = numbers(&service, "ten");
            assert_eq!(near, expected, "{ratio}: {hits}");
        }
        assert_eq!(numbers(&service, "ten")[3], 1, "over");
    }
}

#[tokio::test]
async fn requests_errors_and_unknown_domains_are_counted() {
    let mut server = Server::start("redis-7.0");
    let service = Service::start(&server, CONFIG, &[]);
    let mut client = service.client().await;
    client.ask(&["user=ann"]).await;
    client.send_as("market", vec![descriptor("user=ann")], 0).await.expect("no limit");
    client.send(vec![]).await.expect_err("no descriptor");
    server.kill();
    client.send(vec![descriptor("user=ann")]).await.expect_err("no server");
    for line in [
        "ratelimit_service_total_requests{grpc_method=\"ShouldRateLimit\"} 4",
        "ratelimit_service_response_time_seconds_count{grpc_method=\"ShouldRateLimit\"} 4",
        "ratelimit_service_rate_limit_domain_not_found{domain=\"market\"} 1",
        "ratelimit_service_should_rate_limit_error{err_type=\"service_error\"} 1",
        "ratelimit_service_should_rate_limit_error{err_type=\"redis_error\"} 1",
    ] {
        assert!(has(&service, line), "{line}\n{}", get(service.http, "/metrics"));
    }
}

#[tokio::test]
async fn limits_that_requests_bring_have_values_as_labels_but_not_endlessly() {
    let server = Server::start("redis-7.0");
    let service = Service::start(&server, CONFIG, &[]);
    let mut client = service.client().await;
    let with = |value: u32| RateLimitDescriptor {
        limit: Some(RateLimitOverride { requests_per_unit: 7, unit: 3 }),
        ..descriptor(&format!("path=p{value}"))
    };
    for value in 0..1100 {
        client.send(vec![with(value)]).await.expect("an answer");
    }
    assert_eq!(numbers(&service, "path_p0")[..2], [1, 1]);
    assert_eq!(numbers(&service, "path")[..2], [100, 100], "later ones count together");
}

#[tokio::test]
async fn what_cannot_be_decoded_is_counted() {
    use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
    use tonic::codegen::http::uri::PathAndQuery;

    let server = Server::start("redis-7.0");
    let service = Service::start(&server, CONFIG, &[]);
    let mut grpc = tonic::client::Grpc::new(service.channel().await);
    grpc.ready().await.expect("it listens");
    let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    // A message of another type: its first field is a number.
    let wrong = envoy_types::pb::google::protobuf::UInt64Value { value: 7 };
    let codec = tonic_prost::ProstCodec::<_, RateLimitResponse>::default();
    let answer =
        grpc.unary(tonic::Request::new(wrong), PathAndQuery::from_static(path), codec).await;
    assert_eq!(answer.expect_err("refused").code(), tonic::Code::InvalidArgument);
    let line = "ratelimit_service_should_rate_limit_error{err_type=\"service_error\"} 1";
    assert!(has(&service, line));
}

/// The cases of the reference's tests of its limiter: the limit, what was used before, the hits; the
/// answer; and the numbers that its counters then have.
#[tokio::test]
async fn the_cases_of_the_references_limiter_are_answered_and_counted() {
    let server = Server::start("valkey-9.1");
    let cases: [(u32, u32, u64, &str, [u64; 4]); 11] = [
        (10, 4, 1, "ok:5/10", [1, 1, 0, 0]),
        (10, 10, 1, "over:0/10", [1, 0, 0, 1]),
        (10, 2, 4, "ok:4/10", [4, 4, 0, 0]),
        (15, 10, 1, "ok:4/15", [1, 1, 0, 0]),
        (15, 12, 1, "ok:2/15", [1, 1, 1, 0]),
        (15, 15, 1, "over:0/15", [1, 0, 0, 1]),
        (20, 2, 3, "ok:15/20", [3, 3, 0, 0]),
        (8, 5, 2, "ok:1/8", [2, 2, 1, 0]),
        (20, 16, 3, "ok:1/20", [3, 3, 3, 0]),
        // The reference splits hits at the limit: it counts 1 and 4 of these as near it, not over it.
        (20, 19, 3, "over:0/20", [3, 0, 0, 3]),
        (20, 15, 7, "over:0/20", [7, 0, 0, 7]),
    ];
    let limits = cases.iter().enumerate().map(|(place, (limit, ..))| {
        format!("  - key: k{place}\n    rate_limit: {{unit: day, requests_per_unit: {limit}}}\n")
    });
    let config = format!("domain: shop\ndescriptors:\n{}", limits.collect::<String>());
    let service = Service::start(&server, &config, &[]);
    let mut client = service.client().await;
    for (place, (limit, before, hits, answer, counted)) in cases.into_iter().enumerate() {
        server.send(&format!("RL.CHECK shop|k{place}=v COST {before} fixed:{limit}/d"));
        let overall = &answer[..answer.find(':').expect("a code")];
        let expected = format!("{overall} [{answer}]");
        assert_eq!(client.report(&[(&format!("k{place}=v"), hits)]).await, expected, "{place}");
        assert_eq!(numbers(&service, &format!("k{place}"))[..4], counted, "{place}");
    }
}
