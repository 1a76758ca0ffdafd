//! What a check of several keys grants, and what a check through one of them compares and answers.

use crate::check::{Bounds, Budget, KeyCheck, check_keys, deny_each};
use crate::key::{Access, AccessEntry, Check, CheckOptions, Limiter, Verdict};
use crate::rule::SECOND_US;
use crate::tests::rules_of_line;

const NOW_US: u64 = 1_700_000_000_000_000;

#[test]
fn a_range_leaves_what_its_grant_leaves() {
    let rules = rules_of_line("bucket:10/h");
    let (decisions, budget) = (&mut Vec::new(), &Budget::of_command());
    for (up_to, left) in [(None, 8), (Some(7), 3), (Some(20), 0)] {
        let options = CheckOptions { up_to, ..CheckOptions::default() };
        let check = Check::new(&rules, 2, NOW_US).with(&options);
        assert_eq!(Limiter::default().left_after(&check, decisions, budget), Some(left));
    }
}

/// Denies on two keys: blocked for these seconds, or by a rule for an hour.
fn deny(blocked_s: [Option<u64>; 2]) -> (usize, Verdict, i64) {
    let rules = rules_of_line("fixed:1/h,align=first");
    let check = Check::new(&rules, 1, NOW_US);
    let mut keys = blocked_s.map(|seconds| {
        let mut limiter = Limiter::default();
        limiter.check(&check, &mut Vec::new());
        limiter.set_access(seconds.map(|seconds| {
            AccessEntry::new(Access::Block, Some(NOW_US + seconds * SECOND_US), b"")
        }));
        limiter
    });
    let mut parts = keys.each_mut().map(|key| KeyCheck::new(key, check));
    let answer = deny_each(&mut parts, Bounds::ANY, &mut Vec::new()).expect("room");
    let (key, decision) = answer.expect("there are keys");
    (key, decision.verdict, decision.wait_ms)
}

#[test]
fn the_least_wait_is_the_answer_and_it_is_a_block_if_all_keys_are_blocked() {
    assert_eq!(deny([Some(30), None]), (0, Verdict::Limited, 30_000));
    assert_eq!(deny([None, Some(30)]), (1, Verdict::Limited, 30_000));
    assert_eq!(deny([Some(7_200), None]), (1, Verdict::Limited, 3_600_000));
    assert_eq!(deny([Some(60), Some(30)]), (1, Verdict::Blocked, 30_000));
}

#[test]
fn the_key_that_admits_the_fewest_units_sets_the_grant() {
    let rules = ["bucket:5/m", "bucket:7/m"].map(rules_of_line);
    let options = CheckOptions { up_to: Some(9), ..CheckOptions::default() };
    for order in [[0, 1], [1, 0]] {
        let mut keys = [Limiter::default(), Limiter::default()];
        let of_key = |(key, rule): (_, usize)| {
            KeyCheck::new(key, Check::new(&rules[rule], 1, NOW_US).with(&options))
        };
        let mut parts: Vec<_> = keys.iter_mut().zip(order).map(of_key).collect();
        check_keys(&mut parts, Bounds::ANY, &mut Vec::new()).expect("room");
        let granted: Vec<_> = parts.iter().map(|key| key.outcome().cost).collect();
        assert_eq!(granted, [5, 5]);
    }
}
