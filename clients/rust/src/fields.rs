//! The HTTP fields of a decision, after draft-ietf-httpapi-ratelimit-headers-11.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::{Decision, RuleDecision, Verdict};

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Adds `RateLimit-Policy` and `RateLimit`, and `Retry-After` if the request was denied and may come again.
pub fn add(decision: &Decision, headers: &mut HeaderMap) {
    // What is on trial limits nobody, so nobody is told.
    let in_force = || decision.rules.iter().filter(|rule| !rule.shadow);
    for (name, items) in [
        (POLICY, in_force().map(policy).collect::<Vec<_>>()),
        (LIMIT, in_force().map(left).collect()),
    ] {
        if !items.is_empty()
            && let Ok(value) = HeaderValue::try_from(items.join(", "))
        {
            headers.insert(name, value);
        }
    }
    if decision.verdict != Verdict::Allowed
        && let Some(wait) = decision.wait
    {
        headers.insert(RETRY_AFTER, seconds(wait).into());
    }
}

/// The body of a denial, a problem of RFC 9457.
pub fn problem(decision: &Decision) -> String {
    let denies = decision.rules.iter().filter(|rule| rule.denies && !rule.shadow);
    let names = denies.map(|rule| quoted(&rule.name)).collect::<Vec<_>>().join(", ");
    let (title, status) = match decision.verdict {
        Verdict::Blocked => ("Blocked", 403),
        Verdict::Allowed | Verdict::Limited => ("Too many requests", 429),
    };
    format!(
        r#"{{"type": "https://iana.org/assignments/http-problem-types#quota-exceeded", "title": "{title}", "status": {status}, "violated-policies": [{names}]}}"#
    )
}

fn policy(rule: &RuleDecision) -> String {
    let name = quoted(&rule.name);
    let (seconds, rest) = (rule.period.as_secs(), rule.period.subsec_nanos());
    match (seconds, rest) {
        (0, 0) => format!(r#"{name};q={};qu="concurrent-requests""#, rule.quota),
        (_, 0) => format!("{name};q={};w={seconds}", rule.quota),
        _ => format!("{name};q={}", rule.quota),
    }
}

fn left(rule: &RuleDecision) -> String {
    let until = if rule.denies { rule.wait } else { Some(rule.reset) };
    // No time is told if the request can never pass.
    let time = until.map_or(String::new(), |until| format!(";t={}", seconds(until)));
    format!("{};r={}{time}", quoted(&rule.name), rule.remaining)
}

/// Whole seconds, rounded up: a client that waits so long is not too early.
fn seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add((time.subsec_nanos() > 0).into())
}

/// A string of a structured field, which is one of JSON too.
fn quoted(name: &str) -> String {
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

    #[test]
    fn a_name_cannot_leave_its_quotes() {
        assert_eq!(quoted("a\"b\\c\r\nd é"), r#""a\"b\\cd ""#);
    }

    #[test]
    fn seconds_are_rounded_up() {
        for (ms, rounded) in [(0, 0), (1, 1), (999, 1), (1000, 1), (1001, 2)] {
            assert_eq!(seconds(Duration::from_millis(ms)), rounded, "{ms} ms");
        }
        assert_eq!(seconds(Duration::MAX), u64::MAX);
    }
}
