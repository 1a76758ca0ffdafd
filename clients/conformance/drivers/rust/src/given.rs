//! What a call gives, as the types of the package have it.

use std::time::Duration;

use crate::shown;
use http::StatusCode;
use serde_json::{Map, Value as Json, json};
use tokio::sync::mpsc::UnboundedSender;
use tower_redis_ratelimit::redis::Client;
use tower_redis_ratelimit::{
    Check, Cost, Engine, HoldError, Outage, RateLimiter, Rules, Settlement,
};

/// Why a call has no result.
pub enum Failure {
    /// The types do not allow it.
    Cannot(String),
    /// The package's error, a hold's or any other.
    Hold(HoldError),
}

impl<E: Into<HoldError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Hold(error.into())
    }
}

type Given<T> = Result<T, Failure>;

fn cannot<T>(what: &str, given: &Json) -> Given<T> {
    Err(Failure::Cannot(format!("{what}, not {given}")))
}

pub fn optional<T>(given: &Json, read: impl Fn(&Json) -> Given<T>) -> Given<Option<T>> {
    if given.is_null() { Ok(None) } else { read(given).map(Some) }
}

pub fn text(given: &Json) -> Given<String> {
    given.as_str().map_or_else(|| cannot("a String", given), |text| Ok(text.to_string()))
}

pub fn units(given: &Json) -> Given<u64> {
    given.as_u64().map_or_else(|| cannot("a u64", given), Ok)
}

pub fn millis(given: &Json) -> Given<Duration> {
    let seconds = given.as_f64().map(|ms| Duration::try_from_secs_f64(ms / 1000.0));
    seconds.and_then(Result::ok).map_or_else(|| cannot("a Duration", given), Ok)
}

pub fn status(given: &Json) -> Given<StatusCode> {
    let number = given.as_u64().and_then(|number| number.try_into().ok());
    let status = number.and_then(|number| StatusCode::from_u16(number).ok());
    status.map_or_else(|| cannot("a StatusCode", given), Ok)
}

pub fn key(call: &Json) -> Given<Vec<u8>> {
    bytes(&call["key"])
}

fn bytes(given: &Json) -> Given<Vec<u8>> {
    if given["is"] != "bytes" {
        return given.as_str().map_or_else(|| cannot("text or bytes", given), |key| Ok(key.into()));
    }
    let hex = text(&given["hex"])?;
    let byte = |at| hex.get(at..at + 2).and_then(|byte| u8::from_str_radix(byte, 16).ok());
    let bytes = (0..hex.len()).step_by(2).map(byte).collect::<Option<_>>();
    bytes.map_or_else(|| cannot("hex", given), Ok)
}

pub fn rules(given: &Json) -> Given<Rules> {
    match given {
        Json::String(rule) => Ok(rule.as_str().into()),
        Json::Array(rules) => rules.iter().map(text).collect(),
        _ => cannot("rules", given),
    }
}

pub fn cost(given: &Json) -> Given<Cost> {
    match given {
        Json::Array(range) if range.len() == 2 => {
            Ok(Cost::Range(units(&range[0])?, units(&range[1])?))
        }
        Json::Object(costs) if !given["is"].is_string() => {
            let costs = costs.iter().map(|(name, cost)| Ok((name.clone(), units(cost)?)));
            Ok(Cost::Named(costs.collect::<Given<_>>()?))
        }
        _ => Ok(Cost::Units(units(given)?)),
    }
}

pub fn settlement(call: &Json) -> Given<Settlement> {
    let cost = optional(&call["cost"], cost)?;
    Ok(match cost {
        _ if call["refund"] == true => Settlement::Refund,
        Some(cost) => Settlement::Cost(cost),
        None => Settlement::AsCharged,
    })
}

