//! The worked examples of holds, to the millisecond.

use crate::check::{Bounds, Decision, Outcome};
use crate::key::{Check, CheckOptions, Costs, HoldRequest, Limiter, Meta, Settlement, Verdict};
use crate::rule::NamedCost;
use crate::tests::rules_of_line;

/// 2023-11-15 00:00 UTC, a multiple of every period here.
const DAY_US: u64 = 1_700_006_400_000_000;

pub struct Key {
    pub limiter: Limiter,
    pub start_us: u64,
}

pub fn key() -> Key {
    key_at(DAY_US)
}

fn key_at(start_us: u64) -> Key {
    Key { limiter: Limiter::default(), start_us }
}

pub const fn costs(default: u32) -> Settlement<Costs<'static>> {
    Settlement::Cost(Costs { default: Some(default), named: &[] })
}

/// The short reply.
fn integers(decision: Decision) -> [i64; 5] {
    let Decision { verdict, limit, remaining, wait_ms, reset_ms } = decision;
    [verdict.code(), limit, remaining, wait_ms, reset_ms]
}

/// Seconds in microseconds.
fn micros(s: f64) -> i64 {
    (s * 1e6).round() as i64
}

impl Key {
    pub fn at(&self, s: f64) -> u64 {
        self.start_us.saturating_add_signed(micros(s))
    }

    pub fn check_with(
        &mut self,
        s: f64,
        hold: Option<(&str, f64, bool)>,
        cost: u32,
        rules: &str,
    ) -> [i64; 5] {
        let rules = rules_of_line(rules);
        let now_us = self.at(s);
        let hold = hold.map(|(id, for_s, refund)| HoldRequest {
            id: id.as_bytes(),
            end_us: now_us.saturating_add_signed(micros(for_s)),
            refund,
        });
        let options = CheckOptions { hold, ..CheckOptions::default() };
        let check = Check::new(&rules, cost, now_us).with(&options);
        let outcome = self.limiter.check(&check, &mut Vec::new());
        integers(outcome.summary)
    }

    pub fn check(&mut self, s: f64, cost: u32, rules: &str) -> [i64; 5] {
        self.check_with(s, None, cost, rules)
    }

    pub fn hold(&mut self, s: f64, id: &str, for_s: f64, cost: u32, rules: &str) -> [i64; 5] {
        self.check_with(s, Some((id, for_s, false)), cost, rules)
    }

    pub fn peek(&self, s: f64, rules: &str) -> [i64; 5] {
        let rules = rules_of_line(rules);
        let check = Check::new(&rules, 1, self.at(s));
        integers(self.limiter.peek(&check, &mut Vec::new()).summary)
    }

    pub fn settle(&mut self, s: f64, id: &str, settlement: Settlement<Costs<'_>>) -> bool {
        self.limiter.settle(id.as_bytes(), settlement, self.at(s))
    }
}

#[test]
fn settling_returns_the_difference() {
    let mut key = key();
    assert_eq!(key.hold(0.0, "r", 30.0, 40, "100/m"), [0, 100, 60, 0, 60_000]);
    assert_eq!(key.hold(0.0, "r", 30.0, 40, "100/m"), [0, 100, 60, 0, 60_000]);
    assert_eq!(key.check(10.0, 70, "100/m"), [1, 100, 60, 50_000, 50_000]);
    assert!(key.settle(20.0, "r", costs(25)));
    assert_eq!(key.peek(20.0, "100/m"), [0, 100, 75, 0, 40_000]);
    assert!(!key.settle(20.0, "r", costs(25)));
}

#[test]
fn a_wait_foresees_lapses() {
    let mut key = key();
    let hold = Some(("r", 30.0, true));
    assert_eq!(key.check_with(0.0, hold, 40, "100/m"), [0, 100, 60, 0, 30_000]);
    let before = key.limiter.clone();
    assert_eq!(key.check(10.0, 70, "100/m"), [1, 100, 60, 20_000, 20_000]);
    assert_eq!(key.check(29.999, 70, "100/m")[0], 1);
    assert_eq!(key.check(30.0, 70, "100/m")[0], 0);
    key.limiter = before;
    let peeked = super::super::peek(&key.limiter, &rules_of_line("100/m"), 70, key.at(30.0));
    assert_eq!(peeked.0.summary.verdict, Verdict::Allowed);

    let mut key = self::key();
    key.hold(0.0, "r", 30.0, 40, "100/m");
    assert_eq!(key.check(31.0, 70, "100/m"), [1, 100, 60, 29_000, 29_000]);
}

const BUCKET: &str = "bucket:10/s,burst=50";

