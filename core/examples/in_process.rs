//! Limits the clients of one process by an `Instant`, which never steps back.
//! `cargo run -p ratelimit-core --example in_process`

#![allow(clippy::disallowed_types, reason = "a program has a clock")]

use ratelimit_core::{Answer, Keyed, Rules};
use std::error::Error;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time since the Unix epoch, as far as this process is concerned.
struct Clock {
    started: Instant,
    since_epoch: Duration,
}

impl Clock {
    fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: Instant::now(), since_epoch }
    }

    fn now(&self) -> Duration {
        self.since_epoch + self.started.elapsed()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let rules: Rules = "3/s bucket:100/h,burst=20".parse()?;
    let (clients, clock) = (Keyed::<String>::new(100_000), Clock::start());
    for client in ["ann", "bob"] {
        for request in 1..=4 {
            // An error here: 100,000 clients have limiters, and none of these is idle.
            match clients.check(client, &rules, clock.now())? {
                Answer::Allowed { .. } => println!("{client}: request {request} passes"),
                Answer::Denied { wait: Some(wait), .. } => {
                    println!("{client}: request {request} waits {wait:?}");
                }
                Answer::Denied { .. } => println!("{client}: request {request} can never pass"),
            }
        }
    }
    println!("{} clients are remembered", clients.len());
    Ok(())
}
