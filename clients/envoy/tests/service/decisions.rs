//! The decisions of the service, on every server.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use tonic::Code;

use crate::cluster::Cluster;
use crate::server::{ALL, Server};
use crate::support::service::{Service, descriptor, hits, shown};

const CONFIG: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 3, name: user}
  - key: address
    rate_limit: {unit: day, requests_per_unit: 2}
  - key: banned
    rate_limit: {unit: day, requests_per_unit: 0}
  - key: trial
    rate_limit: {unit: day, requests_per_unit: 1}
    shadow_mode: true
  - key: open
    rate_limit: {unlimited: true}
  - key: vip
    rate_limit: {unit: day, requests_per_unit: 9, replaces: [{name: user}]}
  - key: burst
    rules: ['bucket:1/h,burst=4', 'fixed:1000/d']
";

const OF_MODULE: &str = "
  - key: tier
    policy: free
  - key: tenant
    plan: free
  - key: hot
    rules: ['100/d']
    lease: 10
";

#[tokio::test]
async fn a_request_charges_no_limit_unless_all_let_it_pass() {
    for name in ALL {
        let server = Server::start(name);
        let plain = Server::without_module(name, &[]);
        let by_script = [("ENGINE", "script")];
        for service in
            [Service::start(&server, CONFIG, &[]), Service::start(&plain, CONFIG, &by_script)]
        {
            let mut client = service.client().await;
            let both = ["user=ann", "address=192.0.2.1"];
            assert_eq!(client.codes(&both).await, "ok [ok:2/3 ok:1/2]", "{name}");
            assert_eq!(client.codes(&both).await, "ok [ok:1/3 ok:0/2]");
            for _ in 0..3 {
                let denied = client.codes(&both).await;
                assert_eq!(denied, "over [ok:1/3 over:0/2]", "{name}: nothing was charged");
            }
            assert_eq!(client.codes(&["user=ann"]).await, "ok [ok:0/3]", "denials cost it nothing");
            assert_eq!(client.codes(&["user=ann"]).await, "over [over:0/3]");
            assert_eq!(
                client.codes(&["user=bob", "user=bob"]).await,
                "ok [ok:1/3 ok:1/3]",
                "twice"
            );
            assert_eq!(client.codes(&["banned=1"]).await, "over [over:0/0]");
            assert_eq!(client.codes(&["nothing=1"]).await, "ok [ok:0]");
            assert_eq!(client.codes(&["open=1"]).await, format!("ok [ok:{}]", u32::MAX));
            assert_eq!(
                client.codes(&["user=eve", "vip=eve"]).await,
                "ok [ok:0 ok:8/9]",
                "replaced"
            );
            for _ in 0..3 {
                let trial = client.codes(&["trial=1"]).await;
                assert!(trial.starts_with("ok [ok:0"), "{name}: it denies nobody: {trial}");
            }
            assert_eq!(client.codes(&["burst=1"]).await, "ok [ok:3/1]");
        }
    }
}

#[tokio::test]
async fn hits_and_limits_of_requests_count_as_the_protocol_says() {
    let server = Server::start("valkey-9.1");
    let service = Service::start(&server, CONFIG, &[]);
    let mut client = service.client().await;
    let of = |response: Result<_, _>| shown(&response.expect("an answer"));
    let user = || descriptor("user=ann");
    assert_eq!(of(client.send_as("shop", vec![user()], 2).await), "ok [ok:1/3]");
    assert_eq!(of(client.send(vec![hits("user=ann", 0)]).await), "ok [ok:1/3]", "a look");
    let several = vec![hits("user=ann", 1), hits("address=1", 2), hits("burst=1", 4)];
    assert_eq!(of(client.send(several).await), "ok [ok:0/3 ok:0/2 ok:0/1]");
    let back = RateLimitDescriptor { is_negative_hits: true, ..hits("user=ann", 2) };
    client.send(vec![back]).await.expect("an answer");
    assert_eq!(
        of(client.send(vec![hits("user=ann", 0)]).await),
        "ok [ok:2/3]",
        "the request gave two back"
    );
    let own = RateLimitOverride { requests_per_unit: 7, unit: 3 };
    let own = RateLimitDescriptor { limit: Some(own), ..descriptor("other=1") };
    assert_eq!(of(client.send(vec![own]).await), "ok [ok:6/7]");

    let none = client.send_as("market", vec![user()], 1).await;
    assert_eq!(of(none), "ok [ok:0]", "an unknown domain has no limit");
    let refused = [
        client.send_as("", vec![user()], 1).await,
        client.send(vec![]).await,
        client.send(vec![user(); 1025]).await,
    ];
    for refused in refused {
        assert_eq!(refused.expect_err("refused").code(), Code::InvalidArgument);
    }
}

