//! The limits and hits of requests, and that no request makes the service panic.

use envoy_types::pb::google::protobuf::UInt64Value;
use proptest::prelude::*;

use super::*;
use tower_redis_ratelimit::Engine;

const CONFIG: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 5, name: user}
  - key: region
    value: eu
    descriptors:
      - key: user
        rate_limit: {unit: minute, requests_per_unit: 9, replaces: [{name: user}]}
  - key: open
    rate_limit: {unlimited: true}
";

fn config() -> Config {
    let mut config = Config::default();
    config.add(CONFIG, false, Engine::Module).unwrap();
    config
}

fn descriptor(pairs: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).into(), value: (*value).into() };
    RateLimitDescriptor { entries: pairs.iter().map(entry).collect(), ..Default::default() }
}

fn read(descriptors: Vec<RateLimitDescriptor>) -> Result<Request, Status> {
    let request = RateLimitRequest { domain: "shop".into(), descriptors, hits_addend: 0 };
    Request::read(&request, &config(), "{p}")
}

fn keys(request: &Request) -> Vec<String> {
    request.asked.iter().map(|asked| String::from_utf8(asked.key.clone()).unwrap()).collect()
}

#[test]
fn a_limit_replaces_another_one_by_name() {
    let (user, both) = ([("user", "ann")], [("region", "eu"), ("user", "ann")]);
    let request = read(vec![descriptor(&user), descriptor(&both)]).unwrap();
    assert_eq!(request.found, [Found::Nothing, Found::Limit(0)]);
    assert_eq!(keys(&request), ["{p}shop|region=eu|user=ann"]);
    let request = read(vec![descriptor(&user), descriptor(&[("open", "")])]).unwrap();
    assert_eq!(request.found, [Found::Limit(0), Found::Unlimited]);
}

#[test]
fn hits_come_from_the_descriptor_or_else_from_the_request() {
    let with = |hits, value| RateLimitDescriptor {
        hits_addend: Some(UInt64Value { value: hits }),
        ..descriptor(&[("user", value)])
    };
    let of = |descriptors, hits_addend| {
        let request = RateLimitRequest { domain: "shop".into(), descriptors, hits_addend };
        let request = Request::read(&request, &config(), "")?;
        Ok::<_, Status>(request.asked.iter().map(|asked| asked.hits).collect::<Vec<_>>())
    };
    let plain = || descriptor(&[("user", "ann")]);
    assert_eq!(of(vec![plain()], 0).unwrap(), [1]);
    assert_eq!(of(vec![plain()], 7).unwrap(), [7]);
    assert_eq!(of(vec![with(0, "ann"), with(3, "bob"), with(4, "bob")], 7).unwrap(), [0, 7]);
    assert!(of(vec![with(1_000_000_001, "ann")], 0).is_err());
    assert!(of(vec![with(u64::MAX, "ann"), with(u64::MAX, "ann")], 0).is_err());
}

#[test]
fn a_request_may_bring_its_limit() {
    use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;

    let with = |requests_per_unit, unit| RateLimitDescriptor {
        limit: Some(RateLimitOverride { requests_per_unit, unit }),
        ..descriptor(&[("anything", "x")])
    };
    let rule = |unit| {
        let request = read(vec![with(4, unit)]).ok()?;
        Some(request.asked.first()?.limit.rules.texts().join(" "))
    };
    let expected =
        ["fixed:4/s", "fixed:4/m", "fixed:4/h", "fixed:4/d", "fixed:4/30d", "fixed:4/365d"];
    for (unit, expected) in (1..).zip(expected) {
        assert_eq!(rule(unit).as_deref(), Some(expected));
    }
    assert_eq!((rule(0), rule(99)), (None, None));
    assert!(read(vec![with(u32::MAX, 1)]).is_err(), "more than a rule may have");
}

#[test]
fn a_malformed_request_is_refused() {
    let empty = RateLimitRequest::default();
    assert!(Request::read(&empty, &config(), "").is_err(), "no domain");
    assert!(read(vec![]).is_err(), "no descriptor");
    let one = descriptor(&[("user", "a")]);
    assert!(read(vec![one.clone(); 64]).is_ok() && read(vec![one; 65]).is_err());
    assert!(read(vec![descriptor(&[("user", "a"); 65])]).is_err());
}

#[test]
fn no_client_chooses_a_slot_or_makes_a_key_large() {
    let request = read(vec![descriptor(&[("user", "{x}|user=ann#%\n")])]).unwrap();
    assert_eq!(keys(&request), ["{p}shop|user=%7Bx%7D%7Cuser%3Dann%23%25%0A"]);
    let request = read(vec![descriptor(&[("user", &"x".repeat(60_000))])]).unwrap();
    let [key] = &keys(&request)[..] else { panic!("one key") };
    assert!(key.starts_with("{p}shop|user=#") && key.len() == 14 + 64, "{key}");
}

proptest! {
    #[test]
    fn different_descriptors_have_different_keys(
        one in prop::collection::vec(("[ab|=#%]{0,3}", "[ab|=#%]{0,3}"), 1..4),
        other in prop::collection::vec(("[ab|=#%]{0,3}", "[ab|=#%]{0,3}"), 1..4),
    ) {
        let of = |pairs: &[(String, String)]| {
            let pairs = pairs.iter().map(|(key, value)| (&**key, &**value)).collect::<Vec<_>>();
            let limit = Limit::of(&[], &serde_saphyr::from_str("{key: a, rules: ['1/s']}").unwrap(), Engine::Module);
            key("", "shop", &descriptor(&pairs), &limit.unwrap().unwrap())
        };
        prop_assert_eq!(one == other, of(&one) == of(&other));
    }

    #[test]
    fn no_request_makes_it_panic(
        domain in prop_oneof![Just("shop".to_string()), any::<String>()],
        descriptors in prop::collection::vec(
            (prop::collection::vec(("(user|region|open|.*)", "(eu|.*)"), 0..4), any::<Option<u64>>(), any::<bool>(), any::<Option<(u32, i32)>>()),
            0..5,
        ),
        hits_addend: u32,
    ) {
        use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;

        let descriptors = descriptors.into_iter().map(|(pairs, hits, is_negative_hits, limit)| RateLimitDescriptor {
            entries: pairs.into_iter().map(|(key, value)| Entry { key, value }).collect(),
            hits_addend: hits.map(|value| UInt64Value { value }),
            is_negative_hits,
            limit: limit.map(|(requests_per_unit, unit)| RateLimitOverride { requests_per_unit, unit }),
        });
        let request = RateLimitRequest { domain, descriptors: descriptors.collect(), hits_addend };
        if let Ok(read) = Request::read(&request, &config(), "") {
            prop_assert_eq!(read.found.len(), request.descriptors.len());
            prop_assert!(read.asked.iter().all(|asked| asked.hits <= 1_000_000_000));
        }
    }
}
