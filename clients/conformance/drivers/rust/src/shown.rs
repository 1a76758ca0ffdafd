//! What the package answers, as lines of JSON have it. `None` is -1, as in the replies of the server.

use std::time::Duration;

use serde_json::{Value as Json, json};
use tower_redis_ratelimit::redis::{ErrorKind, RedisError};
use tower_redis_ratelimit::{
    HoldError, Reply, Report, RuleReport, Taken, is_misuse, is_outage, is_saturated,
};

pub fn ms(time: Option<Duration>) -> Json {
    time.map_or(json!(-1), |time| {
        u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).into()
    })
}

fn units(number: Option<u64>) -> Json {
    number.map_or(json!(-1), Json::from)
}

/// The name of a variant.
pub fn name(variant: impl std::fmt::Debug) -> String {
    format!("{variant:?}").to_lowercase()
}

pub fn reply(reply: &Reply) -> Json {
    let mut shown = json!({
        "verdict": name(reply.verdict), "limit": units(reply.limit), "remaining": units(reply.remaining),
        "wait_ms": ms(reply.wait), "reset_ms": ms(reply.reset), "source": name(reply.source),
    });
    if let Some(granted) = reply.granted {
        shown["granted"] = granted.into();
    }
    shown
}

pub fn taken(taken: &Taken) -> Json {
    json!({"verdict": name(taken.verdict), "wait_ms": ms(taken.wait), "source": name(taken.source)})
}

pub fn report(report: &Report) -> Json {
    let mut shown = json!({
        "verdict": name(report.verdict), "wait_ms": ms(report.wait), "key": text(report.key.as_deref()),
        "rules": report.rules.iter().map(rule).collect::<Vec<_>>(), "source": name(report.source),
    });
    if let Some(granted) = report.granted {
        shown["granted"] = granted.into();
    }
    shown
}

fn rule(rule: &RuleReport) -> Json {
    json!({
        "rule": rule.rule, "name": rule.name, "key": text(rule.key.as_deref()), "cost": rule.cost,
        "denies": rule.denies, "shadow": rule.shadow, "limit": rule.limit, "quota": rule.quota,
        "period_ms": ms(Some(rule.period)), "remaining": rule.remaining, "wait_ms": ms(rule.wait),
        "next_ms": ms(rule.next), "reset_ms": ms(rule.reset),
    })
}

fn text(key: Option<&[u8]>) -> Json {
    key.map_or(Json::Null, |key| String::from_utf8_lossy(key).into())
}

pub fn failed(error: &HoldError) -> Json {
    match error {
        HoldError::Denied(denied) => {
            json!({"kind": "Denied", "text": error.to_string(), "outage": false, "report": reply(denied)})
        }
        HoldError::Redis(error) => {
            json!({"kind": kind(error), "text": error.to_string(), "outage": is_outage(error)})
        }
    }
}

/// The kind, or for kinds that `redis` does not have the code.
fn kind(error: &RedisError) -> String {
    match (error.kind(), error.code()) {
        _ if is_misuse(error) => "Misuse".to_string(),
        _ if is_saturated(error) => "Saturated".to_string(),
        (ErrorKind::Extension, Some(code)) => code.to_string(),
        (kind, _) => format!("{kind:?}"),
    }
}
