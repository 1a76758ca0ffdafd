//! Waits that are longer because a denial starts before they would end, see `later_denials`.

use super::examples::{Key, key};
use crate::check::{Bounds, KeyCheck, check_keys};
use crate::key::{Check, CheckOptions, HoldRequest, Verdict};
use crate::tests::rules_of_line;

/// The wait of a check of two keys at 0 s, which repeats the hold of the first key.
fn wait_of(keys: [&mut Key; 2], rules: [&str; 2], cost: u32) -> i64 {
    let (now_us, end_us) = (keys[0].at(0.0), keys[0].at(999.0));
    let hold = Some(HoldRequest { id: b"a", end_us, refund: false });
    let options = CheckOptions { hold, ..CheckOptions::default() };
    let ([first, second], rules) = (keys, rules.map(rules_of_line));
    let checks = rules.each_ref().map(|rules| Check::new(rules, cost, now_us).with(&options));
    let mut keys = [
        KeyCheck::new(&mut first.limiter, checks[0]),
        KeyCheck::new(&mut second.limiter, checks[1]),
    ];
    check_keys(&mut keys, Bounds::ANY, &mut Vec::new()).unwrap();
    let summary = keys[0].outcome().summary;
    assert_eq!(summary.verdict, Verdict::Limited);
    summary.wait_ms
}

#[test]
fn a_denial_that_starts_as_the_wait_ends_prolongs_it() {
    let mut key = key();
    key.check(100.0, 1, "bucket:1/10s,name=b");
    key.check(0.0, 1, "bucket:1/90s,name=a");
    let both = "bucket:1/90s,name=a bucket:1/10s,name=b";
    assert_eq!(key.check(0.0, 1, both)[3], 110_000);
    assert_eq!([90.0, 110.0].map(|s| key.peek(s, both)[0]), [1, 0]);
}

#[test]
fn a_denial_that_starts_as_a_hold_ends_may_never_end() {
    let (mut first, mut second) = (key(), key());
    first.hold(0.0, "a", 30.0, 5, "window:9/m");
    second.check(0.0, 5, "fixed:5/m");
    for (limit, wait_ms) in [("window:9/m", 72_000), ("window:3/m", -1)] {
        assert_eq!(wait_of([&mut first, &mut second], [limit, "fixed:5/m"], 5), wait_ms);
    }
}

#[test]
fn a_state_may_come_back_after_a_hold_has_ended() {
    let (mut first, mut second) = (key(), key());
    first.hold(200.0, "a", 300.0, 1, "bucket:1/10s");
    let (end_us, now_us) = (first.at(30.0), first.at(0.0));
    assert!(first.limiter.renew(b"a", end_us, now_us));
    second.check(0.0, 1, "bucket:1/190s");
    let rules = ["bucket:1/10s", "bucket:1/190s"];
    assert_eq!(wait_of([&mut first, &mut second], rules, 1), 210_000);
}

#[test]
fn a_log_that_comes_back_lacks_what_lapsed_before() {
    let mut key = key();
    key.check_with(200.0, Some(("a", 900.0, true)), 5, "5/1000s");
    let (end_us, now_us) = (key.at(20.0), key.at(0.0));
    assert!(key.limiter.renew(b"a", end_us, now_us));
    key.check(0.0, 1, "bucket:1/195s,name=x");
    assert_eq!(key.check(0.0, 1, "5/10s bucket:1/195s,name=x")[3], 195_000);
}

/// A hold that lies ahead of a peek's clock lives again before its state's wait is over.
#[test]
fn a_wait_covers_the_slots_of_a_hold_that_comes_back() {
    let mut key = key();
    let both = "bucket:100/h,burst=1 slots:1";
    key.hold(0.0, "c", 90.0, 1, both);
    assert_eq!(key.peek(-200.0, both), [1, 1, 0, 290_000, 236_000]);
    assert_eq!([36.0, 89.999, 90.0].map(|s| key.peek(s, both)[0]), [1, 1, 0]);
    // A check stores that the hold has lapsed.
    assert_eq!(key.check(-200.0, 1, both), [1, 1, 0, 236_000, 236_000]);
    assert_eq!(key.peek(36.0, both)[0], 0);
}

/// Hold `c` gives back its charge at its end, and not when the clock is 60 s before it was taken.
#[test]
fn a_wait_foresees_the_lapse_of_a_hold_that_comes_back() {
    let mut key = key();
    let rules = "fixed:1/d,name=a fixed:1/h,name=b slots:1,name=s";
    key.check(-70.0, 1, "fixed:1/h,name=b");
    key.check_with(0.0, Some(("c", 20.0, true)), 1, "fixed:1/d,name=a");
    // Rule b denies until midnight; before, `c` lives again and takes what rule a has.
    assert_eq!(key.peek(-60.0, rules)[3], 60_000 + 20_000);
    assert_eq!([0.0, 19.999, 20.0].map(|s| key.peek(s, rules)[0]), [1, 1, 0]);
}
