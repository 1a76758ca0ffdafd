//! What a call gives. What the types of the package do not allow cannot be read.

use std::{collections::BTreeMap, time::Duration};

use serde::de::DeserializeOwned;
use serde_json::{Value as Json, from_value, json};
use tower_redis_ratelimit::redis::Client;
use tower_redis_ratelimit::{Check, Cost, Engine, Outage, RateLimiter, Rules};

use crate::shown::{Failure, name};

type Given<T> = Result<T, Failure>;

pub fn get<T: DeserializeOwned>(given: &Json) -> Given<T> {
    from_value(given.clone()).map_err(|error| Failure::Cannot(error.to_string()))
}

/// What a call may leave out.
pub fn some<T>(given: &Json, read: impl Fn(&Json) -> Given<T>) -> Given<Option<T>> {
    if given.is_null() { Ok(None) } else { read(given).map(Some) }
}

pub fn time(given: &Json) -> Given<Duration> {
    let time = Duration::try_from_secs_f64(get::<f64>(given)? / 1000.0);
    time.map_err(|error| Failure::Cannot(error.to_string()))
}

pub fn key(given: &Json) -> Given<Vec<u8>> {
    let Some(hex) = given["hex"].as_str() else { return Ok(get::<String>(given)?.into()) };
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
    Ok((0..hex.len()).step_by(2).map(byte).collect())
}

pub fn rules(given: &Json) -> Given<Rules> {
    if given.is_string() {
        get::<String>(given).map(Rules::from)
    } else {
        get::<Vec<String>>(given).map(Rules::from)
    }
}

pub fn cost(given: &Json) -> Given<Cost> {
    Ok(match given {
        Json::Array(_) => get::<(u64, u64)>(given).map(|(least, most)| Cost::Range(least, most))?,
        Json::Object(_) => Cost::Named(get::<BTreeMap<_, _>>(given)?.into_iter().collect()),
        _ => Cost::Units(get(given)?),
    })
}

pub fn check(call: &Json) -> Given<Check> {
    let one = vec![(call["key"].clone(), call["rules"].clone())];
    let limits = some(&call["limits"], get::<Vec<(Json, Json)>>)?.unwrap_or(one);
    let limits = limits.iter().map(|(name, given)| Ok((key(name)?, rules(given)?)));
    let mut limits = limits.collect::<Given<Vec<_>>>()?.into_iter();
    let first = limits.next().ok_or_else(|| Failure::Cannot("a check without keys".to_string()))?;
    let mut check = limits.fold(Check::from(first), |all, (key, rules)| all.and(key, rules));
    check = check.cost(some(&call["cost"], cost)?.unwrap_or(Cost::Units(1)));
    check = check.priority(some(&call["priority"], get)?.unwrap_or(0));
    if let Some(meta) = some(&call["meta"], get::<String>)? {
        check = check.meta(meta);
    }
    if let Some(id) = some(&call["own_id"], get::<String>)? {
        check = check.id(id);
    }
    if let Some(flow) = some(&call["flow"], get::<String>)? {
        check = check.flow(flow, some(&call["weight"], get)?.unwrap_or(1));
    }
    if let (Some(timeout), true) = (some(&call["timeout_ms"], time)?, call["call"] == "enter") {
        check = check.wait(timeout);
    }
    let check = if call["refund"] == true { check.refunding() } else { check };
    Ok(if call["most"] == true { check.most() } else { check })
}

pub fn limiter(call: &Json) -> Given<RateLimiter> {
    let url = some(&call["url"], get::<String>)?;
    let mut made = match url.as_deref().map(|url| (url, url.strip_prefix("redis+cluster"))) {
        None => return Ok(RateLimiter::in_process(policies(&call["options"]["policies"])?)?),
        Some((_, Some(rest))) => RateLimiter::cluster([Client::open(format!("redis{rest}"))?]),
        Some((url, None)) => RateLimiter::server(Client::open(url)?),
    };
    for (name, value) in call["options"].as_object().into_iter().flatten() {
        made = match &name[..] {
            "outage" => {
                let all = [Outage::Raise, Outage::Allow, Outage::Deny, Outage::Local];
                made.outage(variant(value, &all)?)
            }
            "engine" => made.engine(variant(value, &[Engine::Module, Engine::Script])?),
            "timeout_ms" => made.timeout(time(value)?),
            "queue_timeout_ms" => made.queue_timeout(time(value)?),
            "concurrency" => made.concurrency(get(value)?),
            "processes" => made.processes(get(value)?),
            "remember_denials" => made.remember_denials(get(value)?),
            "separately" => made.separately(get(value)?),
            "policies" => made.policies(policies(value)?),
            _ => return Err(Failure::Cannot(format!("there is no option {name}"))),
        };
    }
    let tell = |kind: &'static str| {
        let limiter = call["limiter"].clone();
        move |mut line: Json| {
            (line["event"], line["limiter"]) = (kind.into(), limiter.clone());
            println!("{line}");
        }
    };
    let [outage, misconfigured, decision] = ["outage", "misconfigured", "decision"].map(tell);
    let made = made.on_outage(move |e| {
        let error = e.error.to_string();
        outage(json!({"away": e.away, "node": e.node, "error": error, "answered": e.answered}));
    });
    let made = made.on_misconfigured(move |e| {
        let error = e.error.to_string();
        misconfigured(json!({"error": error, "advice": e.advice, "answered": e.answered}));
    });
    let made = made.on_decision(move |e| {
        let (source, verdict) = (name(e.source), name(e.verdict));
        decision(json!({"source": source, "verdict": verdict, "rule": e.rule, "ms": e.ms}));
    });
    Ok(made.build()?)
}

fn policies(given: &Json) -> Given<Vec<(String, Rules)>> {
    let all = get::<BTreeMap<String, Json>>(given)?.into_iter();
    all.map(|(name, texts)| Ok((name, rules(&texts)?))).collect()
}

fn variant<T: Copy + std::fmt::Debug>(given: &Json, all: &[T]) -> Given<T> {
    let found = all.iter().find(|one| *given == name(**one));
    found.copied().ok_or_else(|| Failure::Cannot(format!("there is no {given}")))
}
