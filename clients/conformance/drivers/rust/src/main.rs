//! The driver of the package for Rust: see `clients/conformance/suite/drivers.py`.

mod given;
mod shown;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use given::{check, cost, get, key, rules, some, time};
use http::{HeaderMap, StatusCode};
use serde_json::{Value as Json, json};
use shown::{Failure, ms, name, reply, report};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::AbortHandle;
use tower_redis_ratelimit::{Hold, Lease, LeaseOptions, RateLimiter, Settlement};

/// What calls have made, by name.
#[derive(Default)]
struct Made {
    limiters: Mutex<HashMap<String, RateLimiter>>,
    /// Holds that have ended are `None`.
    holds: Mutex<HashMap<String, Option<Hold>>>,
    leases: Mutex<HashMap<String, Arc<Lease>>>,
    tasks: Mutex<HashMap<u64, AbortHandle>>,
}

#[tokio::main]
async fn main() {
    println!("{}", json!({"driver": "rust", "can": ["cancel"]}));
    let made = Arc::new(Made::default());
    let mut calls = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = calls.next_line().await.expect("lines of text") {
        let call: Json = serde_json::from_str(&line).expect("lines of JSON");
        let (id, own, made) = (call["id"].as_u64().expect("an id"), made.clone(), made.clone());
        let asking = tokio::spawn(async move { own.call(&call).await });
        made.tasks.lock().unwrap().insert(id, asking.abort_handle());
        tokio::spawn(async move {
            let mut line = match asking.await {
                Ok(Ok(result)) => json!({"result": result}),
                Ok(Err(failure)) => json!(failure),
                Err(end) => {
                    json!({"error": {"kind": "Cancelled", "text": end.to_string(), "outage": false}})
                }
            };
            made.tasks.lock().unwrap().remove(&id);
            line["id"] = id.into();
            println!("{line}");
        });
    }
}

fn missing() -> Failure {
    Failure::Cannot("nothing has this name".to_string())
}

