//! Several callers check one key with different log rules. Of the checks that contain a log rule, the
//! rule admits at most its limit in any of its windows. The rules of other checks do not matter.

use super::rules::charging_logs;
use super::{cases, check, cost_of};
use crate::header_slice::{self, HeaderSlice};
use crate::heap::HeapVisitor;
use crate::key::{Expiry, Limiter, Verdict};
use crate::rule::Kind;
use crate::rule::{Rule, SECOND_US};
use proptest::prelude::*;
use std::collections::VecDeque;

/// The rules of one caller, and what they admitted.
#[derive(Clone, Debug)]
struct Caller {
    rules: Vec<Rule>,
    /// Times and units in the longest window of the rules.
    admitted: VecDeque<(u64, u64)>,
}

impl Caller {
    fn new(rules: Vec<Rule>) -> Self {
        Self { rules, admitted: VecDeque::new() }
    }

    fn used(&self, rule: &Rule, now_us: u64) -> u64 {
        let in_window = |(at_us, _): &&(u64, u64)| at_us + rule.period_us() > now_us;
        self.admitted.iter().filter(in_window).map(|(_, units)| units).sum()
    }
}

/// A gap in thousandths of a rule's window, and the index of that rule.
fn gap() -> impl Strategy<Value = (u64, usize)> {
    (prop_oneof![3 => Just(0u64), 4 => 0..100u64, 3 => 0..1_100u64], 0..20usize)
}

fn callers(most: usize) -> impl Strategy<Value = Vec<Caller>> {
    prop::collection::vec(charging_logs(3).prop_map(Caller::new), 2..=most)
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn no_caller_lets_another_exceed_its_limit(
        mut callers in callers(12),
        steps in prop::collection::vec((gap(), 0..12usize, 1..4u32), 1..150),
    ) {
        let mut limiter = Limiter::default();
        let mut expires_ms = None;
        let mut now_us = 1_700_000_000_000_000;
        for ((mille, of), by, cost) in steps {
            let rules = &callers[of % callers.len()].rules;
            now_us += rules[of % rules.len()].period_us() / 1_000 * mille;
            if expires_ms.is_some_and(|ms| now_us / 1_000 >= ms) {
                (limiter, expires_ms) = (Limiter::default(), None);
            }
            let by = by % callers.len();
            let caller = &mut callers[by];
            let (outcome, _) = check(&mut limiter, &caller.rules, cost, now_us);
            if let Expiry::At(ms) = limiter.deadline().expiry(now_us, now_us, expires_ms) {
                expires_ms = Some(ms);
            }
            if outcome.summary.verdict == Verdict::Allowed {
                let cost = cost_of(&caller.rules[0], cost);
                caller.admitted.push_back((now_us, cost.into()));
                for rule in &caller.rules {
                    let used = caller.used(rule, now_us);
                    prop_assert!(used <= rule.limit().into(), "{rule} admitted {used}");
                }
            }
        }
    }
}

fn admits(limiter: &mut Limiter, rule: Rule, now_us: u64) -> bool {
    check(limiter, &[rule], 1, now_us).0.summary.verdict == Verdict::Allowed
}

const NOW_US: u64 = 1_700_000_000_000_000;

fn of_seconds(limit: u64, seconds: u64) -> Rule {
    super::rule(Kind::Log, limit, seconds, crate::rule::Unit::Second)
}

#[test]
fn a_log_keeps_what_a_longer_window_needs() {
    let (login, burst) = (of_seconds(5, 86_400), of_seconds(100, 1));
    let mut limiter = Limiter::default();
    let passed = (0..7).filter(|_| admits(&mut limiter, login, NOW_US)).count();
    assert_eq!(passed, 5);
    assert!(admits(&mut limiter, burst, NOW_US + SECOND_US));
    assert!(!admits(&mut limiter, login, NOW_US + 2 * SECOND_US));
    assert!(!admits(&mut limiter, login, NOW_US + 86_399 * SECOND_US));
    assert!(admits(&mut limiter, login, NOW_US + 86_400 * SECOND_US));
}

