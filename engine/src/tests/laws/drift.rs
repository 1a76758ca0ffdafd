//! Nothing drifts in a flood of ten million requests against uneven rates. After each request, the
//! number admitted so far is what the definition says.

use super::{rule, spec};
use crate::algorithm::window::naive::NaiveWindow;
use crate::key::{Check, Limiter, Verdict};
use crate::rule::Kind;
use crate::rule::{Rule, SECOND_US, Unit};

const REQUESTS: u64 = 10_000_000;
/// The gap between requests: shorter than any of the rates below allows.
const GAP_US: u64 = 7_919;
/// 7 units in 13 seconds.
const LIMIT: u64 = 7;
const WINDOW_US: u64 = 13 * SECOND_US;
const START_US: u64 = 1_700_000_000_123_457;

/// Floods one rule. After each request, compares how many have passed with the expected number.
/// `expected` gets the number of requests and the time since the first.
fn flood(rule: Rule, mut expected: impl FnMut(u64, u64) -> u64) {
    let rules = [rule];
    let mut limiter = Limiter::default();
    let mut decisions = Vec::with_capacity(1);
    let mut admitted = 0u64;
    for request in 0..REQUESTS {
        let elapsed_us = request * GAP_US;
        let check = Check::new(&rules, 1, START_US + elapsed_us);
        let outcome = limiter.check(&check, &mut decisions);
        admitted += u64::from(outcome.summary.verdict == Verdict::Allowed);
        assert_eq!(admitted, expected(request + 1, elapsed_us), "after {elapsed_us} us");
    }
}

/// `at_once` units, and then one more whenever one has drained.
fn drained(at_once: u64) -> impl Fn(u64, u64) -> u64 {
    move |requests, elapsed_us| requests.min(at_once + elapsed_us * LIMIT / WINDOW_US)
}

#[test]
fn a_bucket_admits_its_burst_and_what_drains() {
    let spec = spec(Kind::Bucket, LIMIT, 13, Unit::Second).with("burst", 20);
    flood(spec.validate().unwrap(), drained(20));
}

#[test]
fn a_leaky_bucket_admits_its_queue_and_what_drains() {
    let spec = spec(Kind::Leaky, LIMIT, 13, Unit::Second).with("queue", 4);
    flood(spec.validate().unwrap(), drained(5));
}

/// The log's window starts again with every `per_window`th request.
#[test]
fn a_log_admits_its_limit_in_every_window() {
    let per_window = WINDOW_US.div_ceil(GAP_US);
    flood(rule(Kind::Log, LIMIT, 13, Unit::Second), |requests, _| {
        requests / per_window * LIMIT + (requests % per_window).min(LIMIT)
    });
}

#[test]
fn an_interval_admits_its_burst_in_every_period() {
    let spec = spec(Kind::Bucket, LIMIT, 13, Unit::Second).with("refill", 1);
    let per_window = WINDOW_US.div_ceil(GAP_US);
    flood(spec.validate().unwrap(), |requests, _| {
        requests / per_window * LIMIT + (requests % per_window).min(LIMIT)
    });
}

#[test]
fn a_fixed_window_admits_its_limit_in_every_window() {
    let first = START_US / WINDOW_US;
    flood(rule(Kind::Fixed, LIMIT, 13, Unit::Second), |requests, elapsed_us| {
        let now_us = START_US + elapsed_us;
        let (window, into_us) = (now_us / WINDOW_US - first, now_us % WINDOW_US);
        // Every window before the present one had more requests than its limit.
        window * LIMIT + (into_us / GAP_US + 1).min(LIMIT).min(requests)
    });
}

/// A sliding window has no closed form, so the test evaluates its formula step by step.
#[test]
fn a_sliding_window_admits_what_its_formula_says() {
    let spec = spec(Kind::Window, LIMIT, 13, Unit::Second).with("res", 3);
    let rule = spec.validate().unwrap();
    let mut window = NaiveWindow::of_units(&rule, START_US.into(), 0);
    let mut admitted = 0;
    flood(rule, |_, elapsed_us| {
        let now = i128::from(START_US + elapsed_us);
        if window.fits(&rule, now, 1) {
            window.take(now, 1);
            admitted += 1;
        }
        admitted
    });
}
