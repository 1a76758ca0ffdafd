//! Prints the nanoseconds that a check takes at limits of 10 and of 100,000, and their ratio.
//! It measures the limiter alone: a server's overhead would hide the worst case of a log's search.
//! Run by `make cost`.

#![allow(clippy::disallowed_types, reason = "a program has a clock")]

use ratelimit_core::{Cost, Limiter, Rules};
use std::hint::black_box;
use std::time::{Duration, Instant};

const CHECKS: u32 = 400_000;
const ROUNDS: usize = 9;
const HOUR: Duration = Duration::from_secs(3_600);

/// Nanoseconds per check. The state is as full as the limit allows; every other check is denied.
fn nanos(limit: u32, options: &str, cost: u32) -> f64 {
    let units = Cost::new(cost.into()).expect("few units");
    let text = options.replace("LIMIT", &limit.to_string());
    let rules: Rules = text.parse().expect("rules");
    let mut limiter = Limiter::new();
    let mut now = Duration::from_secs(1_700_000_000);
    let step = HOUR * cost / limit;
    let mut decide = |now| {
        let _ = black_box(limiter.check_cost(&rules, units, now));
    };
    for _ in 0..limit / cost {
        now += step;
        decide(now);
    }
    let start = Instant::now();
    for _ in 0..CHECKS / 2 {
        now += step;
        decide(now);
        decide(now); // denied: the state is full
    }
    start.elapsed().as_nanos() as f64 / f64::from(CHECKS)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    println!("{:40} {:>8} {:>10} {:>7}", "rules", "at 10", "at 100000", "ratio");
    for (rules, cost) in [
        ("log:LIMIT/h", 1),
        ("log:LIMIT/h", 5),
        ("log:LIMIT/h log:10/s", 1),
        ("log:LIMIT/h log:LIMIT/30m", 1),
        ("window:LIMIT/h", 1),
        ("fixed:LIMIT/h", 1),
        ("bucket:LIMIT/h", 1),
        ("leaky:LIMIT/h", 1),
    ] {
        // The two limits alternate, so that noise of the machine affects both.
        let (small, large): (Vec<f64>, Vec<f64>) =
            (0..ROUNDS).map(|_| (nanos(10, rules, cost), nanos(100_000, rules, cost))).unzip();
        let (small, large) = (median(small), median(large));
        let what = format!("{rules} COST {cost}");
        println!("{what:40} {small:6.1}ns {large:8.1}ns {:7.2}", large / small);
    }
}
