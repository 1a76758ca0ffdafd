//! Counts the requests of one hour that each algorithm lets pass. It reads no clock, so it takes
//! milliseconds.
//! `cargo run -p ratelimit-core --example simulation`

use ratelimit_core::{Limiter, Rules, RulesError};
use std::time::Duration;

fn main() -> Result<(), RulesError> {
    println!("{:22} {:>38} {:>14}", "rules", "passed in each quarter of the hour", "most at once");
    for text in ["600/h", "window:150/15m", "fixed:600/h", "bucket:600/h,burst=20", "2/s 600/h"] {
        let rules: Rules = text.parse()?;
        let mut limiter = Limiter::new();
        let start = Duration::from_secs(1_800_000_000);
        let (mut passed, mut most) = ([0; 4], 0);
        for second in 0..3_600 {
            // A request each second, and each minute a burst of 20.
            let sent = if second % 60 == 0 { 20 } else { 1 };
            let now = start + Duration::from_secs(second as u64);
            let allowed = (0..sent).filter(|_| limiter.check(&rules, now).is_allowed()).count();
            passed[second / 900] += allowed;
            most = most.max(allowed);
        }
        println!("{text:22} {:>38} {most:14}", format!("{passed:?}"));
    }
    Ok(())
}
