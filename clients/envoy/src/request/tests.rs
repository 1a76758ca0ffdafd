//! The limits and hits of requests, and that no request makes the service panic.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use envoy_types::pb::google::protobuf::UInt64Value;
use proptest::prelude::*;

use super::*;
use crate::options::Files;

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
  - key: strict
    rate_limit: {unit: minute, requests_per_unit: 5}
    all_or_nothing: true
  - key: burst
    rules: ['5/m']
  - key: hot
    rate_limit: {unit: minute, requests_per_unit: 5}
    lease: 5
";

fn config() -> Config {
    let mut config = Config::default();
    config.counts_reports = true;
    config.add(CONFIG, &Files::default()).unwrap();
    config
}

fn descriptor<T: AsRef<[u8]>>(pairs: &[(&str, T)]) -> Descriptor {
    let entry =
        |(key, value): &(&str, T)| Entry { key: (*key).into(), value: value.as_ref().into() };
    Descriptor { entries: pairs.iter().map(entry).collect(), ..Default::default() }
}

fn read(descriptors: Vec<Descriptor>) -> Result<Request, Status> {
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
    let with = |hits, value| Descriptor {
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
    assert_eq!(of(vec![with(0, "ann"), with(3, "bob"), plain()], 7).unwrap(), [0, 3, 7]);
    assert_eq!(of(vec![plain(), plain()], 0).unwrap(), [2], "equal descriptors are added up");
    // More than a rule may have counts as that.
    assert_eq!(of(vec![with(u64::MAX, "ann")], 0).unwrap(), [1_000_000_000]);
}

#[test]
fn several_hits_at_once_are_charged_whatever_is_left_unless_all_or_nothing() {
    let with = |hits, pairs: &[(&str, &str)]| Descriptor {
        hits_addend: Some(UInt64Value { value: hits }),
        ..descriptor(pairs)
    };
    let ways = |descriptors, hits_addend| {
        let request = RateLimitRequest { domain: "shop".into(), descriptors, hits_addend };
        let request = Request::read(&request, &config(), "").unwrap();
        request.asked.iter().map(|asked| asked.way).collect::<Vec<_>>()
    };
    let (user, strict, burst) = ([("user", "ann")], [("strict", "")], [("burst", "")]);
    let of = |hits, more| {
        ways(vec![with(hits, &user), with(more, &strict), with(more, &burst), with(0, &user)], 0)
    };
    assert_eq!(of(1, 1), [Way::Check, Way::Check, Way::Check, Way::Look]);
    assert_eq!(of(5, 1), [Way::Charge, Way::Check, Way::Check, Way::Look]);
    assert_eq!(of(1, 5), [Way::Charge, Way::Check, Way::Check, Way::Look]);
    assert_eq!(ways(vec![descriptor(&user); 2], 0), [Way::Check], "equal ones are added up");
    assert_eq!(ways(vec![descriptor(&user); 2], 2), [Way::Charge; 2]);
    let hot = [("hot", "")];
    assert_eq!(ways(vec![descriptor(&hot)], 0), [Way::Lease(5)]);
    assert_eq!(ways(vec![descriptor(&hot)], 2), [Way::Charge]);
    let back = Descriptor { is_negative_hits: true, ..with(7, &user) };
    assert_eq!(ways(vec![back, descriptor(&user)], 0), [Way::GiveBack, Way::Check]);
    let unknown = ways(vec![with(7, &[("unknown", "")]), descriptor(&user)], 0);
    assert_eq!(unknown, [Way::Charge], "it is a report all the same");
}

#[test]
fn a_request_may_bring_its_limit() {
    let with = |requests_per_unit, unit, key| Descriptor {
        limit: Some(RateLimitOverride { requests_per_unit, unit }),
        ..descriptor(&[(key, "x")])
    };
    let rule = |number, unit, key| {
        let request = read(vec![with(number, unit, key)]).unwrap();
        request.asked.first().map(|asked| asked.limit.rules.texts().join(" "))
    };
    let expected =
        ["fixed:4/s", "fixed:4/m", "fixed:4/h", "fixed:4/d", "fixed:4/30d", "fixed:4/365d"];
    for (unit, expected) in (1..).zip(expected) {
        assert_eq!(rule(4, unit, "anything").as_deref(), Some(expected));
    }
    for unit in [0, 99] {
        assert_eq!(rule(4, unit, "anything"), None, "an unknown unit is no limit");
        assert_eq!(rule(4, unit, "user").as_deref(), Some("fixed:5/m"), "the configuration's");
    }
    let endless = read(vec![with(u32::MAX, 1, "user")]).unwrap();
    assert_eq!(endless.found, [Found::Unlimited], "more than a rule may have");
}

#[test]
fn a_brought_limit_with_another_number_has_the_same_key() {
    let with = |requests_per_unit, unit| Descriptor {
        limit: Some(RateLimitOverride { requests_per_unit, unit }),
        ..descriptor(&[("user", "ann")])
    };
    let request = read(vec![with(7, 2), with(4, 2), with(9, 2), with(7, 3)]).unwrap();
    assert_eq!(keys(&request), ["{p}shop|user=ann|m", "{p}shop|user=ann|h"]);
    assert_eq!(request.found, [0, 0, 0, 1].map(Found::Limit));
    let rules = request.asked.iter().map(|asked| asked.limit.rules.texts().join(" "));
    assert_eq!(rules.collect::<Vec<_>>(), ["fixed:4/m", "fixed:7/h"], "the lowest decides");
}

#[test]
fn only_a_request_that_no_client_can_cause_is_refused() {
    let empty = RateLimitRequest::default();
    assert!(Request::read(&empty, &config(), "").is_err(), "no domain");
    assert!(read(vec![]).is_err(), "no descriptor");
    let one = descriptor(&[("user", "a")]);
    assert!(read(vec![one.clone(); 1024]).is_ok() && read(vec![one; 1025]).is_err());
    let deep = vec![("user", "a"); 1000];
    for odd in [descriptor(&deep), descriptor(&[("user", "")]), descriptor(&[("", "\0")])] {
        assert!(read(vec![odd]).is_ok());
    }
    assert!(read(vec![descriptor::<&str>(&[])]).is_ok(), "no entry");
}

#[test]
fn bytes_that_are_no_text_have_a_key_of_their_own() {
    let request = read(vec![descriptor(&[("user", &b"\xff"[..])])]).unwrap();
    assert_eq!(keys(&request), ["{p}shop|user=%FF"]);
    let two = [&b"\xfe"[..], "\u{fffd}".as_bytes()];
    let request = read(two.map(|value| descriptor(&[("user", value)])).to_vec()).unwrap();
    assert_eq!(keys(&request), ["{p}shop|user=%FE", "{p}shop|user=%EF%BF%BD"]);
    let long = read(vec![descriptor(&[("user", vec![0xff; 200])])]).unwrap();
    assert!(keys(&long)[0].starts_with("{p}shop|user=#"));
}

#[test]
fn no_client_chooses_a_slot_or_makes_a_key_large() {
    let request = read(vec![descriptor(&[("user", "{x}|user=ann#%\n")])]).unwrap();
    assert_eq!(keys(&request), ["{p}shop|user=%7Bx%7D%7Cuser%3Dann%23%25%0A"]);
    let request = read(vec![descriptor(&[("user", "x".repeat(60_000))])]).unwrap();
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
            let limit = serde_saphyr::from_str("{key: a, rules: ['1/s']}").unwrap();
            let limit = Limit::of(&[], &limit, &Files::default()).unwrap().unwrap();
            key("", b"shop", &descriptor(&pairs), &limit)
        };
        prop_assert_eq!(one == other, of(&one) == of(&other));
    }

    /// What clients choose is never refused: bytes of entries, and how many hits there are.
    #[test]
    fn no_bytes_of_a_client_are_refused(
        descriptors in prop::collection::vec(
            (
                prop::collection::vec((ENTRY, prop::collection::vec(any::<u8>(), 0..9)), 0..4),
                any::<Option<u64>>(),
                any::<bool>(),
                any::<Option<(u32, i32)>>(),
            ),
            1..5,
        ),
        hits_addend: u32,
    ) {
        let of = |(pairs, hits, is_negative_hits, limit): (Vec<(String, Vec<u8>)>, _, _, _)| Descriptor {
            entries: pairs.into_iter().map(|(key, value)| Entry { key: key.into(), value }).collect(),
            hits_addend: Option::map(hits, |value| UInt64Value { value }),
            is_negative_hits,
            limit: Option::map(limit, |(requests_per_unit, unit)| RateLimitOverride { requests_per_unit, unit }),
        };
        let descriptors = descriptors.into_iter().map(of).collect();
        let request = RateLimitRequest { domain: "shop".into(), descriptors, hits_addend };
        let read = Request::read(&request, &config(), "").unwrap();
        prop_assert_eq!(read.found.len(), request.descriptors.len());
        prop_assert!(read.asked.iter().all(|asked| asked.hits <= 1_000_000_000));
        let checked = read.asked.iter().filter(|asked| asked.way == Way::Check);
        let checked = checked.map(|asked| &asked.key).collect::<Vec<_>>();
        let keys = checked.iter().collect::<HashSet<_>>();
        prop_assert_eq!(keys.len(), checked.len(), "a command takes each key once");
    }
}

const ENTRY: &str = "(user|region|open|strict|hot|burst|.*)";
