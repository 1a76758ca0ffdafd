//! The response to Envoy. It names no key.

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::HeaderValue;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use envoy_types::pb::google::protobuf;
use tower_redis_ratelimit::RuleReport;

use crate::config::unit_of;
use crate::decision::{Decision, Outcome};
use crate::request::{Asked, Found, Request};

pub fn of(request: &Request, decision: &Decision, has_fields: bool) -> RateLimitResponse {
    let status = |found: &Found| match found {
        Found::Nothing => code(Code::Ok),
        Found::Unlimited => DescriptorStatus { limit_remaining: u32::MAX, ..code(Code::Ok) },
        Found::Limit(place) => {
            request.asked.get(*place).zip(decision.outcomes.get(*place)).map_or_else(
                || code(Code::Ok),
                |(asked, outcome)| of_limit(asked, outcome, decision.wait),
            )
        }
    };
    let overall = if decision.is_allowed { Code::Ok } else { Code::OverLimit };
    RateLimitResponse {
        overall_code: overall.into(),
        statuses: request.found.iter().map(status).collect(),
        response_headers_to_add: fields(decision, has_fields),
        ..RateLimitResponse::default()
    }
}

fn code(code: Code) -> DescriptorStatus {
    DescriptorStatus { code: code.into(), ..DescriptorStatus::default() }
}

fn of_limit(asked: &Asked, outcome: &Outcome, wait: Option<Duration>) -> DescriptorStatus {
    let Outcome { is_denied, rule, .. } = outcome;
    let reset = if *is_denied { wait } else { rule.as_ref().and_then(|rule| rule.reset) };
    DescriptorStatus {
        current_limit: rule.as_ref().map(|rule| RateLimit {
            name: asked.limit.name.clone(),
            requests_per_unit: u32::try_from(rule.quota).unwrap_or(u32::MAX),
            unit: unit_of(rule.period).into(),
        }),
        limit_remaining: if *is_denied { 0 } else { rule.as_ref().map_or(0, remaining) },
        duration_until_reset: reset.map(duration),
        ..code(if *is_denied { Code::OverLimit } else { Code::Ok })
    }
}

fn duration(time: Duration) -> protobuf::Duration {
    let (seconds, nanos) = (time.as_secs(), time.subsec_nanos());
    protobuf::Duration { seconds: seconds.cast_signed(), nanos: nanos.cast_signed() }
}

fn remaining(rule: &RuleReport) -> u32 {
    u32::try_from(rule.remaining).unwrap_or(u32::MAX)
}

/// The `Retry-After` of a denial, and the fields about the limit with the fewest units left.
fn fields(decision: &Decision, has_fields: bool) -> Vec<HeaderValue> {
    let mut fields = Vec::new();
    let mut add = |key: &str, value: u64| {
        let (key, value) = (key.to_string(), value.to_string());
        fields.push(HeaderValue { key, value, ..HeaderValue::default() });
    };
    let is_it = |outcome: &&Outcome| decision.is_allowed || outcome.is_denied;
    let rules = decision.outcomes.iter().filter(is_it).filter_map(|outcome| outcome.rule.as_ref());
    if let Some(rule) = rules.min_by_key(|rule| rule.remaining).filter(|_| has_fields) {
        add("RateLimit-Limit", rule.limit);
        add("RateLimit-Remaining", if decision.is_allowed { rule.remaining } else { 0 });
        if let Some(reset) = rule.reset {
            add("RateLimit-Reset", seconds(reset));
        }
    }
    if let Some(wait) = decision.wait.filter(|_| !decision.is_allowed) {
        add("Retry-After", seconds(wait));
    }
    fields
}

/// The time, rounded up, so that a client that waits this long passes.
fn seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}