#[tokio::test]
async fn large_requests_are_decided() {
    let server = Server::start("valkey-9.1");
    let service = Service::start(&server, CONFIG, &[]);
    let mut client = service.client().await;
    let large = format!("user={}", "x".repeat(8 << 20));
    assert_eq!(client.codes(&[&large]).await, "ok [ok:2/3]");
    let many = (0..100).map(|user| format!("user={user}")).collect::<Vec<_>>();
    let mut many = many.iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(client.codes(&many).await.matches("ok:2/3").count(), 100, "of two commands' keys");
    many.push("banned=1");
    let denied = client.codes(&many).await;
    assert_eq!(denied.matches("ok:2/3").count(), 100, "they got their hits back: {denied}");
    assert_eq!(client.codes(&["user=7"]).await, "ok [ok:1/3]");
}

#[tokio::test]
async fn the_count_goes_on_when_a_request_brings_another_number() {
    let server = Server::start("redis-8.2");
    let service = Service::start(&server, CONFIG, &[]);
    let mut client = service.client().await;
    for (number, expected) in [(9, "ok [ok:8/9]"), (4, "ok [ok:2/4]"), (3, "ok [ok:0/3]")] {
        let limit = Some(RateLimitOverride { requests_per_unit: number, unit: 4 });
        let brought = RateLimitDescriptor { limit, ..descriptor("user=ann") };
        assert_eq!(shown(&client.send(vec![brought]).await.expect("an answer")), expected);
    }
    assert_eq!(client.codes(&["user=ann"]).await, "ok [ok:2/3]", "the configuration's is another");
}

#[tokio::test]
async fn the_time_until_the_reset_has_whole_seconds_rounded_up() {
    let server = Server::start("redis-7.0");
    let config = "{domain: shop, descriptors: [{key: user, rules: ['bucket:10/s']}]}";
    let service = Service::start(&server, config, &[]);
    let status = service.client().await.ask(&["user=ann"]).await.statuses.remove(0);
    let reset = status.duration_until_reset.expect("a time");
    assert_eq!((reset.seconds, reset.nanos), (1, 0), "a tenth of a second");
}

#[tokio::test]
async fn a_cost_of_a_rule_does_not_charge_zero_hits() {
    let server = Server::start("redis-7.0");
    let config = "{domain: shop, descriptors: [{key: user, rules: ['10/d,cost=3']}]}";
    let service = Service::start(&server, config, &[]);
    let mut client = service.client().await;
    for _ in 0..5 {
        assert_eq!(client.report(&[("user=ann", 0)]).await, "ok [ok:10/10]");
    }
    assert_eq!(client.codes(&["user=ann"]).await, "ok [ok:7/10]");
}

