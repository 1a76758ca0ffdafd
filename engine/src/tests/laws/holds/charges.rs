//! A charge can still be corrected after other changes to its key.

use super::examples::{costs, key};
use crate::key::{Settlement, decode, encode};
use crate::tests::rules_of_line;

const MS: f64 = 0.001;

#[test]
fn a_hold_remembers_the_window_of_its_log_rules() {
    let mut key = key();
    key.hold(0.0, "a", 60.0, 5, "10/10s");
    // The log no longer keeps entries for ten seconds, and then the clock steps back by six.
    key.check(11.0, 1, "10/s");
    key.check(5.0, 1, "10/s");
    assert!(key.settle(5.5, "a", costs(9)));
    // The last check counts, and so do the units that the hold cost beyond its charge.
    assert_eq!(key.peek(5.5, "10/10s")[2], 10 - 1 - 4);
}

#[test]
fn a_log_with_holds_keeps_entries_beyond_its_limit() {
    let (mut key, rule) = (key(), "5/m,shadow");
    key.check(0.0, 5, rule);
    key.hold(1.0, "a", 60.0, 5, rule);
    assert!(key.settle(2.0, "a", Settlement::Refund));
    assert_eq!(key.peek(2.0, "5/m")[2], 0);
}

#[test]
fn a_shadow_returns_what_it_took() {
    let (mut key, rules) = (key(), "bucket:5/d,shadow window:99/m");
    key.hold(0.0, "a", 60.0, 8, rules);
    key.hold(0.0, "b", 60.0, 8, rules);
    assert!(key.settle(0.0, "b", Settlement::Refund));
    assert_eq!(key.peek(0.0, "bucket:5/d")[2], 0);
    assert!(key.settle(0.0, "a", Settlement::Refund));
    assert_eq!(key.peek(0.0, "bucket:5/d")[2], 5);
}

#[test]
fn a_turn_stays_the_last_after_a_charged_denial() {
    let (mut key, rule) = (key(), "leaky:1/m,queue=8,count=all");
    key.hold(0.0, "a", 60.0, 3, rule);
    // Fills the queue.
    assert_eq!(key.check(0.0, 8, rule)[0], 1);
    assert!(key.settle(0.0, "a", Settlement::Refund));
    assert_eq!(key.peek(0.0, rule)[2], 3);
}

#[test]
fn an_id_that_queued_last_is_forgotten_with_its_hold() {
    let (mut key, rule) = (key(), "leaky:1/m,queue=8");
    key.hold(0.0, "first", 60.0, 1, rule);
    key.hold(0.0, "a", 60.0, 3, rule);
    assert!(key.settle(0.0, "a", Settlement::AsCharged));
    let mut loaded = super::examples::key();
    loaded.limiter = decode(&encode(&key.limiter)).unwrap();
    for key in [&mut key, &mut loaded] {
        key.hold(0.0, "a", 60.0, 0, rule);
    }
    assert_eq!(encode(&key.limiter), encode(&loaded.limiter));
}

#[test]
fn a_refund_to_a_rule_of_another_shape_keeps_charges() {
    for units in [0, 1] {
        let mut key = key();
        key.hold(0.0, "a", 60.0, 3, "window:5/m,name=x");
        let (other, now_us) = ("window:5/m,res=2,name=x", key.at(0.0));
        let given = key.limiter.refund(units, now_us, &rules_of_line(other));
        assert_eq!(given, units.into());
        assert!(key.settle(0.0, "a", Settlement::Refund));
        assert_eq!(key.peek(0.0, other)[2], 5);
    }
}

/// A hold may outlive the state that it was charged on. After the end of the state no unit of the
/// hold comes back. What the hold cost beyond its charge is consumed from an empty state.
#[test]
fn a_hold_returns_nothing_to_a_state_that_has_ended() {
    for (short, long) in [
        ("bucket:5/s,name=x", "bucket:5/h,name=x"),
        ("bucket:5/s", "bucket:1/s,burst=5"),
        ("leaky:5/s,queue=4", "leaky:1/s,queue=4"),
        ("window:5/s,name=x", "window:5/h,name=x"),
        ("fixed:5/s,align=first,name=x", "fixed:5/h,align=first,name=x"),
        ("bucket:5/s,refill=interval,name=x", "bucket:5/h,refill=interval,name=x"),
        ("5/s", "5/h"),
    ] {
        for refund in [false, true] {
            let mut held = key();
            held.check_with(0.0, Some(("a", 60.0, refund)), 5, short);
            held.check_with(0.0, Some(("b", 99.0, false)), 0, short);
            assert_eq!(held.check(0.5, 1, long)[0], 1, "{long}");
            // Another check consumes all that an empty state has.
            assert_eq!(held.check(10.0, 5, long)[0], 0, "{long}");
            assert!(held.settle(12.0, "a", Settlement::Refund));
            assert!(held.settle(12.0, "b", Settlement::AsCharged));
            let mut never_held = key();
            never_held.check(10.0, 5, long);
            assert_eq!(held.peek(12.0, long), never_held.peek(12.0, long), "{long}");
        }
    }
}