impl Made {
    #[allow(clippy::too_many_lines, reason = "a table of calls")]
    async fn call(&self, call: &Json) -> Result<Json, Failure> {
        let named = |what: &str| get::<String>(&call[what]);
        let (key, length) = (|| key(&call["key"]), |what: &str| time(&call[what]));
        let what = named("call")?;
        let of = self.limiters.lock().unwrap().get(&named("limiter").unwrap_or_default()).cloned();
        let limiter = of.ok_or_else(missing);
        Ok(match &what[..] {
            "limiter" => {
                let made = given::limiter(call)?;
                self.limiters.lock().unwrap().insert(named("limiter")?, made);
                Json::Null
            }
            "close" => {
                self.limiters.lock().unwrap().remove(&named("limiter")?);
                json!(limiter?.close().await)
            }
            "cancel" => {
                let tasks = self.tasks.lock().unwrap();
                json!(tasks.get(&get(&call["of"])?).map(AbortHandle::abort))
            }
            "check" => reply(&limiter?.check(check(call)?).await?),
            "peek" => reply(&limiter?.peek(check(call)?).await?),
            "wait" => reply(&limiter?.wait(check(call)?, length("timeout_ms")?).await?),
            "check_all" => report(&limiter?.check_all(check(call)?).await?),
            "check_any" => report(&limiter?.check_any(check(call)?).await?),
            "peek_all" => report(&limiter?.peek_all(check(call)?).await?),
            "enter" => {
                let hold = limiter?.hold(check(call)?, length("ttl_ms")?).await?;
                let answer = reply(hold.reply());
                self.holds.lock().unwrap().insert(named("hold")?, Some(hold));
                answer
            }
            "lost" => {
                let holds = self.holds.lock().unwrap();
                let hold = holds.get(&named("hold")?).and_then(Option::as_ref);
                json!(hold.ok_or_else(missing)?.is_lost())
            }
            "leave" | "hold_settle" | "hold_refund" => {
                let real = some(&call["cost"], cost)?;
                let hold =
                    self.holds.lock().unwrap().get_mut(&named("hold")?).ok_or_else(missing)?.take();
                match (hold, real) {
                    (None, _) if what == "leave" => Json::Null,
                    (None, _) => json!(false),
                    (Some(hold), _) if what == "hold_refund" => json!(hold.refund().await?),
                    (Some(hold), Some(real)) => json!(hold.settle_cost(real).await?),
                    (Some(hold), None) if what == "hold_settle" => json!(hold.settle().await?),
                    // A dropped hold ends too. This waits for its end.
                    (Some(hold), None) => json!(hold.settle().await.map_or((), drop)),
                }
            }
            "settle" => {
                let how = match some(&call["cost"], cost)? {
                    _ if call["refund"] == true => Settlement::Refund,
                    real => real.map_or(Settlement::AsCharged, Settlement::Cost),
                };
                json!(limiter?.settle(key()?, &named("own_id")?, how).await?)
            }
            "renew" => {
                let ttl = length("ttl_ms")?;
                json!(limiter?.renew(key()?, &named("own_id")?, ttl).await?)
            }
            "refund" => {
                let (units, rules) = (get(&call["units"])?, some(&call["rules"], rules)?);
                json!(limiter?.refund(key()?, units, rules.unwrap_or_default()).await?)
            }
            "reset" => json!(limiter?.reset(key()?).await?),
            "resume" => json!(limiter?.resume(key()?).await?),
            "unplan" => json!(limiter?.unplan(key()?).await?),
            "pause" => {
                let (length, why) = (length("time_ms")?, call["reason"].as_str());
                json!(ms(Some(limiter?.pause(key()?, length, why).await?)))
            }
            "plan" => {
                let length = some(&call["time_ms"], time)?;
                json!(limiter?.plan(key()?, &named("policy")?, length).await?)
            }
            "sync" => {
                let left = get(&call["remaining"])?;
                json!(limiter?.sync(key()?, left, &named("rule")?).await?)
            }
            "follow" => {
                let given = some(&call["headers"], get::<Vec<(String, String)>>)?;
                let header =
                    |(name, text): (String, String)| Some((name.parse().ok()?, text.parse().ok()?));
                let headers =
                    given.into_iter().flatten().map(header).collect::<Option<HeaderMap>>();
                let headers = headers.ok_or_else(missing)?;
                let given = some(&call["fields"], get::<HashMap<String, String>>)?;
                let fields = given.iter().flatten().map(|(field, rule)| (&field[..], &rule[..]));
                let fields = fields.collect::<Vec<_>>();
                let status = StatusCode::from_u16(get(&call["status"])?).map_err(|_| missing())?;
                json!(ms(Some(limiter?.follow(key()?, status, &headers, fields).await?)))
            }
            "lease" => {
                let (ttl, most) = (some(&call["ttl_ms"], time)?, some(&call["most"], get)?);
                let usual = LeaseOptions::default();
                let options = LeaseOptions {
                    ttl: ttl.unwrap_or(usual.ttl),
                    most: most.unwrap_or(usual.most),
                };
                let lease = Lease::with(limiter?, key()?, rules(&call["rules"])?, options)?;
                self.leases.lock().unwrap().insert(named("lease")?, Arc::new(lease));
                Json::Null
            }
            "take" => {
                let lease = self.leases.lock().unwrap().get(&named("lease")?).cloned();
                let taken = lease.ok_or_else(missing)?.take(get(&call["units"])?).await?;
                json!({"verdict": name(taken.verdict), "wait_ms": ms(taken.wait), "source": name(taken.source)})
            }
            "give_up" => {
                let lease = self.leases.lock().unwrap().remove(&named("lease")?);
                json!(lease.and_then(Arc::into_inner).ok_or_else(missing)?.close().await?)
            }
            "state" => limiter.map(|of| json!({"away": of.away(), "outages": of.outages()}))?,
            _ => return Err(Failure::Cannot(format!("Rust has no {what}"))),
        })
    }
}