#[tokio::test]
async fn plans_blocks_and_exemptions_of_a_key_take_effect() {
    let server = Server::start("redis-8.2");
    server.send("RL.POLICY SET free 2/d");
    server.send("RL.POLICY SET paid 5/d");
    let service = Service::start(&server, &format!("{CONFIG}{OF_MODULE}"), &[]);
    let mut client = service.client().await;
    assert_eq!(client.codes(&["tier=a"]).await, "ok [ok:1/2]");
    server.send("RL.PLAN shop|tenant=a paid");
    assert_eq!(client.codes(&["tenant=a"]).await, "ok [ok:4/5]");
    assert_eq!(client.codes(&["tenant=b"]).await, "ok [ok:1/2]");
    server.send("RL.BLOCK shop|user=eve EX 60");
    assert_eq!(client.codes(&["user=eve"]).await, "over [over:0]");
    assert_eq!(client.codes(&["address=1", "user=eve"]).await, "over [ok:2/2 over:0]");
    let denied = client.ask(&["user=eve"]).await;
    assert!(!format!("{denied:?}").contains("eve"), "no key in an answer");
    server.send("RL.EXEMPT shop|user=root");
    for _ in 0..5 {
        assert_eq!(client.codes(&["user=root"]).await, "ok [ok:0]");
    }
    let unknown =
        Service::start(&server, "{domain: shop, descriptors: [{key: a, policy: none}]}", &[]);
    let error =
        unknown.client().await.send(vec![descriptor("a=secret")]).await.expect_err("refused");
    assert_eq!(error.code(), Code::Internal);
    assert!(!error.message().contains("secret"), "{error}");
}

#[tokio::test]
async fn a_lease_admits_as_many_as_the_limit_and_gets_back_the_units_of_denials() {
    let server = Server::start("valkey-8.1");
    let service = Service::start(&server, &format!("{CONFIG}{OF_MODULE}"), &[]);
    let mut client = service.client().await;
    for _ in 0..50 {
        assert!(!client.passes(&["hot=1", "banned=1"]).await, "another limit denies");
    }
    let mut passed = 0;
    while client.passes(&["hot=1"]).await {
        passed += 1;
    }
    assert_eq!(passed, 100, "denied requests cost nothing");
    let calls = server.calls("rl.check");
    assert!(calls < 150, "most were answered here: {calls}");
    let denied = client.ask(&["hot=1"]).await;
    assert!(denied.response_headers_to_add.iter().any(|field| field.key == "Retry-After"));
}

#[tokio::test]
async fn zero_hits_skip_the_lease_and_negative_hits_come_back_even_if_another_limit_denies() {
    let server = Server::start("redis-7.0");
    let service = Service::start(&server, &format!("{CONFIG}{OF_MODULE}"), &[]);
    let mut client = service.client().await;
    let of = |response: Result<_, _>| shown(&response.expect("an answer"));
    assert_eq!(of(client.send(vec![hits("hot=1", 0)]).await), "ok [ok:100/100]");
    assert_eq!(of(client.send(vec![hits("user=ann", 3)]).await), "ok [ok:0/3]");
    let back = RateLimitDescriptor { is_negative_hits: true, ..hits("user=ann", 2) };
    let denied = client.send(vec![descriptor("banned=1"), back]).await;
    assert!(of(denied).starts_with("over [over:0/0 "));
    assert_eq!(of(client.send(vec![hits("user=ann", 0)]).await), "ok [ok:2/3]");
}

#[tokio::test]
async fn limits_that_share_entries_or_policies_count_separately() {
    let server = Server::start("valkey-9.1");
    server.send("RL.POLICY SET free 9/d");
    let service = Service::start(&server, &format!("{CONFIG}{OF_MODULE}"), &[]);
    let mut client = service.client().await;
    let of = |response: Result<_, _>| shown(&response.expect("an answer"));
    let own = RateLimitOverride { requests_per_unit: 7, unit: 3 };
    let own = RateLimitDescriptor { limit: Some(own), ..descriptor("user=ann") };
    let both = client.send(vec![descriptor("user=ann"), own]).await;
    assert_eq!(of(both), "ok [ok:2/3 ok:6/7]");
    let two = client.send(vec![hits("tier=a", 2), hits("tenant=b", 4)]).await;
    assert_eq!(
        of(two),
        "ok [ok:5/9 ok:5/9]",
        "all policies of a request cost the highest of their hits"
    );
}

