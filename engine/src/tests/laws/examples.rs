//! The worked examples of the documentation.

use super::{check, peek, rule, spec, would_pass};
use crate::check::{Budget, Decision};
use crate::key::{Change, Check, CheckOptions, Costs, HoldRequest, Limiter, Settlement, Verdict};
use crate::rule::Kind;
use crate::rule::{NamedCost, Rule, RuleSpec, SECOND_US, Unit};
use crate::tests::rules_of_line;

/// 2024-01-01T00:00:00Z, the start of a minute, an hour and a day.
const START_US: u64 = 1_704_067_200 * SECOND_US;

fn at(seconds: u64) -> u64 {
    START_US + seconds * SECOND_US
}

fn clock(hours: u64, minutes: u64, seconds: u64) -> u64 {
    at(hours * 3_600 + minutes * 60 + seconds)
}

/// The number of requests that pass; each costs 1.
fn passing(limiter: &mut Limiter, rules: &[Rule], requests: usize, now_us: u64) -> usize {
    let passes = |_: &usize| check(limiter, rules, 1, now_us).0.summary.verdict == Verdict::Allowed;
    (0..requests).filter(passes).count()
}

#[test]
fn a_log_with_two_rules_waits_for_the_second() {
    let rules = [rule(Kind::Log, 1, 1, Unit::Second), rule(Kind::Log, 5, 1, Unit::Minute)];
    let mut limiter = Limiter::default();
    let past = [(33, 35), (33, 37), (34, 14), (34, 26), (34, 28)];
    for (minutes, seconds) in past {
        assert_eq!(passing(&mut limiter, &rules, 1, clock(12, minutes, seconds)), 1);
    }
    let (denied, decisions) = check(&mut limiter, &rules, 1, clock(12, 34, 31));
    assert_eq!(denied.summary.verdict, Verdict::Limited);
    assert_eq!(denied.summary.limit, 5);
    assert_eq!(denied.summary.wait_ms, 4_000);
    assert_eq!(decisions[0].verdict, Verdict::Allowed);
    assert_eq!(decisions[1].verdict, Verdict::Limited);
    assert_eq!(denied.change, Change::Nothing);
    assert_eq!(passing(&mut limiter, &rules, 1, clock(12, 34, 40)), 1);
}

/// The number of requests that pass at `then_s`, after 100 have passed at `burst_s`. Both times are in
/// tenths of a second.
fn window_after(res: u64, burst_s: u64, then_s: u64) -> usize {
    let spec = spec(Kind::Window, 100, 1, Unit::Minute).with("res", res.cast_signed());
    let rules = [spec.validate().unwrap()];
    let mut limiter = Limiter::default();
    // In tenths, because 0.99 min is 59.4 s.
    let tenths = |tenths: u64| START_US + tenths * SECOND_US / 10;
    assert_eq!(passing(&mut limiter, &rules, 200, tenths(burst_s)), 100);
    passing(&mut limiter, &rules, 200, tenths(then_s))
}

#[test]
fn a_sliding_window_weighs_the_window_before() {
    assert_eq!(window_after(1, 150, 750), 25);
    assert_eq!(window_after(1, 150, 1_050), 75);
    assert_eq!(window_after(2, 150, 750), 50);
    assert_eq!(window_after(1, 594, 750), 25);
    assert_eq!(window_after(2, 594, 750), 0);
}

#[test]
fn a_fixed_window_lets_twice_its_limit_pass_but_a_log_does_not() {
    for (kind, passed) in [(Kind::Fixed, 200), (Kind::Log, 100)] {
        let rules = [rule(kind, 100, 1, Unit::Minute)];
        let mut limiter = Limiter::default();
        let first = passing(&mut limiter, &rules, 150, at(59));
        let second = passing(&mut limiter, &rules, 150, at(60));
        assert_eq!(first + second, passed, "{kind:?}");
    }
}

