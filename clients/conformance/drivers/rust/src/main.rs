//! The driver of the package for Rust: see `clients/conformance/README.md`.

mod given;
mod shown;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use given::{Failure, check, key, limiter, millis, optional, status, text, units};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value as Json, json};
use shown::{failed, ms, reply, report, taken};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tower_redis_ratelimit::{Hold, Lease, LeaseOptions, RateLimiter};

/// What calls have made, by name.
#[derive(Default)]
struct Made {
    limiters: Mutex<HashMap<String, RateLimiter>>,
    holds: Mutex<HashMap<String, Hold>>,
    leases: Mutex<HashMap<String, Arc<Lease>>>,
    tasks: Mutex<HashMap<u64, AbortHandle>>,
}

#[tokio::main]
async fn main() {
    let (lines, mut written) = unbounded_channel::<Json>();
    let writer = tokio::spawn(async move {
        while let Some(line) = written.recv().await {
            println!("{line}");
        }
    });
    lines.send(json!({"driver": "rust", "can": ["cancel"]})).expect("the writer lives");
    let made = Arc::new(Made::default());
    let mut calls = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = calls.next_line().await.expect("lines of text") {
        let call: Json = serde_json::from_str(&line).expect("lines of JSON");
        let id = call["id"].as_u64().expect("an id");
        let asking = tokio::spawn(answer(Arc::clone(&made), call, lines.clone()));
        made.tasks.lock().unwrap().insert(id, asking.abort_handle());
        let (made, lines) = (Arc::clone(&made), lines.clone());
        tokio::spawn(async move {
            let mut line = asking.await.unwrap_or_else(|error| {
                json!({"error": {"kind": "Cancelled", "text": error.to_string(), "outage": false}})
            });
            made.tasks.lock().unwrap().remove(&id);
            line["id"] = id.into();
            let _ = lines.send(line);
        });
    }
    drop((made, lines));
    writer.await.expect("no panic");
}

async fn answer(made: Arc<Made>, call: Json, lines: UnboundedSender<Json>) -> Json {
    match made.call(&call, lines).await {
        Ok(result) => json!({"result": result}),
        Err(Failure::Cannot(why)) => json!({"cannot": why}),
        Err(Failure::Hold(error)) => json!({"error": failed(&error)}),
    }
}

impl Made {
    async fn call(&self, call: &Json, lines: UnboundedSender<Json>) -> Result<Json, Failure> {
        let name = call["call"].as_str().unwrap_or_default();
        match name {
            "limiter" => {
                let made = limiter(call, lines)?;
                self.limiters.lock().unwrap().insert(text(&call["limiter"])?, made);
                return Ok(Json::Null);
            }
            "cancel" => {
                let of = call["of"].as_u64().unwrap_or_default();
                if let Some(task) = self.tasks.lock().unwrap().get(&of) {
                    task.abort();
                }
                return Ok(Json::Null);
            }
            "close" => {
                let limiter = self.limiters.lock().unwrap().remove(&text(&call["limiter"])?);
                if let Some(limiter) = limiter {
                    limiter.close().await;
                }
                return Ok(Json::Null);
            }
            "leave" | "hold_settle" | "hold_refund" | "lost" => {
                return self.of_hold(name, call).await;
            }
            "take" | "give_up" => return self.of_lease(name, call).await,
            _ => {}
        }
        let limiter = self.limiters.lock().unwrap().get(&text(&call["limiter"])?).cloned();
        let limiter = limiter.ok_or_else(|| Failure::Cannot("no such limiter".to_string()))?;
        let id = || text(&call["own_id"]);
        Ok(match name {
            "check" => reply(&limiter.check(check(call)?).await?),
            "peek" => reply(&limiter.peek(check(call)?).await?),
            "check_all" => report(&limiter.check_all(check(call)?).await?),
            "check_any" => report(&limiter.check_any(check(call)?).await?),
            "peek_all" => report(&limiter.peek_all(check(call)?).await?),
            "wait" => reply(&limiter.wait(check(call)?, millis(&call["timeout_ms"])?).await?),
            "enter" => {
                let hold = limiter.hold(check(call)?, millis(&call["ttl_ms"])?).await?;
                let answer = reply(hold.reply());
                self.holds.lock().unwrap().insert(text(&call["hold"])?, hold);
                answer
            }
            "settle" => {
                let settled = limiter.settle(key(call)?, &id()?, given::settlement(call)?).await?;
                settled.into()
            }
            "renew" => limiter.renew(key(call)?, &id()?, millis(&call["ttl_ms"])?).await?.into(),
            "refund" => {
                let rules = optional(&call["rules"], given::rules)?.unwrap_or_default();
                limiter.refund(key(call)?, units(&call["units"])?, rules).await?.into()
            }
            "reset" => {
                limiter.reset(key(call)?).await?;
                Json::Null
            }
            "resume" => limiter.resume(key(call)?).await?.into(),
            "unplan" => limiter.unplan(key(call)?).await?.into(),
            "pause" => {
                let (time, reason) = (millis(&call["time_ms"])?, call["reason"].as_str());
                ms(Some(limiter.pause(key(call)?, time, reason).await?))
            }
            "plan" => {
                let time = optional(&call["time_ms"], millis)?;
                limiter.plan(key(call)?, &text(&call["policy"])?, time).await?;
                Json::Null
            }
            "sync" => {
                let (remaining, rule) = (units(&call["remaining"])?, text(&call["rule"])?);
                limiter.sync(key(call)?, remaining, &rule).await?.into()
            }
            "follow" => follow(&limiter, call).await?,
            "lease" => {
                let mut options = LeaseOptions::default();
                options.ttl = optional(&call["ttl_ms"], millis)?.unwrap_or(options.ttl);
                options.most = optional(&call["most"], units)?.unwrap_or(options.most);
                let lease =
                    Lease::with(limiter, key(call)?, given::rules(&call["rules"])?, options)?;
                self.leases.lock().unwrap().insert(text(&call["lease"])?, Arc::new(lease));
                Json::Null
            }
            "state" => json!({"away": limiter.away(), "outages": limiter.outages()}),
            _ => return Err(Failure::Cannot(format!("there is no {name}"))),
        })
    }

