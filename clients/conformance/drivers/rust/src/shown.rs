//! What the package answers, as lines of JSON have it. `None` is -1, as in the replies of the server.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value as Json, json};
use tower_redis_ratelimit::redis::ErrorKind;
use tower_redis_ratelimit::{
    HoldError, Reply, Report, RuleReport, is_misuse, is_outage, is_saturated,
};

/// Why a call has no result: the types do not allow it, or the package's error.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Failure {
    Cannot(String),
    Error(Json),
}

impl<E: Into<HoldError>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
        let mut shown = json!({"text": error.to_string(), "outage": false});
        match &error {
            HoldError::Denied(denied) => {
                (shown["kind"], shown["report"]) = ("Denied".into(), reply(denied));
            }
            HoldError::Redis(error) => {
                shown["outage"] = is_outage(error).into();
                shown["kind"] = match (error.kind(), error.code()) {
                    _ if is_misuse(error) => "Misuse".into(),
                    _ if is_saturated(error) => "Saturated".into(),
                    (ErrorKind::Extension, Some(code)) => code.into(),
                    (kind, _) => format!("{kind:?}").into(),
                };
            }
        }
        Self::Error(shown)
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