#[tokio::test]
async fn leases_are_settled_before_the_service_ends() {
    let server = Server::start("redis-7.0");
    let mut service =
        Service::start(&server, &format!("{CONFIG}{OF_MODULE}"), &[("REDIS_TIMEOUT", "500ms")]);
    let mut client = service.client().await;
    for _ in 0..5 {
        assert!(client.passes(&["hot=1"]).await);
    }
    drop(client);
    assert!(service.end());
    let left = server.limiter().peek(("shop|hot=1", "100/d")).await.expect("it runs").remaining;
    assert_eq!(left, Some(95), "unused units of the lease are back");
}

#[tokio::test]
async fn a_denial_is_remembered_if_enabled() {
    let server = Server::start("redis-7.0");
    let service = Service::start(&server, CONFIG, &[]);
    let mut client = service.client().await;
    while client.passes(&["user=eve"]).await {}
    server.send("RL.RESET shop|user=eve");
    assert_eq!(client.codes(&["user=eve"]).await, "ok [ok:2/3]", "off by default");
    let service = Service::start(&server, CONFIG, &[("REMEMBERED_DENIALS", "100")]);
    let mut client = service.client().await;
    while client.passes(&["user=ann"]).await {}
    let calls = server.calls("rl.check");
    for _ in 0..20 {
        assert_eq!(client.codes(&["user=ann"]).await, "over [over:0/3]");
    }
    assert_eq!(server.calls("rl.check"), calls);
}

#[tokio::test]
async fn a_cluster_decides_all_keys_at_once_with_a_hash_tag_and_one_by_one_without() {
    for (prefix, several) in [("", 0), ("{shop}", 1)] {
        let cluster = Cluster::start("redis-7.0");
        let nodes = cluster.addresses();
        let options = [("REDIS_TYPE", "cluster"), ("CACHE_KEY_PREFIX", prefix)];
        let service = Service::on(&nodes.join(","), CONFIG, &options);
        let mut client = service.client().await;
        let both = ["user=ann", "address=192.0.2.2"];
        for expected in ["ok [ok:2/3 ok:1/2]", "ok [ok:1/3 ok:0/2]"] {
            assert_eq!(client.codes(&both).await, expected, "'{prefix}'");
        }
        assert_eq!(client.codes(&both).await, "over [ok:1/3 over:0/2]", "'{prefix}'");
        assert_eq!(
            client.codes(&["user=ann"]).await,
            "ok [ok:0/3]",
            "'{prefix}': the denial cost no unit"
        );
        assert_eq!(cluster.keys().iter().filter(|keys| **keys == 0).count(), several);
    }
}

/// The basic case of the reference's integration tests, as with its option
/// `STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT`: without that it goes on charging the other limit of a
/// denied request.
#[tokio::test]
async fn the_basic_integration_case_of_the_reference_is_answered() {
    let server = Server::start("redis-7.0");
    let config = "
domain: shop
descriptors:
  - key: key2
    rate_limit: {unit: day, requests_per_unit: 20}
  - key: key3
    rate_limit: {unit: week, requests_per_unit: 10}
";
    let service = Service::start(&server, config, &[]);
    let mut client = service.client().await;
    assert_eq!(client.codes(&["hello=world"]).await, "ok [ok:0]");
    for i in 0..25 {
        let expected = match 19_u32.checked_sub(i) {
            Some(left) => format!("ok [ok:{left}/20]"),
            None => "over [over:0/20]".to_string(),
        };
        assert_eq!(client.codes(&["key2=a"]).await, expected);
    }
    for i in 0..15 {
        let expected = match 9_u32.checked_sub(i) {
            Some(left) => format!("ok [ok:{}/20 ok:{left}/10]", left + 10),
            None => "over [ok:10/20 over:0/10]".to_string(),
        };
        assert_eq!(client.codes(&["key2=b", "key3=b"]).await, expected);
    }
}
