//! Limits the clients of one process: a limiter for each, forgotten when nothing in it matters.
//! `cargo run -p ratelimit-core --example in_process`

#![allow(clippy::disallowed_types, reason = "a program has a clock")]

use ratelimit_core::check::Bounds;
use ratelimit_core::key::{Check, Limiter, Verdict};
use ratelimit_core::rule::Rule;
use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// How many states and holds a client may have.
const BOUNDS: Bounds = Bounds { max_states: 16, max_holds: 100 };

struct Limits {
    rules: Vec<Rule>,
    clients: HashMap<String, Limiter>,
}

impl Limits {
    /// Decides a request. Denied, it has to wait this number of milliseconds; `None`: it can
    /// never pass.
    fn ask(&mut self, client: &str, cost: u32, now_us: u64) -> Result<(), Option<u64>> {
        let limiter = self.clients.entry(client.to_string()).or_default();
        let check = Check::new(&self.rules, cost, now_us);
        match limiter.check_within(BOUNDS, &check, &mut Vec::new()) {
            Ok(outcome) if outcome.summary.verdict == Verdict::Allowed => Ok(()),
            Ok(outcome) => Err(u64::try_from(outcome.summary.wait_ms).ok()),
            Err(_) => Err(None),
        }
    }
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    since.as_micros().try_into().expect("a time that fits")
}

fn main() {
    let rules = ["3/1s", "bucket:100/h,burst=20"];
    let rules = rules.map(|text| Rule::from_text(text.as_bytes()).expect("a rule")).to_vec();
    let mut limits = Limits { rules, clients: HashMap::new() };
    for client in ["ann", "bob"] {
        for request in 1..=4 {
            match limits.ask(client, 1, now_us()) {
                Ok(()) => println!("{client}: request {request} passes"),
                Err(Some(wait_ms)) => println!("{client}: request {request} waits {wait_ms} ms"),
                Err(None) => println!("{client}: request {request} can never pass"),
            }
        }
    }
}