/// `10/s 120/m 240/h` for an IP and a user at once. The test peeks at both keys and records on both
/// only if both admit, so this is all or nothing.
#[test]
fn a_flood_over_two_keys_gets_all_that_the_hour_allows() {
    let rules = [
        rule(Kind::Log, 10, 1, Unit::Second),
        rule(Kind::Log, 120, 1, Unit::Minute),
        rule(Kind::Log, 240, 1, Unit::Hour),
    ];
    let mut keys = [Limiter::default(), Limiter::default()];
    let mut passed = Vec::new();
    for request in 0..2 * 3_600 * 100u64 {
        let now_us = at(0) + request * SECOND_US / 100;
        let passes =
            |key: &Limiter| peek(key, &rules, 1, now_us).0.summary.verdict == Verdict::Allowed;
        if keys.iter().all(passes) {
            for key in &mut keys {
                key.record(&Check::new(&rules, 1, now_us), Change::Admitted);
            }
            passed.push(now_us);
        }
    }
    for hour in 0..2 {
        let within = at(hour * 3_600)..at((hour + 1) * 3_600);
        assert_eq!(passed.iter().filter(|at| within.contains(at)).count(), 240);
    }
}

#[test]
fn a_limit_of_0_admits_only_a_cost_of_0() {
    for kind in Kind::RATES {
        let rules = [rule(kind, 0, 1, Unit::Minute)];
        let mut limiter = Limiter::default();
        let summary = check(&mut limiter, &rules, 1, at(0)).0.summary;
        assert_eq!((summary.verdict, summary.limit, summary.wait_ms), (Verdict::Limited, 0, -1));
        assert_eq!(summary.remaining, 0);
        assert_eq!(check(&mut limiter, &rules, 0, at(0)).0.summary.verdict, Verdict::Allowed);
        assert!(limiter.is_empty());
    }
}

/// The first request of a queue has its turn at once, and the next turns follow `W/L` apart.
#[test]
fn a_queue_gives_each_request_its_turn() {
    let spec = spec(Kind::Leaky, 2, 1, Unit::Second).with("queue", 3);
    let rules = [spec.validate().unwrap()];
    let mut limiter = Limiter::default();
    for turn_ms in [0, 500, 1_000, 1_500] {
        let summary = check(&mut limiter, &rules, 1, at(0)).0.summary;
        assert_eq!((summary.verdict, summary.wait_ms), (Verdict::Allowed, turn_ms));
    }
    let summary = check(&mut limiter, &rules, 1, at(0)).0.summary;
    assert_eq!((summary.verdict, summary.limit, summary.wait_ms), (Verdict::Limited, 4, 500));
}

/// A check with a default cost and named costs.
fn check_costs(
    limiter: &mut Limiter,
    line: &str,
    named: &[(&str, u32)],
    cost: u32,
) -> (Decision, Vec<i64>) {
    let mut rules = crate::tests::rules_of_line(line);
    for rule in &mut rules {
        let name = rule.name().map(|name| name.as_str().to_owned());
        if let Some((_, cost)) = named.iter().find(|(of, _)| Some(*of) == name.as_deref()) {
            rule.set_named_cost(*cost);
        }
    }
    let (outcome, decisions) = check(limiter, &rules, cost, at(0));
    (outcome.summary, decisions.iter().map(|decision| decision.remaining).collect())
}

fn five(decision: Decision) -> [i64; 5] {
    let Decision { verdict, limit, remaining, wait_ms, reset_ms } = decision;
    [verdict.code(), limit, remaining, wait_ms, reset_ms]
}

