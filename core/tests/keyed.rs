//! `Keyed` decides as a map of limiters does, keeps to its bound, and forgets only what is idle.

use proptest::prelude::*;
use ratelimit_core::{Cost, Keyed, Limiter, Rules};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

const NOW: Duration = Duration::from_secs(1_800_000_000);

fn rules(text: &str) -> Rules {
    text.parse().unwrap()
}

proptest! {
    /// Only a key without a limiter is refused, and only if there are already `most` limiters that were
    /// not idle a second ago.
    #[test]
    fn keys_are_decided_as_by_a_map_of_limiters(
        most in 1..12_usize,
        calls in prop::collection::vec((0..20_u16, 0..2_000_u64, 0..3_u64, 0..9_u8), 1..200),
    ) {
        let rules = rules("bucket:3/s 9/2s");
        let (keyed, mut map, mut now) = (Keyed::<u16>::new(most), HashMap::<u16, Limiter>::new(), NOW);
        for (key, gap_ms, cost, call) in calls {
            now += Duration::from_millis(gap_ms);
            let cost = Cost::new(cost).unwrap();
            let before = map.clone();
            let limiter = map.entry(key).or_default();
            let (answer, expected) = match call {
                0 => {
                    keyed.drop_idle(now);
                    map.retain(|_, limiter| !limiter.is_idle(now));
                    prop_assert_eq!(keyed.len(), map.len());
                    continue;
                }
                1 => (keyed.with(&key, now, |it| it.peek(&rules, cost, now)), limiter.peek(&rules, cost, now)),
                _ => (keyed.with(&key, now, |it| it.check_cost(&rules, cost, now)), limiter.check_cost(&rules, cost, now)),
            };
            let earlier = now.saturating_sub(Duration::from_secs(1));
            let busy = before.iter().filter(|(_, limiter)| !limiter.is_idle(earlier)).count();
            match answer {
                Ok(answer) => prop_assert_eq!(answer, expected),
                Err(full) => {
                    prop_assert!(busy >= most && before.get(&key).is_none_or(|it| it.is_idle(now)));
                    prop_assert_eq!(full.to_string(), format!("{most} limiters already, and none is idle"));
                    map = before;
                }
            }
            prop_assert!(keyed.len() <= most);
            prop_assert_eq!(keyed.is_empty(), matches!(keyed.len(), 0));
        }
    }
}

#[test]
fn keys_that_consume_nothing_take_no_room() {
    let (keyed, rules) = (Keyed::<String>::new(1), rules("0/s"));
    for key in ["a", "b", "c"] {
        assert!(!keyed.check(key, &rules, NOW).unwrap().is_allowed());
    }
    assert!(keyed.is_empty());
    let fails = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        keyed.with("a", NOW, |_| panic!("a function that fails"))
    }));
    assert!(fails.is_err() && keyed.is_empty());
    assert_eq!(keyed.with("a", NOW, |_| 5), Ok(5));
}

#[test]
fn idle_limiters_are_dropped_while_new_keys_come() {
    let (keyed, rules) = (Keyed::<u64>::new(1_000_000), rules("bucket:1/s"));
    for key in 0..200_000 {
        let now = NOW + Duration::from_millis(key);
        assert!(keyed.check(&key, &rules, now).unwrap().is_allowed());
    }
    assert!((1_000..8_000).contains(&keyed.len()), "{}", keyed.len());
}

#[test]
fn a_full_map_takes_new_keys_when_others_are_idle() {
    let (keyed, rules) = (Keyed::<u32>::new(100), rules("bucket:1/m"));
    let at = |s: u64| NOW + Duration::from_secs(s);
    assert!((0..100).all(|key| keyed.check(&key, &rules, at(0)).unwrap().is_allowed()));
    for s in [0, 1, 59] {
        assert!(keyed.check(&100, &rules, at(s)).is_err());
        assert!(!keyed.check(&5, &rules, at(s)).unwrap().is_allowed(), "a key with a limiter");
    }
    assert!(keyed.check(&100, &rules, at(61)).unwrap().is_allowed());
    assert_eq!(keyed.len(), 1);
    // A clock that stepped back does not stop the search.
    assert!(keyed.check(&101, &rules, at(0)).unwrap().is_allowed());
}

#[test]
fn threads_together_never_exceed_a_limit_or_the_bound() {
    const KEYS: u64 = 40;
    let (keyed, rules) = (Keyed::<u64>::new(30), rules("100/d"));
    let (allowed, full) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (keyed, rules, allowed, full) = (&keyed, &rules, &allowed, &full);
            scope.spawn(move || {
                for n in 0..8_000 {
                    let key = (n * 7 + thread) % KEYS;
                    match keyed.check(&key, rules, NOW + Duration::from_micros(n)) {
                        Ok(answer) => allowed.fetch_add(answer.is_allowed().into(), Relaxed),
                        Err(_) => full.fetch_add(1, Relaxed),
                    };
                    assert!(keyed.len() <= 30);
                }
            });
        }
    });
    assert_eq!((keyed.len(), allowed.load(Relaxed)), (30, 30 * 100));
    assert_eq!(full.load(Relaxed), 4 * 8_000 / 40 * 10);
}
