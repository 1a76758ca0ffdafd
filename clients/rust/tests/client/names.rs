//! Each thing has one name in all languages.

use std::collections::BTreeSet;

use serde_json::Value;
use tower_redis_ratelimit::{
    DecisionEvent, LeaseOptions, MisconfiguredEvent, OutageEvent, Reply, Report, RuleReport,
};

/// The names of a struct's public fields. The compiler checks that none is missing.
macro_rules! fields {
    ($struct:ident { $($field:ident),* }) => {{
        let _ = |$struct { $($field: _),* }: $struct| ();
        vec![$(stringify!($field)),*]
    }};
}

#[test]
fn names_are_the_same_in_all_languages() {
    let names: Value =
        serde_json::from_str(include_str!("../../../conformance/names.json")).unwrap();
    let of = |kind: &str| {
        let names = names[kind].as_array().unwrap().iter().map(|name| name.as_str().unwrap());
        names.map(|name| name.trim_end_matches("_ms").to_string()).collect::<BTreeSet<_>>()
    };
    for (kind, fields) in [
        ("lease", fields!(LeaseOptions { ttl, most })),
        ("reply", fields!(Reply { verdict, limit, remaining, wait, reset, granted, source })),
        ("report", fields!(Report { verdict, wait, key, granted, rules, source })),
        (
            "rule_report",
            fields!(RuleReport {
                rule,
                name,
                key,
                cost,
                denies,
                shadow,
                limit,
                quota,
                period,
                remaining,
                wait,
                next,
                reset
            }),
        ),
        ("outage_event", fields!(OutageEvent { away, node, error, answered })),
        ("decision_event", fields!(DecisionEvent { source, verdict, rule, ms })),
        ("misconfigured_event", fields!(MisconfiguredEvent { error, advice, answered })),
    ] {
        assert_eq!(of(kind), fields.into_iter().map(String::from).collect(), "{kind}");
    }
    let limiter = [
        include_str!("../../src/limiter.rs"),
        include_str!("../../src/hold.rs"),
        include_str!("../../src/waiting.rs"),
        include_str!("../../src/upstream.rs"),
        include_str!("../../src/plan.rs"),
    ];
    let layer = [include_str!("../../src/layer.rs"), include_str!("../../src/by_address.rs")];
    for (kind, sources) in [
        ("options", &[include_str!("../../src/builder.rs")][..]),
        ("commands", &limiter),
        ("hold", &[include_str!("../../src/hold.rs")]),
        ("middleware", &layer),
    ] {
        for name in of(kind) {
            // The target gives the key and the cost, and decides what to skip.
            let is_of_target = kind == "middleware" && ["key", "cost", "skip"].contains(&&*name);
            let functions = ["(", "<"].map(|end| format!(" fn {name}{end}"));
            let is_in = |source: &&str| functions.iter().any(|function| source.contains(function));
            let found = sources.iter().any(is_in);
            assert_eq!(found, !is_of_target, "{kind}: {name}");
        }
    }
}