#[test]
fn a_request_and_its_tokens_have_a_cost_each() {
    let llm = "50/m,cost=1 bucket:40000/m,name=in bucket:8000/m,name=out";
    let mut limiter = Limiter::default();
    for n in 1..=8 {
        let (summary, left) = check_costs(&mut limiter, llm, &[("out", 1_000)], 3_000);
        assert_eq!(five(summary), [0, 8_000, 8_000 - 1_000 * n, 0, 7_500 * n]);
        assert_eq!(left, [50 - n, 40_000 - 3_000 * n, 8_000 - 1_000 * n]);
    }
    let full = limiter.clone();
    let (denied, _) = check_costs(&mut limiter, llm, &[("out", 1_000)], 3_000);
    assert_eq!(five(denied), [1, 8_000, 0, 7_500, 60_000]);
    assert_eq!(limiter, full);

    let mut limiter = Limiter::default();
    let shared = "50/m,cost=1 bucket:100000/m";
    let (summary, _) = check_costs(&mut limiter, shared, &[], 4_000);
    assert_eq!(five(summary), [0, 100_000, 96_000, 0, 2_400]);
    for _ in 1..25 {
        assert_eq!(check_costs(&mut limiter, shared, &[], 4_000).0.verdict, Verdict::Allowed);
    }
    let (denied, _) = check_costs(&mut limiter, shared, &[], 4_000);
    assert_eq!(five(denied), [1, 100_000, 0, 2_400, 60_000]);
}

/// Of equal fractions the first rule decides. A rule that costs nothing decides only if all
/// rules cost nothing.
#[test]
fn the_least_fraction_decides() {
    for (line, cost, limit) in [
        // 2 left at a cost of 2, and 6 left at a cost of 6: equal fractions.
        ("bucket:4/m,cost=2 bucket:12/h,cost=6", 1, 4),
        ("bucket:12/h,cost=6 bucket:4/m,cost=2", 1, 12),
        ("bucket:4/m,cost=2 bucket:11/h,cost=6", 1, 11),
        ("bucket:1/m,cost=0 bucket:900/h", 3, 900),
        ("bucket:900/h bucket:1/m,cost=0", 3, 900),
        ("bucket:9/m,cost=0 bucket:3/h", 0, 3),
        ("bucket:9/m bucket:3/h", 2, 3),
        (
            "bucket:1000000000/m,cost=999999999 bucket:1000000000/h,cost=1000000000",
            1,
            1_000_000_000,
        ),
    ] {
        let (summary, _) = check_costs(&mut Limiter::default(), line, &[], cost);
        assert_eq!((summary.verdict, summary.limit), (Verdict::Allowed, limit), "{line}");
    }
}

#[test]
fn a_rule_that_costs_nothing_keeps_its_state() {
    let mut limiter = Limiter::default();
    let rules = crate::tests::rules_of_line("bucket:9/m,cost=0 fixed:9/h 5/d,cost=0");
    check(&mut limiter, &rules, 2, at(0));
    assert_eq!(limiter.states().len(), 1);
    let free = crate::tests::rules_of_line("bucket:9/m,cost=0 fixed:9/h,cost=0");
    assert_eq!(check(&mut limiter, &free, 2, at(1)).0.change, Change::Nothing);
    assert_eq!(limiter.states()[0].meter().last_us(), at(0));
}

#[test]
fn a_cost_above_the_limit_never_passes() {
    let (denied, _) = check_costs(&mut Limiter::default(), "bucket:9/m,cost=10 99/m", &[], 1);
    assert_eq!((denied.verdict, denied.limit, denied.wait_ms), (Verdict::Limited, 9, -1));
}

/// The name of a log rule is only a label.
#[test]
fn a_named_log_rule_reads_the_keys_log() {
    let named =
        RuleSpec { name: crate::rule::Name::new(b"free"), ..spec(Kind::Log, 1, 1, Unit::Second) };
    let rules = [named.validate().unwrap()];
    let mut limiter = Limiter::default();
    assert_eq!(passing(&mut limiter, &rules, 5, at(0)), 1);
    let unnamed = [rule(Kind::Log, 1, 1, Unit::Second)];
    assert_eq!(passing(&mut limiter, &unnamed, 5, at(0)), 0);
}