#[test]
fn buckets_return_what_has_not_drained() {
    let held = || {
        let mut key = key();
        assert_eq!(key.hold(0.0, "h", 60.0, 50, BUCKET), [0, 50, 0, 0, 5_000]);
        key
    };
    let mut key = held();
    assert!(key.settle(2.0, "h", costs(40)));
    assert_eq!(key.peek(2.0, BUCKET)[2], 30);

    let mut key = held();
    assert_eq!(key.check(5.0, 30, BUCKET)[0], 0);
    assert!(key.settle(5.0, "h", costs(40)));
    assert_eq!(key.peek(5.0, BUCKET)[2], 20);

    let mut key = held();
    assert_eq!(key.check(3.0, 30, BUCKET)[0], 0);
    assert!(key.settle(4.0, "h", costs(40)));
    assert_eq!(key.peek(4.0, BUCKET)[2], 20);

    let mut key = held();
    assert!(key.settle(2.0, "h", costs(80)));
    assert_eq!(key.peek(2.0, BUCKET), [1, 50, 0, 1_100, 6_000]);

    let mut key = self::key();
    key.hold(0.0, "a", 60.0, 20, BUCKET);
    key.hold(0.0, "b", 60.0, 20, BUCKET);
    assert!(key.settle(0.0, "b", Settlement::Refund));
    assert!(key.settle(0.0, "a", Settlement::Refund));
    assert!(key.limiter.is_empty());
}

#[test]
fn units_return_to_their_own_window() {
    let mut key = key_at(DAY_US - 10_000_000);
    key.hold(0.0, "h", 60.0, 400, "fixed:1000/d");
    let mut more = Key { limiter: key.limiter.clone(), ..key };
    assert!(key.settle(20.0, "h", costs(100)));
    assert_eq!(key.peek(20.0, "fixed:1000/d")[2], 1_000);
    assert!(more.settle(20.0, "h", costs(500)));
    assert_eq!(more.peek(20.0, "fixed:1000/d")[2], 900);
}

#[test]
fn many_holds_share_one_bucket() {
    let (mut key, rule) = (key(), "bucket:100000/m");
    for n in 0..25 {
        assert_eq!(key.hold(0.0, &format!("h{n}"), 120.0, 4_000, rule)[0], 0);
    }
    assert_eq!(key.hold(0.0, "h25", 120.0, 4_000, rule), [1, 100_000, 0, 2_400, 60_000]);
    assert!(key.settle(1.0, "h0", costs(1_500)));
    assert_eq!(key.peek(1.0, rule)[2], 4_166);
    assert_eq!(key.check(1.0, 4_000, rule)[0], 0);
}

#[test]
fn named_costs_settle_the_rules_of_their_name() {
    let rules = "50/m,cost=1 bucket:40000/m,name=in bucket:8000/m,name=out,cost=0";
    let mut key = key();
    key.hold(0.0, "h", 60.0, 3_000, rules);
    let out = crate::rule::Name::new(b"out").unwrap();
    let named = &[NamedCost { name: out, cost: 700 }];
    let settlement = Settlement::Cost(Costs { default: Some(2_000), named });
    assert!(key.settle(0.0, "h", settlement));
    assert_eq!(key.peek(0.0, "50/m,cost=1")[2], 49);
    assert_eq!(key.peek(0.0, "bucket:40000/m,name=in")[2], 38_000);
    assert_eq!(key.peek(0.0, "bucket:8000/m,name=out")[2], 7_300);
}

#[test]
fn slots_are_the_live_holds() {
    let (mut key, rule) = (key(), "slots:2");
    assert_eq!(key.hold(0.0, "a", 30.0, 1, rule), [0, 2, 1, 0, 30_000]);
    assert_eq!(key.hold(5.0, "b", 10.0, 1, rule), [0, 2, 0, 0, 25_000]);
    assert_eq!(key.hold(6.0, "c", 30.0, 1, rule), [1, 2, 0, 9_000, 24_000]);
    assert!(key.limiter.renew(b"b", key.at(37.0), key.at(7.0)));
    assert_eq!(key.hold(8.0, "c", 30.0, 1, rule), [1, 2, 0, 22_000, 29_000]);
    assert!(key.settle(9.0, "a", Settlement::AsCharged));
    assert_eq!(key.hold(9.0, "c", 30.0, 1, rule), [0, 2, 0, 0, 30_000]);
    assert!(!key.settle(9.0, "a", Settlement::AsCharged));
    assert!(!key.limiter.renew(b"a", key.at(39.0), key.at(9.0)));
    let repeated = key.hold(9.0, "b", 28.0, 1, rule);
    assert_eq!((repeated[0], repeated[2]), (0, 0));
    // Lapsed slots serve the next request at once.
    assert_eq!(key.hold(36.999, "d", 5.0, 1, rule)[0], 1);
    assert_eq!(key.hold(37.0, "d", 5.0, 1, rule)[0], 0);
    key.limiter.lapse(key.at(100.0));
    assert!(key.limiter.is_empty());
}

