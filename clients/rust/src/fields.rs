//! The HTTP fields of a report.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue};

use crate::reply::{Report, RuleReport};

/// Which fields tell a client its limits, beside `Retry-After`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Headers {
    /// `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-11.
    #[default]
    Draft11,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, in seconds from now.
    Legacy,
    /// None.
    None,
}

/// Adds the fields, and `Retry-After` if the request was denied and may come again.
pub fn add(report: &Report, headers: Headers, fields: &mut HeaderMap) {
    match headers {
        Headers::Draft11 => {
            // A rule on trial limits nobody, so no client is told of it.
            let rules = report.rules.iter().filter(|rule| !rule.shadow);
            let (policies, limits): (Vec<_>, Vec<_>) =
                rules.map(|rule| (policy(rule), left(rule))).unzip();
            for (name, rules) in [("ratelimit-policy", policies), ("ratelimit", limits)] {
                if let Some(value) = value(rules.join(", ")) {
                    // Appended, because an inner layer may have added fields for other rules.
                    fields.append(name, value);
                }
            }
        }
        Headers::Legacy => {
            if let Some(rule) = report.deciding() {
                insert(fields, "x-ratelimit-limit", rule.limit.to_string());
                insert(fields, "x-ratelimit-remaining", rule.remaining.to_string());
                let reset = rule.reset.map_or(String::new(), |reset| seconds(reset).to_string());
                insert(fields, "x-ratelimit-reset", reset);
            }
        }
        Headers::None => {}
    }
    if let Some(wait) = report.wait.filter(|_| !report.is_allowed()) {
        fields.insert(RETRY_AFTER, seconds(wait).into());
    }
}

fn insert(fields: &mut HeaderMap, name: &'static str, text: String) {
    if let Some(value) = value(text) {
        fields.insert(name, value);
    }
}

fn value(text: String) -> Option<HeaderValue> {
    HeaderValue::try_from(text).ok().filter(|value| !value.is_empty())
}

fn policy(rule: &RuleReport) -> String {
    let name = quoted(rule.label());
    let (seconds, rest) = (rule.period.as_secs(), rule.period.subsec_nanos());
    match (seconds, rest) {
        (0, 0) => format!(r#"{name};q={};qu="concurrent-requests""#, rule.quota),
        (_, 0) => format!("{name};q={};w={seconds}", rule.quota),
        _ => format!("{name};q={}", rule.quota),
    }
}

fn left(rule: &RuleReport) -> String {
    // The time until more units remain. It is omitted if nothing is consumed, or no wait helps.
    let until = if rule.denies { rule.wait } else { rule.next.filter(|next| !next.is_zero()) };
    let time = until.map_or(String::new(), |until| format!(";t={}", seconds(until)));
    format!("{};r={}{time}", quoted(rule.label()), rule.remaining)
}

/// Whole seconds, rounded up: a client that waits that long is not too early.
fn seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add((time.subsec_nanos() > 0).into())
}

/// A string of a structured field, which is also a string of JSON.
pub fn quoted(name: &str) -> String {
    let mut text = String::from('"');
    for char in name.chars().filter(|char| char.is_ascii_graphic() || *char == ' ') {
        if matches!(char, '"' | '\\') {
            text.push('\\');
        }
        text.push(char);
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::{Answer, Source};
    use redis::{FromRedisValue, Value};
    use serde_json::Value as Json;

    /// A reply of the server, written as JSON.
    fn sent(json: &Json) -> Value {
        match json {
            Json::Number(number) => Value::Int(number.as_i64().unwrap()),
            Json::String(text) => Value::BulkString(text.clone().into_bytes()),
            Json::Array(items) => Value::Array(items.iter().map(sent).collect()),
            Json::Object(fields) => {
                let pair = |(name, value): (&String, &Json)| {
                    (Value::BulkString(name.clone().into_bytes()), sent(value))
                };
                Value::Map(fields.iter().map(pair).collect())
            }
            Json::Null | Json::Bool(_) => Value::Nil,
        }
    }

    #[test]
    fn all_clients_tell_the_same_fields() {
        let all: Json = serde_json::from_str(include_str!("../../cases/fields.json")).unwrap();
        for case in all["cases"].as_array().unwrap() {
            let report = Report::from_redis_value(sent(&case["reply"])).unwrap();
            let choices = [
                ("draft-11", Headers::Draft11),
                ("legacy", Headers::Legacy),
                ("none", Headers::None),
            ];
            for (name, headers) in choices {
                let mut fields = HeaderMap::new();
                add(&report, headers, &mut fields);
                let told = fields
                    .iter()
                    .map(|(name, value)| (name.to_string(), Json::from(value.to_str().unwrap())));
                let expected = case[name].as_object().unwrap();
                assert_eq!(told.collect::<serde_json::Map<_, _>>(), *expected, "{name}: {case}");
            }
        }
    }

    #[test]
    fn a_name_cannot_leave_its_quotes() {
        assert_eq!(quoted("a\"b\\c\r\nd é"), r#""a\"b\\cd ""#);
    }

    fn rule(denies: bool, [wait, next]: [Option<u64>; 2]) -> RuleReport {
        RuleReport {
            rule: "5/m".to_string(),
            name: None,
            key: None,
            cost: 1,
            denies,
            shadow: false,
            limit: 5,
            quota: 5,
            period: Duration::from_secs(60),
            remaining: 2,
            wait: wait.map(Duration::from_millis),
            next: next.map(Duration::from_millis),
            reset: Some(Duration::from_secs(60)),
        }
    }

    #[test]
    fn a_client_is_told_of_the_rules_of_every_layer() {
        let (mut fields, mut report) = (HeaderMap::new(), Report::passed(Source::Server));
        for name in ["inner", "outer"] {
            let name = Some(name.to_string());
            report.rules = vec![RuleReport { name, ..rule(false, [Some(0), Some(0)]) }];
            add(&report, Headers::Draft11, &mut fields);
        }
        for (name, told) in [
            ("ratelimit-policy", [r#""inner";q=5;w=60"#, r#""outer";q=5;w=60"#]),
            ("ratelimit", [r#""inner";r=2"#, r#""outer";r=2"#]),
        ] {
            assert_eq!(fields.get_all(name).iter().collect::<Vec<_>>(), told, "{name}");
        }
    }

    #[test]
    fn a_client_is_told_when_more_is_left() {
        for (denies, times, time) in [
            (false, [Some(0), Some(12_001)], ";t=13"),
            (false, [Some(0), Some(0)], ""),
            (false, [Some(0), None], ""),
            (true, [Some(30_000), Some(1)], ";t=30"),
            (true, [None, Some(1)], ""),
        ] {
            assert_eq!(left(&rule(denies, times)), format!(r#""5/m";r=2{time}"#));
        }
    }

    #[test]
    fn seconds_are_rounded_up() {
        for (ms, rounded) in [(0, 0), (1, 1), (999, 1), (1000, 1), (1001, 2)] {
            assert_eq!(seconds(Duration::from_millis(ms)), rounded, "{ms} ms");
        }
        assert_eq!(seconds(Duration::MAX), u64::MAX);
    }
}