#[test]
fn a_log_with_one_caller_is_one_allocation() {
    let (daily, burst) = (of_seconds(5, 86_400), of_seconds(100, 1));
    let mut limiter = Limiter::default();
    assert!(admits(&mut limiter, daily, NOW_US));
    assert_eq!(blocks(&mut limiter), 1);
    assert!(admits(&mut limiter, burst, NOW_US + SECOND_US));
    assert_eq!(blocks(&mut limiter), 3, "the log, its extras, and their list");
    assert!(admits(&mut limiter, daily, NOW_US + 3 * SECOND_US));
    assert!(admits(&mut limiter, daily, NOW_US + 5 * SECOND_US));
    assert_eq!(blocks(&mut limiter), 1);
}

#[test]
fn a_log_of_weights_frees_an_empty_list_of_needs() {
    let (daily, burst) = (of_seconds(50, 86_400), of_seconds(100, 1));
    let mut limiter = Limiter::default();
    let mut count = |rule, second| {
        check(&mut limiter, &[rule], 2, NOW_US + second * SECOND_US);
        blocks(&mut limiter)
    };
    assert_eq!(count(daily, 0), 3, "the log, its extras, and the weights");
    assert_eq!(count(burst, 1), 4, "the list of needs too");
    assert_eq!(count(daily, 3), 3);
}

/// The number of allocations of a limiter.
fn blocks(limiter: &mut Limiter) -> usize {
    struct Count(usize);
    impl HeapVisitor for Count {
        fn boxed<T>(&mut self, _: &mut Box<T>) {
            self.0 += 1;
        }
        fn header_slice<H, T: Copy, N: header_slice::Count>(
            &mut self,
            _: &mut HeaderSlice<H, T, N>,
        ) {
            self.0 += 1;
        }
        fn slice<T>(&mut self, owner: &mut Box<[T]>) {
            self.0 += usize::from(!owner.is_empty());
        }
        fn vec<T>(&mut self, owner: &mut Vec<T>) {
            self.0 += usize::from(owner.capacity() > 0);
        }
    }
    let mut count = Count(0);
    limiter.visit_heap(&mut count);
    count.0
}

#[test]
fn a_log_keeps_what_a_larger_limit_needs() {
    let (large, small) = (of_seconds(100, 60), of_seconds(5, 60));
    let mut limiter = Limiter::default();
    let passed = (0..3).filter(|_| admits(&mut limiter, small, NOW_US)).count();
    assert_eq!(passed, 3);
    let passed = (0..110).filter(|_| admits(&mut limiter, large, NOW_US + 1)).count();
    assert_eq!(passed, 97);
    assert!(!admits(&mut limiter, small, NOW_US + 2));
    assert!(!admits(&mut limiter, large, NOW_US + 3));
}

#[test]
fn needs_end_one_window_after_their_last_consumption() {
    let (daily, burst) = (of_seconds(5, 86_400), of_seconds(100, 1));
    let mut limiter = Limiter::default();
    assert!(admits(&mut limiter, daily, NOW_US));
    assert_eq!(limiter.report(NOW_US)[0].rule, "log/1d");
    for second in 1..86_400 {
        assert!(admits(&mut limiter, burst, NOW_US + second * SECOND_US));
    }
    assert_eq!(limiter.report(NOW_US)[0].rule, "log/1d");
    assert!(admits(&mut limiter, burst, NOW_US + 86_400 * SECOND_US));
    assert_eq!(limiter.report(NOW_US)[0].rule, "log/1s");
}

/// The clock steps back by more than the short window and less than the long one.
#[test]
fn a_step_back_clears_shorter_windows_only() {
    let (login, burst) = (of_seconds(5, 86_400), of_seconds(2, 1));
    let mut limiter = Limiter::default();
    let now_us = NOW_US + 3_600 * SECOND_US;
    let passed = (0..7).filter(|_| admits(&mut limiter, login, now_us)).count();
    assert_eq!(passed, 5);
    assert!(
        admits(&mut limiter, burst, NOW_US),
        "after a step back of an hour, a rule of a second admits"
    );
    assert!(admits(&mut limiter, burst, NOW_US));
    assert!(!admits(&mut limiter, burst, NOW_US));
    assert!(!admits(&mut limiter, login, NOW_US));
    assert!(!admits(&mut limiter, login, NOW_US + 86_398 * SECOND_US));
    assert!(admits(&mut limiter, login, NOW_US + 86_400 * SECOND_US));
}