pub fn check(call: &Json) -> Given<Check> {
    let mut limits = match &call["limits"] {
        Json::Array(pairs) => pairs.clone(),
        _ => vec![json!([call["key"], call["rules"]])],
    }
    .into_iter();
    let Some(first) = limits.next() else { return cannot("at least one key", &call["limits"]) };
    let mut check = Check::new(bytes(&first[0])?, rules(&first[1])?);
    for limit in limits {
        check = check.and(bytes(&limit[0])?, rules(&limit[1])?);
    }
    if let Some(given) = optional(&call["cost"], cost)? {
        check = check.cost(given);
    }
    if let Some(meta) = optional(&call["meta"], text)? {
        check = check.meta(meta);
    }
    if let Some(id) = optional(&call["own_id"], text)? {
        check = check.id(id);
    }
    if let Some(flow) = optional(&call["flow"], text)? {
        let weight = optional(&call["weight"], number)?.unwrap_or(1);
        check = check.flow(flow, weight);
    }
    if let Some(priority) = optional(&call["priority"], number)? {
        check = check.priority(priority);
    }
    if call["call"] == "enter"
        && let Some(timeout) = optional(&call["timeout_ms"], millis)?
    {
        check = check.wait(timeout);
    }
    let check = if call["refund"] == true { check.refunding() } else { check };
    Ok(if call["most"] == true { check.most() } else { check })
}

fn number<T: TryFrom<u64>>(given: &Json) -> Given<T> {
    let number = given.as_u64().and_then(|number| number.try_into().ok());
    number.map_or_else(|| cannot("a smaller number", given), Ok)
}

pub fn limiter(call: &Json, lines: UnboundedSender<Json>) -> Given<RateLimiter> {
    let url = text(&call["url"])?;
    let mut builder = match url.strip_prefix("redis+cluster") {
        Some(rest) => RateLimiter::cluster([Client::open(format!("redis{rest}"))?]),
        None => RateLimiter::server(Client::open(url)?),
    };
    let none = Map::new();
    for (name, value) in call["options"].as_object().unwrap_or(&none) {
        builder = match &name[..] {
            "outage" => builder.outage(match value.as_str() {
                Some("raise") => Outage::Raise,
                Some("allow") => Outage::Allow,
                Some("deny") => Outage::Deny,
                Some("local") => Outage::Local,
                _ => return cannot("an Outage", value),
            }),
            "engine" => builder.engine(match value.as_str() {
                Some("module") => Engine::Module,
                Some("script") => Engine::Script,
                _ => return cannot("an Engine", value),
            }),
            "timeout_ms" => builder.timeout(millis(value)?),
            "queue_timeout_ms" => builder.queue_timeout(millis(value)?),
            "concurrency" => builder.concurrency(number::<u32>(value)? as usize),
            "processes" => builder.processes(number(value)?),
            "remember_denials" => builder.remember_denials(number::<u32>(value)? as usize),
            "separately" => match value.as_bool() {
                Some(separately) => builder.separately(separately),
                None => return cannot("a bool", value),
            },
            "policies" => {
                let policies = value.as_object().into_iter().flatten();
                let policies = policies.map(|(name, text)| Ok((name.clone(), rules(text)?)));
                builder.policies(policies.collect::<Given<Vec<_>>>()?)
            }
            _ => return cannot("an option of the Builder", &json!(name)),
        }
    }
    let (of, told) = (call["limiter"].clone(), (lines.clone(), lines.clone()));
    let name = of.clone();
    let decided = of.clone();
    let builder = builder.on_decision(move |event| {
        let (source, verdict) = (shown::name(event.source), shown::name(event.verdict));
        let _ = lines.send(json!({"event": "decision", "limiter": decided, "source": source, "verdict": verdict, "rule": event.rule, "ms": event.ms}));
    });
    let builder = builder.on_outage(move |event| {
        let error = event.error.to_string();
        let line = json!({"event": "outage", "limiter": name, "away": event.away, "node": event.node, "error": error, "answered": event.answered});
        let _ = told.0.send(line);
    });
    let builder = builder.on_misconfigured(move |event| {
        let error = event.error.to_string();
        let line = json!({"event": "misconfigured", "limiter": of, "error": error, "advice": event.advice, "answered": event.answered});
        let _ = told.1.send(line);
    });
    Ok(builder.build()?)
}