#[test]
fn one_check_holds_slots_and_budgets() {
    let rules = "slots:20,cost=1 500/m,cost=1 bucket:100000/m fixed:2000000/d";
    let mut key = key();
    assert_eq!(key.check_with(0.0, Some(("req9", 120.0, true)), 4_000, rules)[0], 0);
    assert_eq!(key.peek(0.0, "slots:20")[2], 19);
    assert!(key.settle(1.0, "req9", costs(2_710)));
    assert_eq!(key.peek(1.0, "slots:20"), [0, 20, 20, 0, 0]);
    assert_eq!(key.peek(1.0, "500/m")[2], 499);
    assert_eq!(key.peek(1.0, "fixed:2000000/d")[2], 2_000_000 - 2_710);
    // 1666 2/3 of the 2710 have drained.
    assert_eq!(key.peek(1.0, "bucket:100000/m")[2], 100_000 - 1_044);
}

impl Key {
    fn grant(
        &mut self,
        s: f64,
        hold: Option<(&str, f64)>,
        range: (u32, u32),
        rules: &str,
    ) -> [i64; 6] {
        let rules = rules_of_line(rules);
        let now_us = self.at(s);
        let hold = hold.map(|(id, for_s)| HoldRequest {
            id: id.as_bytes(),
            end_us: now_us.saturating_add_signed(micros(for_s)),
            refund: false,
        });
        let options = CheckOptions { hold, up_to: Some(range.1), ..CheckOptions::default() };
        let check = Check::new(&rules, range.0, now_us).with(&options);
        let outcome = self.limiter.check(&check, &mut Vec::new());
        let decided = Check { cost: outcome.cost, ..check };
        let [verdict, limit, remaining, wait_ms, reset_ms] = integers(outcome.summary);
        let granted = decided.granted(outcome.summary.verdict).unwrap();
        [verdict, limit, remaining, wait_ms, reset_ms, granted.into()]
    }
}

#[test]
fn grants_are_the_most_that_passes() {
    let (mut key, rule) = (key(), "250/m");
    assert_eq!(key.grant(0.0, None, (1, 100), rule), [0, 250, 150, 0, 60_000, 100]);
    assert_eq!(key.grant(0.0, None, (1, 100), rule), [0, 250, 50, 0, 60_000, 100]);
    assert_eq!(key.grant(0.0, None, (60, 100), rule)[5], 0);
    assert_eq!(key.peek(0.0, rule)[2], 50);
    assert_eq!(key.grant(0.0, None, (1, 100), rule), [0, 250, 0, 0, 60_000, 50]);
    assert_eq!(key.grant(0.0, None, (1, 100), rule), [1, 250, 0, 60_000, 60_000, 0]);
    let mut key = self::key();
    assert_eq!(key.grant(0.0, Some(("j", 9.0)), (1, 10), "slots:8")[5], 8);
    // The answer to a repeat has the original grant.
    assert_eq!(key.grant(1.0, Some(("j", 9.0)), (5, 20), "slots:8")[5], 8);
}

#[test]
fn a_reset_forgets_holds_whose_states_are_gone() {
    let mut key = key();
    key.hold(0.0, "a", 30.0, 2, "window:5/m");
    let now_us = key.at(0.0);
    assert_eq!(key.limiter.refund(2, now_us, &[]), 2);
    assert_eq!(key.limiter.live_holds(now_us), 1);
    assert!(key.limiter.reset(now_us));
    assert!(key.limiter.is_empty());
    assert!(!key.limiter.reset(now_us));
}

#[test]
fn a_charge_follows_its_log_entry_when_the_clock_steps_back() {
    let mut key = key();
    key.hold(600.0, "r", 900.0, 5, "10/h");
    assert_eq!(key.check(0.0, 1, "10/m"), [0, 10, 9, 0, 60_000]);
    assert_eq!(key.peek(0.0, "10/h")[2], 4);
    assert!(key.settle(0.0, "r", Settlement::Refund));
    assert_eq!(key.peek(0.0, "10/h")[2], 9);
}

#[test]
fn a_repeat_answers_with_the_rest_of_its_turn() {
    let (mut key, rule) = (key(), "leaky:1/s,queue=9 window:90/m");
    assert_eq!(key.hold(0.0, "a", 30.0, 3, rule)[3], 0);
    assert_eq!(key.hold(0.0, "b", 30.0, 2, rule)[3], 3_000);
    assert_eq!(key.hold(1.0, "b", 30.0, 2, rule)[3], 2_000);
}

