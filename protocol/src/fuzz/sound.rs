//! What must hold of every limiter at any time.

use ratelimit_engine::check::Budget;
use ratelimit_engine::key::{Check, DecodeError, Limiter, decode, encode};
use ratelimit_engine::rule::Rule;
use ratelimit_engine::testing::parts;

/// Tests that a limiter survives saving and loading unchanged, and that it can be checked and
/// shown.
pub fn test(limiter: &Limiter, rules: &[Rule], now_us: u64) {
    parts::assert_bounded(limiter);
    let payload = encode(limiter);
    let loaded = decode(&payload);
    // A key that holds nothing is never saved.
    let expected = if limiter.is_empty() { Err(&DecodeError::Idle) } else { Ok(limiter) };
    assert_eq!(loaded.as_ref(), expected);
    if let Ok(loaded) = loaded {
        assert_eq!(encode(&loaded), payload);
        assert_eq!(loaded.deadline(), limiter.deadline());
    }
    let seen = limiter.as_of(now_us);
    let _ = (seen.report(now_us), seen.next_holds(now_us, usize::MAX), seen.last_checks().count());
    let _ = seen.deadline().expiry(now_us, now_us, Some(1));
    for cost in [0, 1] {
        let (mut decisions, check) = (Vec::new(), Check::new(rules, cost, now_us));
        seen.peek(&check, &mut decisions);
        seen.fill_resets(&check, &mut decisions, &Budget::of_command());
    }
}
