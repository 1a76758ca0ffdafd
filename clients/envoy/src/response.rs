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

/// The names of the fields by which clients are told their limit.
pub struct FieldNames {
    pub limit: String,
    pub remaining: String,
    pub reset: String,
}

pub fn of(request: &Request, decision: &Decision, names: Option<&FieldNames>) -> RateLimitResponse {
    let status = |found: &Found| match found {
        Found::Nothing => code(Code::Ok),
        Found::Unlimited => DescriptorStatus { limit_remaining: u32::MAX, ..code(Code::Ok) },
        Found::Limit(place) => {
            let found = request.asked.get(*place).zip(decision.outcomes.get(*place));
            found.map_or_else(|| code(Code::Ok), |(asked, outcome)| of_limit(asked, outcome))
        }
    };
    let overall = if decision.is_allowed { Code::Ok } else { Code::OverLimit };
    RateLimitResponse {
        overall_code: overall.into(),
        statuses: request.found.iter().map(status).collect(),
        response_headers_to_add: fields(decision, names),
        ..RateLimitResponse::default()
    }
}

fn code(code: Code) -> DescriptorStatus {
    DescriptorStatus { code: code.into(), ..DescriptorStatus::default() }
}

fn of_limit(asked: &Asked, outcome: &Outcome) -> DescriptorStatus {
    let Outcome { is_denied, rule, wait, .. } = outcome;
    let reset = if *is_denied { *wait } else { rule.as_ref().and_then(|rule| rule.reset) };
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

/// Whole seconds, because Envoy tells clients no fractions: it cuts them off.
fn duration(time: Duration) -> protobuf::Duration {
    protobuf::Duration { seconds: seconds(time).cast_signed(), nanos: 0 }
}

fn remaining(rule: &RuleReport) -> u32 {
    u32::try_from(rule.remaining).unwrap_or(u32::MAX)
}

/// The `Retry-After` of a denial, and the fields about the limit with the fewest units left.
fn fields(decision: &Decision, names: Option<&FieldNames>) -> Vec<HeaderValue> {
    let mut fields = Vec::new();
    let mut add = |key: &str, value: u64| {
        let (key, value) = (key.to_string(), value.to_string());
        fields.push(HeaderValue { key, value, ..HeaderValue::default() });
    };
    let is_it = |outcome: &&Outcome| decision.is_allowed || outcome.is_denied;
    let rules = decision.outcomes.iter().filter(is_it).filter_map(|outcome| outcome.rule.as_ref());
    if let Some((rule, names)) = rules.min_by_key(|rule| rule.remaining).zip(names) {
        add(&names.limit, rule.limit);
        add(&names.remaining, if decision.is_allowed { rule.remaining } else { 0 });
        if let Some(reset) = rule.reset {
            add(&names.reset, seconds(reset));
        }
    }
    if let Some(wait) = decision.wait().filter(|_| !decision.is_allowed) {
        add("Retry-After", seconds(wait));
    }
    fields
}

/// The time, rounded up, so that a client that waits this long passes.
fn seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}