#[test]
fn a_repeat_at_another_cost_is_refused() {
    let mut key = key();
    let rules = rules_of_line("window:5/m bucket:9/m");
    let hold = HoldRequest { id: b"a", end_us: key.at(30.0), refund: false };
    let options = CheckOptions { hold: Some(hold), ..CheckOptions::default() };
    let mut is_refused = |cost| {
        let check = Check::new(&rules, cost, DAY_US).with(&options);
        key.limiter.check_within(Bounds::ANY, &check, &mut Vec::new()).is_err()
    };
    assert_eq!([2, 3, 1, 2].map(&mut is_refused), [false, true, true, false]);
}

#[test]
fn shadows_and_rules_with_their_own_cost_lower_no_grant() {
    let (mut key, rules) = (key(), "window:9/m,cost=2 window:5/m,name=x,shadow");
    for s in [0.0, 1.0] {
        assert_eq!(key.grant(s, Some(("j", 9.0)), (4, 8), rules)[5], 8);
    }
}

/// A check of a range with `META`.
fn ranged(limiter: &mut Limiter, rules: &str) -> (Outcome, Vec<Decision>) {
    let meta = Some(Meta { text: b"m", keep: 9 });
    let options = CheckOptions { up_to: Some(8), meta, ..CheckOptions::default() };
    let (rules, mut decisions) = (rules_of_line(rules), Vec::new());
    let check = Check::new(&rules, 2, DAY_US).with(&options);
    (limiter.check(&check, &mut decisions), decisions)
}

#[test]
fn a_denied_range_costs_its_lower_bound() {
    let mut limiter = Limiter::default();
    let (denied, _) = ranged(&mut limiter, "window:0/m,cost=1 window:5/m,name=x");
    assert_eq!((denied.summary.verdict, denied.cost), (Verdict::Limited, 2));
    assert_eq!(limiter.last_checks().next().map(|entry| entry.cost), Some(2));
}

#[test]
fn a_shadow_decides_on_what_is_granted() {
    let (granted, decisions) =
        ranged(&mut Limiter::default(), "window:5/m window:4/m,name=x,shadow");
    assert_eq!(granted.cost, 5);
    assert_eq!((decisions[1].verdict, decisions[1].wait_ms), (Verdict::Limited, -1));
}

#[test]
fn repeats_and_pauses_add_no_history() {
    let (mut limiter, rules) = (Limiter::default(), rules_of_line("window:5/m"));
    let check = |limiter: &mut Limiter, id: &str| {
        let hold = Some(HoldRequest { id: id.as_bytes(), end_us: DAY_US + 9, refund: false });
        let meta = Some(Meta { text: b"m", keep: 9 });
        let options = CheckOptions { meta, hold, ..CheckOptions::default() };
        limiter.check(&Check::new(&rules, 1, DAY_US).with(&options), &mut Vec::new());
        limiter.last_checks().count()
    };
    assert_eq!([check(&mut limiter, "a"), check(&mut limiter, "a")], [1, 1]);
    limiter.pause_until(DAY_US + 9, DAY_US, b"429");
    assert_eq!([check(&mut limiter, "a"), check(&mut limiter, "b")], [1, 1]);
}

#[test]
fn a_lapse_is_due_only_if_a_refunding_hold_has_ended() {
    let mut key = key();
    key.check_with(0.0, Some(("a", 30.0, false)), 2, "window:5/m");
    key.check_with(0.0, Some(("b", 40.0, true)), 2, "window:5/m");
    let lapses = [30.0, 39.0, 40.0, 41.0].map(|s| {
        let now_us = key.at(s);
        key.limiter.lapse_if_due(now_us)
    });
    assert_eq!(lapses, [false, false, true, false]);
}

#[test]
fn a_refund_to_the_rule_of_a_hold_keeps_its_charge() {
    let (mut key, rules) = (key(), "window:5/m");
    key.hold(0.0, "a", 30.0, 3, rules);
    assert_eq!(key.limiter.refund(1, DAY_US, &rules_of_line(rules)), 1);
    assert_eq!(key.peek(0.0, rules)[2], 3);
    assert!(key.settle(0.0, "a", Settlement::Refund));
    assert_eq!(key.peek(0.0, rules)[2], 5);
}

#[test]
fn dropping_a_state_keeps_the_charges_on_other_states() {
    let (mut key, held, dropped) = (key(), "window:5/m,name=a", "bucket:5/m,name=b");
    key.hold(0.0, "a", 30.0, 3, held);
    key.check(0.0, 1, dropped);
    assert_eq!(key.limiter.refund(1, DAY_US, &rules_of_line(dropped)), 1);
    assert_eq!(key.limiter.states().len(), 1);
    assert!(key.settle(0.0, "a", Settlement::Refund));
    assert_eq!(key.peek(0.0, held)[2], 5);
}
