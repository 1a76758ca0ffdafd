//! Callers with different rules share a key's log while holds on it end. No rule admits more than its
//! limit, and units that come back no longer count for any rule.

use super::examples::{Key, costs, key};
use crate::key::Settlement;

const DAY_MS: i64 = 86_400_000;

/// Takes a hold of an hour, which does not refund.
fn hold(key: &mut Key, s: f64, cost: u32, rules: &str) -> [i64; 5] {
    key.hold(s, "h", 3_600.0, cost, rules)
}

#[test]
fn a_refunded_hold_makes_no_room_under_a_longer_rule() {
    let mut key = key();
    assert_eq!(key.check(0.0, 4, "5/d"), [0, 5, 1, 0, DAY_MS]);
    assert_eq!(key.check(0.0, 1, "5/d"), [0, 5, 0, 0, DAY_MS]);
    assert_eq!(key.check(0.0, 1, "5/d"), [1, 5, 0, DAY_MS, DAY_MS]);
    assert_eq!(hold(&mut key, 1.2, 100, "100/s"), [0, 100, 0, 0, 1_000]);
    assert!(key.settle(2.0, "h", Settlement::Refund));
    assert_eq!(key.check(2.0, 1, "5/d"), [1, 5, 0, DAY_MS - 2_000, DAY_MS - 2_000]);
}

#[test]
fn a_lapsed_hold_makes_no_room_under_a_longer_rule() {
    let mut key = key();
    assert_eq!(key.check(0.0, 1, "1/m"), [0, 1, 0, 0, 60_000]);
    assert_eq!(key.check_with(10.0, Some(("h", 1.0, true)), 1, "1/5s"), [0, 1, 0, 0, 1_000]);
    assert_eq!(key.check(12.0, 1, "1/m"), [1, 1, 0, 48_000, 48_000]);
}

#[test]
fn a_hold_settled_below_its_charge_makes_no_room_under_a_longer_rule() {
    let mut key = key();
    assert_eq!(key.check(0.0, 5, "5/d"), [0, 5, 0, 0, DAY_MS]);
    assert_eq!(hold(&mut key, 1.5, 8, "10/s"), [0, 10, 2, 0, 1_000]);
    assert!(key.settle(2.0, "h", costs(1)));
    assert_eq!(key.check(2.0, 2, "5/d"), [1, 5, 0, DAY_MS - 2_000, DAY_MS - 2_000]);
}

#[test]
fn an_excess_counts_as_long_as_a_window_reaches_back_to_it() {
    let mut key = key();
    assert_eq!(hold(&mut key, 0.0, 0, "100/h"), [0, 100, 100, 0, 0]);
    assert_eq!(key.check(0.0, 1, "5/s"), [0, 5, 4, 0, 1_000]);
    assert!(key.settle(0.0, "h", costs(50)));
    assert_eq!(key.check(1.1, 1, "5/s"), [0, 5, 4, 0, 1_000]);
    assert_eq!(key.check(1.1, 60, "100/h"), [1, 100, 48, 3_598_900, 3_598_900]);
}

#[test]
fn an_excess_counts_though_the_hold_outlived_the_window() {
    let mut key = key();
    assert_eq!(hold(&mut key, 0.0, 10, "100/m"), [0, 100, 90, 0, 60_000]);
    assert_eq!(key.check(61.0, 1, "5/s"), [0, 5, 4, 0, 1_000]);
    assert!(key.settle(62.0, "h", costs(100)));
    assert_eq!(key.check(65.0, 1, "5/s"), [0, 5, 4, 0, 1_000]);
    assert_eq!(key.check(66.0, 60, "100/m"), [1, 100, 9, 56_000, 56_000]);
}

#[test]
fn a_refund_after_the_window_frees_units_for_longer_rules() {
    let mut key = key();
    assert_eq!(hold(&mut key, 0.0, 3, "3/s"), [0, 3, 0, 0, 1_000]);
    assert!(key.settle(1.3, "h", Settlement::Refund));
    assert_eq!(key.check(1.3, 1, "2/m"), [0, 2, 1, 0, 60_000]);
}

#[test]
fn a_cost_of_0_takes_a_name_from_another_algorithm_only_with_a_hold() {
    let (bucket, window) = ("bucket:5/m,name=x", "window:4/m,name=x");
    let mut key = key();
    assert_eq!(key.check(0.0, 3, bucket), [0, 5, 2, 0, 36_000]);
    let mut held = Key { limiter: key.limiter.clone(), ..self::key() };
    assert_eq!(hold(&mut held, 1.0, 0, window), [0, 4, 4, 0, 0]);
    assert_eq!(held.peek(1.0, bucket), [0, 5, 5, 0, 0]);
    assert!(held.settle(1.0, "h", costs(3)));
    assert_eq!(held.check(1.0, 2, window), [1, 4, 1, 79_000, 119_000]);
    assert_eq!(key.check(1.0, 0, window), [0, 4, 4, 0, 0]);
    assert_eq!(key.peek(1.0, bucket), [0, 5, 2, 0, 35_000]);
}

#[test]
fn a_cost_of_0_gives_a_state_its_new_shape_so_that_its_hold_can_be_settled() {
    let (mut key, one_second) = (key(), "window:4/s,name=x");
    assert_eq!(key.hold(0.0, "a", 60.0, 0, "window:4/2s,name=x"), [0, 4, 4, 0, 0]);
    assert_eq!(hold(&mut key, 0.0, 0, one_second), [0, 4, 4, 0, 0]);
    assert_eq!(key.check(0.1, 1, one_second), [0, 4, 3, 0, 1_900]);
    assert!(key.settle(0.5, "h", costs(3)));
    assert_eq!(key.peek(0.5, one_second), [1, 4, 0, 750, 1_500]);
}

#[test]
fn a_cost_of_0_passes_a_log_full_of_denials_with_or_without_a_hold() {
    let rules = "2/m,count=all";
    for holds in [true, false] {
        let mut key = key();
        let taken = holds.then_some(("h", 60.0, false));
        assert_eq!(key.check_with(0.0, taken, 2, rules), [0, 2, 0, 0, 60_000]);
        assert_eq!(key.check(1.0, 1, rules), [1, 2, 0, 59_000, 60_000]);
        assert_eq!(key.check(1.0, 0, rules), [0, 2, 0, 0, 60_000]);
    }
}

#[test]
fn a_refund_empties_a_key_whose_only_name_changed_its_algorithm() {
    let mut key = key();
    key.check(0.0, 1, "bucket:5/m,name=x");
    key.check(0.0, 0, "window:4/m,name=x");
    assert!(!key.limiter.is_empty(), "nothing was consumed");
    key.check(0.0, 1, "window:4/m,name=x");
    let now_us = key.at(0.0);
    assert_eq!(key.limiter.refund(1, now_us, &[]), 1);
    assert!(key.limiter.is_empty());
}