/// A rule that denies only because it was just charged does not ban.
#[test]
fn a_charge_causes_no_ban() {
    let bans = RuleSpec {
        count_all: true,
        ban: Some(crate::rule::Ladder::of_ms(&[3_600_000])),
        ..spec(Kind::Fixed, 1, 1, Unit::Minute)
    };
    let rules = [rule(Kind::Log, 1, 1, Unit::Day), bans.validate().unwrap()];
    let mut limiter = Limiter::default();
    assert_eq!(passing(&mut limiter, &rules, 1, at(0)), 1);
    // A minute later the log denies, and the window is charged until it is full.
    let denied = check(&mut limiter, &rules, 1, at(60)).0;
    assert_eq!((denied.change, denied.ban), (Change::Charged, None));
    // Now the window denies as well.
    let banned = check(&mut limiter, &rules, 1, at(61)).0;
    assert_eq!(banned.ban.map(|ban| ban.rule), Some(1));
    assert_eq!(check(&mut limiter, &rules, 1, at(62)).0.summary.verdict, Verdict::Blocked);
}

/// A check that creates a state drops stale states, but no state that it may take a hold on.
#[test]
fn a_hold_drops_no_state_of_its_check() {
    let rules = rules_of_line("bucket:1/1s,cost=0,name=a bucket:1/1s,name=b");
    let mut limiter = Limiter::default();
    assert_eq!(passing(&mut limiter, &rules_of_line("bucket:1/1s,name=a"), 1, at(0)), 1);
    let hold = HoldRequest { id: b"h", end_us: at(99), refund: false };
    let options = CheckOptions { hold: Some(hold), ..CheckOptions::default() };
    limiter.check(&Check::new(&rules, 1, at(30)).with(&options), &mut Vec::new());
    let named = [NamedCost { name: *rules[0].name().unwrap(), cost: 1 }];
    assert!(limiter.settle(b"h", Settlement::Cost(Costs { default: None, named: &named }), at(30)));
    assert!(!would_pass(&limiter, &rules_of_line("bucket:1/1s,name=a"), 1, at(30)));
}

/// A refund to several log rules reaches back by their longest window, in any order of the rules.
#[test]
fn a_refund_reaches_back_the_longest_window() {
    let rules = [rule(Kind::Log, 3, 1, Unit::Second), rule(Kind::Log, 5, 1, Unit::Minute)];
    let mut limiter = Limiter::default();
    assert_eq!(passing(&mut limiter, &rules, 3, at(0)), 3);
    assert_eq!(limiter.refund(2, at(30), &rules), 2);
    assert_eq!(passing(&mut limiter, &rules[1..], 9, at(30)), 4);
}

/// The clock stepped back, so the log is read at its last time. At that time the shorter window is
/// over.
#[test]
fn a_window_that_is_over_at_the_logs_time_has_reset() {
    let rules = [
        RuleSpec { count_all: true, ..spec(Kind::Log, 1, 1, Unit::Hour) }.validate().unwrap(),
        rule(Kind::Log, 1, 1, Unit::Second),
    ];
    let mut limiter = Limiter::default();
    assert_eq!(passing(&mut limiter, &rules, 1, at(10)), 1);
    assert_eq!(check(&mut limiter, &rules, 1, at(12)).0.change, Change::Charged);
    // The clock steps back to the time of the admitted request.
    let second = peek(&limiter, &rules, 1, at(10)).1[1];
    assert_eq!((second.verdict, second.remaining, second.reset_ms), (Verdict::Allowed, 1, 0));
}

/// A queue whose limit was set to 0 admits a cost of 0 at once.
#[test]
fn a_queue_with_a_limit_of_0_gives_no_turns() {
    let rules = [rule(Kind::Leaky, 2, 1, Unit::Second)];
    let mut limiter = Limiter::default();
    assert_eq!(passing(&mut limiter, &rules, 1, at(1)), 1);
    let none = [rule(Kind::Leaky, 0, 1, Unit::Second)];
    let summary = check(&mut limiter, &none, 0, at(0)).0.summary;
    assert_eq!((summary.verdict, summary.wait_ms, summary.reset_ms), (Verdict::Allowed, 0, 1_500));
}

