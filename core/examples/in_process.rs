//! Limits the clients of one process. Each has a limiter, which is dropped when it is idle.
//! `cargo run -p ratelimit-core --example in_process`

#![allow(clippy::disallowed_types, reason = "a program has a clock")]

use ratelimit_core::{Answer, Limiter, Rules, RulesError};
use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn main() -> Result<(), RulesError> {
    let rules: Rules = "3/s bucket:100/h,burst=20".parse()?;
    let mut clients: HashMap<&str, Limiter> = HashMap::new();
    for client in ["ann", "bob"] {
        for request in 1..=4 {
            match clients.entry(client).or_default().check(&rules, now()) {
                Answer::Allowed { .. } => println!("{client}: request {request} passes"),
                Answer::Denied { wait: Some(wait), .. } => {
                    println!("{client}: request {request} waits {wait:?}");
                }
                Answer::Denied { .. } => println!("{client}: request {request} can never pass"),
            }
        }
    }
    // A real program does this periodically.
    clients.retain(|_, limiter| !limiter.is_idle(now()));
    println!("{} clients are remembered", clients.len());
    Ok(())
}
