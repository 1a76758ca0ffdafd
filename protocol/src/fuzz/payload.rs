//! Saved values: any bytes decode to a limiter or to an error. A decoded limiter takes no
//! more memory than its payload justifies, and is sound.

use super::{assert_printable, sound};
use ratelimit_engine::key::{
    Check, CheckOptions, Costs, HoldRequest, Limiter, Meta, Settlement, decode,
};
use ratelimit_engine::rule::{MAX_TIME_US, Rule};
use ratelimit_engine::testing::laws::holds::memory::Bytes;
use ratelimit_engine::testing::rules_of_line;

/// Rules that match states of each algorithm: by their shapes, or by the names that the corpus uses.
const RULES: [&str; 4] = [
    "20/m window:100/m fixed:5/d bucket:10/s leaky:10/s",
    "5/h,count=all window:9/h,res=60 fixed:3/month bucket:5/m,refill=interval leaky:3/m,queue=0",
    "fixed:7/w,keep=9 fixed:5/d,align=first slots:8 bucket:1000000000/ms,ban=1s:1h,count=all",
    "window:7/m,name=free bucket:7/m,name=x leaky:7/m,name=y fixed:7/m,name=z slots:7,name=pool",
];

/// A value may take this number of bytes of memory for each byte of its payload, and `BYTES_ANYWAY`
/// more.
const BYTES_A_BYTE: usize = 200;
const BYTES_ANYWAY: usize = 1_000;

pub fn run(data: &[u8]) {
    let mut limiter = match decode(data) {
        Ok(limiter) => limiter,
        Err(error) => return assert_printable(&error),
    };
    let bytes = Bytes::of(&mut limiter).all;
    let most = data.len() * BYTES_A_BYTE + BYTES_ANYWAY;
    assert!(bytes <= most, "{bytes} bytes from a payload of {}", data.len());
    let last_ms = limiter.report(0).iter().map(|state| state.last_ms).max();
    let last_us = last_ms.unwrap_or(0).saturating_mul(1_000).min(MAX_TIME_US);
    for now_us in [last_us, last_us.saturating_sub(1_000_000), 0, MAX_TIME_US] {
        for line in RULES {
            let rules = rules_of_line(line);
            sound::test(&limiter, &rules, now_us);
            use_it(&mut limiter.clone(), &rules, now_us);
        }
    }
}

/// Does to a limiter what the commands do.
fn use_it(limiter: &mut Limiter, rules: &[Rule], now_us: u64) {
    let hold = HoldRequest { id: b"a", end_us: now_us + 1_000_000, refund: true };
    let meta = Meta { text: b"who", keep: 3 };
    let options = CheckOptions { meta: Some(meta), hold: Some(hold), ..CheckOptions::default() };
    for options in [None, Some(&options)] {
        let check = Check { options, ..Check::new(rules, 2, now_us) };
        // A refusal changes nothing.
        let _ = limiter.check_within(ratelimit_engine::check::Bounds::ANY, &check, &mut Vec::new());
        sound::test(limiter, rules, now_us);
    }
    limiter.settle(b"a", Settlement::Cost(Costs { default: Some(5), named: &[] }), now_us);
    sound::test(limiter, rules, now_us);
    limiter.refund(3, now_us, rules);
    limiter.refund(1, now_us, &[]);
    sound::test(limiter, rules, now_us);
    limiter.lapse(now_us + 2_000_000);
    limiter.unblock();
    limiter.reset(now_us);
    sound::test(limiter, rules, now_us);
}
