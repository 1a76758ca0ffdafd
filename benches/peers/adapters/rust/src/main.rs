//! The protocol of benches/peers/adapter.py, for adapters in Rust: `adapter NAME redis://…`.

mod limiters;

use std::io::{BufRead, Write, stdin, stdout};
use std::thread::sleep;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A limit and its period in milliseconds.
type Rule = [u64; 2];
/// Whether a request passes, and the milliseconds until a retry, or the error.
type Answer = Result<(bool, Option<f64>), String>;
type Hit = Box<dyn Fn(&str, &[Rule]) -> Answer>;

#[derive(Deserialize)]
struct Call {
    key: String,
    rules: Vec<Rule>,
    #[serde(default)]
    at: f64,
    keys: Option<usize>,
    count: Option<usize>,
    seconds: Option<f64>,
    rate: Option<f64>,
}

#[derive(Serialize, Default)]
struct Made {
    #[serde(skip_serializing_if = "Option::is_none")]
    ok: Option<bool>,
    wait_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    sent: f64,
    got: f64,
}

#[derive(Serialize)]
struct Summary {
    made: usize,
    seconds: f64,
    p50_us: Option<u64>,
    p99_us: Option<u64>,
}

/// The system's monotonic clock, which other processes share.
fn now() -> f64 {
    let at = clock_gettime(ClockId::Monotonic);
    at.tv_sec as f64 + at.tv_nsec as f64 / 1e9
}

fn until(at: f64) {
    sleep(Duration::from_secs_f64((at - now()).max(0.0)));
}

fn one(hit: &Hit, call: &Call) -> Made {
    until(call.at);
    let sent = now();
    let answer = hit(&call.key, &call.rules);
    let made = Made { sent, got: now(), ..Made::default() };
    match answer {
        Ok((ok, wait_ms)) => Made { ok: Some(ok), wait_ms, ..made },
        Err(error) => Made { error: Some(error), ..made },
    }
}

fn many(hit: &Hit, call: &Call, keys: usize) -> Summary {
    let (began, mut late) = (now(), Vec::new());
    let ends = began + call.seconds.unwrap_or(600.0);
    while call.count.is_none_or(|count| late.len() < count) {
        let due = call.rate.map_or_else(now, |rate| began + late.len() as f64 / rate);
        if due.max(now()) >= ends {
            break;
        }
        until(due);
        hit(&format!("{}:{}", call.key, late.len() % keys), &call.rules).expect("an answer");
        late.push(((now() - due) * 1e6) as u64);
    }
    late.sort_unstable();
    let quantile = |percent: usize| late.get(late.len() * percent / 100).copied();
    Summary { made: late.len(), seconds: now() - began, p50_us: quantile(50), p99_us: quantile(99) }
}

fn main() {
    let mut words = std::env::args().skip(1);
    let (peer, url) = (words.next().expect("a name"), words.next().expect("an address"));
    let hit = limiters::make(&peer, &url);
    let say = |line: String| {
        println!("{line}");
        stdout().flush().expect("an open output");
    };
    say(format!(r#"{{"ready": "{peer}"}}"#));
    for line in stdin().lock().lines() {
        let call: Call = serde_json::from_str(&line.expect("text")).expect("a call");
        let answer = match call.keys {
            Some(keys) => serde_json::to_string(&many(&hit, &call, keys)),
            None => serde_json::to_string(&one(&hit, &call)),
        };
        say(answer.expect("JSON"));
    }
}
