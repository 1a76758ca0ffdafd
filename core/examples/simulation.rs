//! What an hour of traffic gets through, under each algorithm: no clock is read, so it takes milliseconds.
//! `cargo run -p ratelimit-core --example simulation`

use ratelimit_core::{Limiter, Rules, RulesError};
use std::time::Duration;

fn main() -> Result<(), RulesError> {
    println!("{:40} {:>7} {:>7} {:>14}", "rules", "sent", "passed", "most in 1 s");
    for text in ["600/h", "window:600/h", "fixed:600/h", "bucket:600/h,burst=20", "2/s 600/h"] {
        let rules: Rules = text.parse()?;
        let mut limiter = Limiter::new();
        let start = Duration::from_secs(1_800_000_000);
        let (mut sent, mut passed, mut most) = (0, 0, 0);
        for second in 0..3_600 {
            // A request each second, and each minute a burst of 20.
            let burst = if second % 60 == 0 { 20 } else { 1 };
            let now = start + Duration::from_secs(second);
            let allowed = (0..burst).filter(|_| limiter.check(&rules, now).is_allowed()).count();
            (sent, passed, most) = (sent + burst, passed + allowed, most.max(allowed));
        }
        println!("{text:40} {sent:7} {passed:7} {most:14}");
    }
    Ok(())
}