    async fn of_hold(&self, name: &str, call: &Json) -> Result<Json, Failure> {
        let hold = text(&call["hold"])?;
        let missing = || Failure::Cannot("no such hold".to_string());
        if name == "lost" {
            return Ok(self.holds.lock().unwrap().get(&hold).ok_or_else(missing)?.is_lost().into());
        }
        let hold = self.holds.lock().unwrap().remove(&hold).ok_or_else(missing)?;
        Ok(match (name, optional(&call["cost"], given::cost)?) {
            ("hold_refund", _) => hold.refund().await?.into(),
            ("hold_settle", Some(cost)) => hold.settle_cost(cost).await?.into(),
            ("hold_settle", None) => hold.settle().await?.into(),
            // Dropping it would do; this also waits for the end.
            _ => {
                let _ = hold.settle().await;
                Json::Null
            }
        })
    }

    async fn of_lease(&self, name: &str, call: &Json) -> Result<Json, Failure> {
        let lease = text(&call["lease"])?;
        let missing = || Failure::Cannot("no such lease".to_string());
        if name == "take" {
            let lease = self.leases.lock().unwrap().get(&lease).cloned().ok_or_else(missing)?;
            return Ok(taken(&lease.take(units(&call["units"])?).await?));
        }
        let lease = self.leases.lock().unwrap().remove(&lease).ok_or_else(missing)?;
        let lease = Arc::into_inner(lease).ok_or_else(|| Failure::Cannot("it is used".into()))?;
        lease.close().await?;
        Ok(Json::Null)
    }
}

async fn follow(limiter: &RateLimiter, call: &Json) -> Result<Json, Failure> {
    let mut headers = HeaderMap::new();
    for pair in call["headers"].as_array().into_iter().flatten() {
        let name = HeaderName::from_bytes(text(&pair[0])?.as_bytes());
        let value = HeaderValue::from_str(&text(&pair[1])?);
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(Failure::Cannot("a HeaderMap has no such field".to_string()));
        };
        headers.append(name, value);
    }
    let fields = call["fields"].as_object().into_iter().flatten();
    let fields = fields.map(|(field, rule)| Ok((field.as_str(), text(rule)?)));
    let fields = fields.collect::<Result<Vec<_>, Failure>>()?;
    let fields = fields.iter().map(|(field, rule)| (*field, &rule[..])).collect::<Vec<_>>();
    let pause = limiter.follow(key(call)?, status(&call["status"])?, &headers, fields).await?;
    Ok(ms(Some(pause)))
}