/// One rule is used up, and then another rule of the same identity is checked. That check passes
/// when the state ends; the first rule has set this end.
#[test]
fn no_wait_reaches_beyond_the_end_of_a_state() {
    for (consumed, units, asked, end_ms) in [
        ("bucket:1/1s,name=n", 1, "bucket:1/1h,name=n", 1_000),
        ("leaky:1/1s,queue=0,name=n", 1, "leaky:1/1h,queue=0,name=n", 1_000),
        ("window:1/1s,name=n", 1, "window:1/1h,name=n", 2_000),
        ("window:1/1s,res=4,name=n", 1, "window:1/1h,res=4,name=n", 1_250),
        ("fixed:1/1s,name=n", 1, "fixed:1/1h,name=n", 1_000),
        ("fixed:1/1s,align=first,name=n", 1, "fixed:1/1h,align=first,name=n", 1_000),
        ("bucket:1/1s,refill=interval,name=n", 1, "bucket:1/1h,refill=interval,name=n", 1_000),
        ("bucket:100/s", 100, "bucket:1/s,burst=100", 1_000),
        ("leaky:100/s,queue=99", 100, "leaky:1/s,queue=99", 1_000),
        ("5/3s", 5, "5/1h", 3_000),
        ("3/s", 3, "1/h,count=all", 1_000),
    ] {
        let [consumed, asked] = [consumed, asked].map(rules_of_line);
        let mut limiter = Limiter::default();
        assert_eq!(
            check(&mut limiter, &consumed, units, at(0)).0.summary.verdict,
            Verdict::Allowed
        );
        let (denied, decisions) = peek(&limiter, &asked, 1, at(0));
        let summary = denied.summary;
        assert_eq!((summary.verdict, summary.wait_ms), (Verdict::Limited, end_ms), "{asked:?}");
        assert_eq!(summary.reset_ms, end_ms, "{asked:?}");
        let (check_at, budget) = (Check::new(&asked, 0, at(0)), Budget::of_command());
        let next = limiter.rule_reports(&check_at, &decisions, &budget).next().unwrap().next_ms;
        assert!(0 < next && next <= end_ms, "{next}");
        let end_us = at(0) + end_ms.cast_unsigned() * 1_000;
        assert!(!would_pass(&limiter, &asked, 1, end_us - 1));
        let (empty, _) = peek(&Limiter::default(), &asked, 1, end_us);
        assert_eq!(peek(&limiter, &asked, 1, end_us).0, empty, "{asked:?}");
        assert_eq!(limiter.report(end_us)[0].consumed, 0);
        assert_eq!(limiter.clone().refund(1, end_us, &asked), 0);
        // The next consumption also treats the state as empty, and this rule then sets its end.
        let mut fresh = Limiter::default();
        for limiter in [&mut limiter, &mut fresh] {
            check(limiter, &asked, 1, end_us);
        }
        let later_us = end_us + 500;
        assert_eq!(peek(&limiter, &asked, 1, later_us), peek(&fresh, &asked, 1, later_us));
    }
}

/// A cost above the capacity never passes, although the state that it reads ends.
#[test]
fn the_end_of_a_state_admits_no_cost_above_the_capacity() {
    let mut limiter = Limiter::default();
    check(&mut limiter, &rules_of_line("bucket:5/s"), 5, at(0));
    for (asked, cost) in [("bucket:0/s", 1), ("bucket:5/s", 6), ("bucket:1/s", 2)] {
        let summary = peek(&limiter, &rules_of_line(asked), cost, at(0)).0.summary;
        assert_eq!((summary.verdict, summary.wait_ms), (Verdict::Limited, -1), "{asked}");
    }
}

/// A check of cost 0 consumes nothing, so it does not move the end of a state.
#[test]
fn a_check_of_cost_0_takes_over_no_state() {
    let mut limiter = Limiter::default();
    check(&mut limiter, &rules_of_line("bucket:5/s,name=n"), 5, at(0));
    for rule in ["bucket:5/h,name=n", "window:5/h,name=n"] {
        let before = limiter.clone();
        assert_eq!(
            check(&mut limiter, &rules_of_line(rule), 0, at(0)).0.summary.verdict,
            Verdict::Allowed
        );
        assert_eq!(limiter, before);
    }
}
