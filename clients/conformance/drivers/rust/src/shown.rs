//! What the package answers, as lines of JSON have it. `None` is -1, as in the replies of the server.

use std::time::Duration;

use serde_json::{Value as Json, json};
use tower_redis_ratelimit::redis::ErrorKind;
use tower_redis_ratelimit::{
    HoldError, Reply, Report, RuleReport, is_misuse, is_outage, is_saturated,
};

/// Why a call has no result: the types do not allow it, or the package's error.
pub enum Failure {
    Cannot(String),
    Error(Json),
}

impl<E: Into<HoldError>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
        let (text, none) = (error.to_string(), Json::Null);
        let (kind, outage, report) = match &error {
            HoldError::Denied(denied) => ("Denied".to_string(), false, reply(denied)),
            HoldError::Redis(error) if is_misuse(error) => ("Misuse".to_string(), false, none),
            HoldError::Redis(error) if is_saturated(error) => {
                ("Saturated".to_string(), false, none)
            }
            HoldError::Redis(error) => match (error.kind(), error.code()) {
                (ErrorKind::Extension, Some(code)) => (code.to_string(), is_outage(error), none),
                (kind, _) => (format!("{kind:?}"), is_outage(error), none),
            },
        };
        Self::Error(json!({"kind": kind, "text": text, "outage": outage, "report": report}))
    }
}

/// The name of a variant.
pub fn name(variant: impl std::fmt::Debug) -> String {
    format!("{variant:?}").to_lowercase()
}

pub fn ms(time: Option<Duration>) -> i64 {
    time.map_or(-1, |time| time.as_nanos().div_ceil(1_000_000).try_into().unwrap_or(i64::MAX))
}

fn text(key: Option<&Vec<u8>>) -> Option<String> {
    key.map(|key| String::from_utf8_lossy(key).into_owned())
}

pub fn reply(of: &Reply) -> Json {
    let units = |number: Option<u64>| number.map_or(json!(-1), Json::from);
    let mut shown = json!({
        "verdict": name(of.verdict), "limit": units(of.limit), "remaining": units(of.remaining),
        "wait_ms": ms(of.wait), "reset_ms": ms(of.reset), "source": name(of.source),
    });
    if let Some(granted) = of.granted {
        shown["granted"] = granted.into();
    }
    shown
}

pub fn report(of: &Report) -> Json {
    let rules = of.rules.iter().map(rule).collect::<Vec<_>>();
    json!({
        "verdict": name(of.verdict), "wait_ms": ms(of.wait), "key": text(of.key.as_ref()),
        "granted": of.granted, "rules": rules, "source": name(of.source),
    })
}

fn rule(of: &RuleReport) -> Json {
    json!({
        "rule": of.rule, "name": of.name, "key": text(of.key.as_ref()), "cost": of.cost,
        "denies": of.denies, "shadow": of.shadow, "limit": of.limit, "quota": of.quota,
        "period_ms": ms(Some(of.period)), "remaining": of.remaining, "wait_ms": ms(of.wait),
        "next_ms": ms(of.next), "reset_ms": ms(of.reset),
    })
}
