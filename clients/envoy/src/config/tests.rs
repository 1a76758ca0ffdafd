//! The limits that a configuration sets, as the reference documents them, and every error.

use proptest::prelude::*;

use super::*;
use tower_redis_ratelimit::Engine;

fn entries(text: &str) -> Vec<Entry> {
    let pairs = text.split(' ').filter(|pair| !pair.is_empty());
    let entry = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Entry { key: key.into(), value: value.into() }
    };
    pairs.map(entry).collect()
}

fn config(text: &str) -> Result<Config> {
    let mut config = Config::default();
    config.add(text, &Files::default()).map(|()| config)
}

const SHOP: &str = "
domain: shop
descriptors:
  - key: table
    value: orders
    rate_limit: {unit: second, requests_per_unit: 500}
  - key: campaign
    value: summer
    descriptors:
      - key: phone
        rate_limit: {unit: day, requests_per_unit: 5}
  - key: phone
    rate_limit: {unit: DAY, requests_per_unit: 100}
  - key: address
    rate_limit: {unit: second, requests_per_unit: 10}
  - key: address
    value: 192.0.2.5
    rate_limit: {unit: second, requests_per_unit: 0}
  - key: directory
    value:
    rate_limit: {unlimited: true}
    descriptors:
  - key: service
    descriptors:
      - key: user
        value: ann
        rate_limit: {unit: second, requests_per_unit: 10}
        shadow_mode: true
      - key: user
        value: bob
        rate_limit: {unit: second, requests_per_unit: 20}
  - key: status
    value: 404
    rate_limit: {unit: week, requests_per_unit: 7}
  - key: path
    value: /api/*/pay
    rate_limit: {unit: minute, requests_per_unit: 2}
  - key: path
    value: /api/*
    rate_limit: {unit: month, requests_per_unit: 30}
  - key: path
    value: /api/v1/pay
    rate_limit: {unit: year, requests_per_unit: 9}
  - key: tenant
    policy: free
    descriptors:
      - key: model
        rules: ['bucket:50/s,burst=100', 'fixed:100000/d']
        lease: 20
  - key: seat
    plan: free
";

#[test]
fn each_descriptor_has_the_documented_limit() {
    let shop = config(SHOP).unwrap();
    let cases = [
        ("table=orders", Some("fixed:500/s")),
        ("table=carts", None),
        ("campaign=summer", None),
        ("campaign=summer phone=1", Some("fixed:5/d")),
        ("campaign=winter phone=1", None),
        ("phone=1", Some("fixed:100/d")),
        ("phone", Some("fixed:100/d")),
        ("address=192.0.2.1", Some("fixed:10/s")),
        ("address=192.0.2.5", Some("fixed:0/s")),
        // A descriptor has as many entries as its limit has levels.
        ("address=192.0.2.5 port=1", None),
        ("service=mail", None),
        ("directory=any", Some("")),
        ("service=mail user=ann", Some("fixed:10/s,shadow")),
        ("service=mail user=bob", Some("fixed:20/s")),
        ("service=mail user=eve", None),
        ("status=404", Some("fixed:7/w")),
        ("path=/api/v1/pay", Some("fixed:9/365d")),
        ("path=/api/v2/pay", Some("fixed:2/m")),
        ("path=/api/v2/buy", Some("fixed:30/30d")),
        ("path=/", None),
        ("tenant=a", Some("@free")),
        ("tenant=a model=b", Some("bucket:50/s,burst=100 fixed:100000/d")),
        ("seat=1", Some("@plan:free")),
        ("Table=orders", None),
        ("unknown=1", None),
        ("", None),
    ];
    for (descriptor, expected) in cases {
        let found = shop.find(b"shop", &entries(descriptor));
        let rules = found.map(|limit| limit.rules.texts().join(" "));
        assert_eq!(rules.as_deref(), expected, "{descriptor}");
    }
    assert!(shop.find(b"market", &entries("table=orders")).is_none());
    let shown = shop.to_string();
    assert!(shown.contains("shop.campaign_summer.phone: fixed:5/d\n"), "{shown}");
    assert_eq!(shown.lines().count(), 15);
}

#[test]
fn errors_name_what_is_wrong() {
    let with = |inside: &str| format!("domain: shop\ndescriptors:\n  - key: a\n    {inside}\n");
    let limit = "rate_limit: {unit: second, requests_per_unit: 1}";
    let beside = |more: &str| with(&format!("{limit}\n    {more}"));
    let cases = [
        ("domain: ''".to_string(), "the domain is empty"),
        ("descriptors: []".to_string(), "domain"),
        ("domain: shop\nlimits: []".to_string(), "limits"),
        ("domain: [".to_string(), "1"),
        (with("value: ''\n  - key: a"), "shop.a stands there twice"),
        (with("value: 'b*'\n  - key: a\n    value: 'b*'"), "shop.a_b* stands there twice"),
        ("domain: shop\ndescriptors: [{key: ''}]".to_string(), "the key is empty"),
        (
            with("rate_limit: {unit: eon, requests_per_unit: 1}"),
            "the unit is 'eon', expected second",
        ),
        (with("rate_limit: {unit: unknown, requests_per_unit: 1}"), "the unit is 'unknown'"),
        (with("rate_limit: {requests_per_unit: 1}"), "no unit"),
        (with("rate_limit: {unit: day}"), "no requests_per_unit"),
        (with("rate_limit: {unit: day, requests_per_unit: -1}"), "requests_per_unit"),
        (with("rate_limit: {unit: day, requests_per_unit: 2000000000}"), "2000000000"),
        (with("rate_limit: {unit: day, unlimited: true}"), "unlimited has a unit"),
        (
            with("rate_limit: {unit: day, requests_per_unit: 1, name: x, replaces: [{name: x}]}"),
            "its own name, 'x'",
        ),
        (
            with("rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: ''}]}"),
            "an empty name",
        ),
        (beside("quota_mode: true"), "shop.a: quota_mode is not supported"),
        (beside("detailed_metric: true"), "detailed_metric is not supported"),
        (beside("value_to_metric: true"), "value_to_metric is not supported"),
        (beside("share_threshold: true"), "share_threshold is not supported"),
        (beside("metadata: {x: 1}"), "metadata is not supported"),
        (beside("policy: free"), "rate_limit, rules, policy, plan: expected one"),
        (with("shadow_mode: true"), "need a limit"),
        (with("policy: free\n    shadow_mode: true"), "cannot be in shadow_mode"),
        (with("policy: ''"), "no name of a policy"),
        (with("rules: ['5/x']"), "5/x"),
        (with("rules: ['5/s', '5/s']"), "same identity"),
        (with("rules: ['fixed:10/h fixed:9/d']"), "fixed:10/h fixed:9/d"),
        (with("rules: [' 5/s']"), "' 5/s'"),
        (with("rules: ['5/s ']"), "'5/s '"),
        (with("rules: ['']"), "'' is no rule"),
        (with("rules: ['COST', '5', '1/s']"), "'COST' is no rule"),
        (with("rules: []"), "rules is empty"),
        (with("rules: ['5/s']\n    all_or_nothing: true"), "all_or_nothing is for rate_limit"),
        (with("all_or_nothing: true"), "need a limit"),
        (with("rules: ['slots:5']"), "but Envoy does not report that"),
        (with("rules: ['leaky:5/s']"), "under a leaky rule"),
        (format!("{}\n    lease: 5", beside("shadow_mode: true").trim_end()), "needs no lease"),
        (beside("lease: 0"), "lease is 0, expected 1 to 1000000"),
        (beside("lease: 1000001"), "expected 1 to 1000000"),
    ];
    for (text, expected) in cases {
        let error = format!("{:#}", config(&text).unwrap_err());
        assert!(error.contains(expected), "{text}\n{error}");
    }
    for of_module in
        ["policy: free", "plan: free", "rules: ['5/s']\n    lease: 5", "rules: ['5/s,ban=1m']"]
    {
        let by_script = Files { engine: Engine::Script, ..Files::default() };
        let error = Config::default().add(&with(of_module), &by_script).unwrap_err();
        assert!(format!("{error:#}").contains("the module, not the script"), "{error:#}");
    }
}

#[test]
fn files_share_a_domain_only_if_enabled() {
    let mut two = config("domain: shop\ndescriptors: [{key: a, rules: ['1/s']}]").unwrap();
    let more = "domain: shop\ndescriptors: [{key: b, rules: ['2/s']}]";
    let merging = Files { merge_domain_config: true, ..Files::default() };
    assert!(two.add(more, &Files::default()).is_err());
    two.add(more, &merging).unwrap();
    assert!(
        two.find(b"shop", &entries("a=1")).is_some()
            && two.find(b"shop", &entries("b=1")).is_some()
    );
    assert!(two.add(more, &merging).is_err(), "twice");
}

#[test]
fn without_a_server_the_bounds_are_those_of_its_default_settings() {
    let many = |number: u32| (1..=number).map(|n| format!("'{n}/{n}m'")).collect::<Vec<_>>();
    let of = |rules: &str| {
        let config = config(&format!("domain: a\ndescriptors: [{{key: a, rules: [{rules}]}}]"));
        config.unwrap().rules().try_for_each(|(_, rules)| within_defaults(rules))
    };
    assert!(of(&many(32).join(",")).is_ok() && of("'100000/h'").is_ok());
    for (rules, expected) in [(many(33).join(","), "33 rules"), ("'100001/h'".into(), "max-log")] {
        assert!(of(&rules).unwrap_err().to_string().contains(expected), "{rules}");
    }
    assert!(of("'window:100001/h'").is_ok());
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text: String) {
        let _ = config(&text);
    }

    /// Lines of configuration files, in any order.
    #[test]
    fn no_file_makes_it_panic(lines in prop::collection::vec((0_usize..4, 0..LINES.len()), 0..40)) {
        let line = |(depth, at): (usize, usize)| format!("{}{}\n", "  ".repeat(depth), LINES[at]);
        let text = lines.into_iter().map(line).collect::<String>();
        if let Ok(config) = config(&text) {
            for descriptor in ["key=a", "key=value", "value=* key=b"] {
                config.find(b"shop", &entries(descriptor));
            }
        }
    }
}

const LINES: [&str; 16] = [
    "domain: shop",
    "descriptors:",
    "- key: a",
    "- key: 'b'",
    "value: v*",
    "value: '**'",
    "rate_limit:",
    "unit: second",
    "unit: year",
    "requests_per_unit: 5",
    "unlimited: true",
    "rules: ['5/s', '9/h']",
    "policy: free",
    "shadow_mode: yes",
    "lease: 5",
    "&a [*a, <<: *a]",
];