/// What a hold consumes beyond its charge drains no faster than at the limit of the hold's rule.
#[test]
fn an_excess_drains_no_faster_than_its_rule_says() {
    let (mut key, fast, slow) = (key(), "bucket:100/s,burst=100", "bucket:1/s,burst=100");
    for (at, id, rule) in [(0.0, "a", fast), (0.5, "b", slow)] {
        key.check_with(at, Some((id, 60.0, false)), 0, rule);
        assert!(key.settle(at, id, costs(100)));
    }
    assert_eq!(key.peek(3.0, slow)[2], 0, "197 units are owed");
    assert_eq!(key.peek(199.0, slow)[2], 99);
}

#[test]
fn a_state_that_a_step_back_replaced_has_no_charges() {
    let (mut key, rule) = (key(), "bucket:5/10s");
    key.hold(60.0, "a", 60.0, 3, rule);
    key.check(0.0, 2, rule);
    assert!(key.settle(0.0, "a", costs(5)));
    assert_eq!(key.peek(0.0, rule)[2], 3);
}

#[test]
fn charges_survive_the_end_of_many_other_holds() {
    let (mut key, rule) = (key(), "bucket:1/s,burst=9999");
    // Before the `n`th hold, `n` units are owed.
    let id = |n: u32| format!("h{n}");
    for n in 0..100_u32 {
        key.hold(99.0 * f64::from(n), &id(n), 99_999.0, 100, rule);
    }
    let now_s = 99.0 * 99.0;
    let owed = 99 + 100;
    assert_eq!(key.peek(now_s, rule)[2], 9_999 - owed);
    for n in (0..100).filter(|n| n % 10 > 0) {
        assert!(key.settle(now_s, &id(n), Settlement::AsCharged));
    }
    // The older a hold, the lower its least debt. A refund lowers the least debts of younger holds.
    let mut returned = 0;
    for n in (0..100).step_by(10) {
        assert!(key.settle(now_s, &id(n), Settlement::Refund));
        let least = i64::from(n) + 1 - returned;
        returned += least.min(100);
        assert_eq!(key.peek(now_s, rule)[2], 9_999 - owed + returned, "{n}");
    }
}

#[test]
fn a_hold_of_0_slots_delays_no_reset() {
    let mut key = key();
    key.hold(0.0, "a", 10.0, 1, "slots:2");
    key.hold(0.0, "b", 30.0, 0, "slots:2");
    assert_eq!(key.peek(0.0, "slots:2")[4], 10_000);
}

#[test]
fn resets_foresee_the_lapses_of_up_to_sixteen_holds() {
    for (holds, reset_ms) in [(16, 9_000), (17, 60_000)] {
        let mut key = key();
        for n in 0..holds {
            key.check_with(0.0, Some((&n.to_string(), 9.0, true)), 1, "99/m");
        }
        assert_eq!(key.peek(0.0, "99/m")[4], reset_ms);
    }
}

#[test]
fn a_lapse_returns_units_to_a_log_far_ahead() {
    let mut key = key();
    key.check_with(100.0, Some(("a", 150.0, true)), 5, "5/10s");
    let (end_us, now_us) = (key.at(50.0), key.at(0.0));
    assert!(key.limiter.renew(b"a", end_us, now_us));
    // The entry goes, although it lies fifty seconds ahead of the hold's end.
    assert_eq!(key.peek(0.0, "5/200s")[3], 50_000);
    assert_eq!(key.peek(50.0 - MS, "5/200s")[0], 1);
    assert_eq!(key.peek(50.0, "5/200s"), [0, 5, 5, 0, 0]);
}
