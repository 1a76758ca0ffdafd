//! Charges an estimate, then settles the real cost of the request.
//! `cargo run -p ratelimit-core --example held`

use ratelimit_core::{Answer, Cost, Hold, Limiter, Rules, Settlement};
use std::error::Error;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let tokens: Rules = "bucket:10000/m".parse()?;
    let mut tenant = Limiter::new();
    let now = Duration::from_secs(1_800_000_000);
    // If this program forgets a request, its estimate comes back after two minutes.
    let hold = |id| Ok::<_, Box<dyn Error>>(Hold::new(id, Duration::from_secs(120))?.refunding());

    for (id, estimate, cost) in
        [("chat-1", 6_000, 1_500), ("chat-2", 8_000, 8_200), ("chat-3", 9_000, 0)]
    {
        match tenant.hold(&tokens, Cost::new(estimate)?, &hold(id)?, now)? {
            Answer::Allowed { .. } => println!("{id}: {estimate} tokens held"),
            Answer::Denied { wait, .. } => {
                println!("{id}: denied, passes in {wait:?}");
                continue;
            }
        }
        tenant.settle(id, Settlement::Cost(Cost::new(cost)?), now);
        println!("{id}: {cost} tokens settled, next: {:?}", tenant.peek(&tokens, Cost::ONE, now));
    }
    Ok(())
}
