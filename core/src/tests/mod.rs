//! These types answer exactly as the engine does, and refuse all rules that the engine must not get.

mod building;

use super::*;
use building::built;
use core::error::Error;
use proptest::collection::vec;
use proptest::prelude::*;
use ratelimit_engine::check::{Bounds, Budget, Decision};
use ratelimit_engine::key::{self, Check, CheckOptions, Costs, HoldRequest, Verdict};
use ratelimit_engine::rule::{self as engine, Kind, MAX_TIME_US, MAX_UNITS};
use ratelimit_engine::testing::laws::cases;
use ratelimit_engine::testing::laws::rules::{any_logs, any_rule, cost, rule_set, with_slots};
use ratelimit_engine::testing::laws::traffic::{Action, Call, changing};
use std::time::Duration;

const NOW: Duration = Duration::from_secs(1_800_000_000);

/// Parses the rules' texts; these leave out named costs.
fn reread<const HELD: bool>(rules: &[engine::Rule]) -> Rules<HELD> {
    let texts: Vec<String> = rules.iter().map(engine::Rule::to_string).collect();
    texts.join(" ").parse().expect("rules that fit")
}

fn units(cost: u32) -> Cost {
    Cost::new(cost.into()).expect("within bounds")
}

fn rule(text: &str) -> Rule {
    text.parse().expect(text)
}

fn millis(ms: i64) -> Option<Duration> {
    (ms >= 0).then(|| Duration::from_millis(ms.unsigned_abs()))
}

/// The engine's answer, converted to these types.
fn expected(check: &Check<'_>, summary: Decision, decisions: &[Decision]) -> Answer {
    let (wait, reset) = (millis(summary.wait_ms), millis(summary.reset_ms));
    let remaining = u32::try_from(summary.remaining).ok();
    if summary.verdict == Verdict::Allowed {
        return Answer::Allowed { remaining, reset, wait: wait.expect("turns come") };
    }
    let longest = |decision: &Decision| millis(decision.wait_ms).unwrap_or(Duration::MAX);
    let denials = check.rules.iter().zip(decisions).enumerate();
    let denials = denials.filter(|(_, (rule, one))| one.is_denial_by(rule));
    let rule = denials.rev().max_by_key(|(_, (_, one))| longest(one)).map(|(index, _)| index);
    assert_eq!(rule.is_none(), summary.verdict == Verdict::Blocked);
    Answer::Denied { wait, rule, remaining: remaining.expect("a rule or ban denied"), reset }
}

/// A check by the engine.
fn engine_check(engine: &mut key::Limiter, check: &Check<'_>) -> Option<Answer> {
    let mut decisions = Vec::new();
    let outcome = engine.check_within(Bounds::ANY, check, &mut decisions).ok()?;
    Some(expected(check, outcome.summary, &decisions))
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Hold(u32, u64, bool),
    Settle(Option<u32>),
    Refund,
    Renew(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (cost(), 1..5_000u64, any::<bool>()).prop_map(|(cost, ttl_ms, refund)| Step::Hold(cost, ttl_ms, refund)),
        2 => proptest::option::of(cost()).prop_map(Step::Settle),
        1 => Just(Step::Refund),
        2 => (1..5_000u64).prop_map(Step::Renew),
    ]
}

/// Any time, but often one near the others.
fn any_time() -> impl Strategy<Value = Duration> {
    prop_oneof![
        4 => (0..10_000u64).prop_map(|ms| NOW + Duration::from_millis(ms)),
        1 => any::<u64>().prop_map(Duration::from_micros),
        1 => prop::sample::select(vec![Duration::ZERO, Duration::MAX, Duration::from_micros(MAX_TIME_US)]),
    ]
}

/// The bytes of a limiter with one of them changed, so that most of it can still be read.
fn changed_payload() -> impl Strategy<Value = Vec<u8>> {
    (changing(4, 20), any::<prop::sample::Index>(), any::<u8>()).prop_map(
        |(traffic, place, byte)| {
            let mut limiter = Limiter::new();
            for Call { rules, now_us, .. } in traffic.calls() {
                let rules = reread::<false>(rules);
                let hold = Hold::new("a", Duration::from_secs(9)).expect("bounds").refunding();
                let _ = limiter.hold(&rules, Cost::ONE, &hold, Duration::from_micros(now_us));
            }
            let mut bytes = limiter.to_bytes();
            *place.get_mut(&mut bytes) = byte;
            bytes
        },
    )
}

fn any_cost() -> impl Strategy<Value = u32> {
    prop_oneof![4 => cost(), 1 => 0..=MAX_UNITS, 1 => Just(MAX_UNITS)]
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn limiters_answer_as_the_engine_does(traffic in changing(4, 40)) {
        let (mut limiter, mut engine) = (Limiter::new(), key::Limiter::default());
        for Call { rules, now_us, action } in traffic.calls() {
            let (rules, now) = (reread::<false>(rules), Duration::from_micros(now_us));
            match action {
                Action::Check(cost) => {
                    let answer = engine_check(&mut engine, &Check::new(rules.engine(), cost, now_us));
                    prop_assert_eq!(Some(limiter.check_cost(&rules, units(cost), now)), answer);
                }
                Action::Peek(cost) => {
                    let check = Check::new(rules.engine(), cost, now_us);
                    let answer = engine_check(&mut engine.clone(), &check);
                    let peeked = limiter.peek(&rules, units(cost), now);
                    prop_assert_eq!(Some(peeked.is_allowed()), answer.map(|answer| answer.is_allowed()));
                    let mut decisions = Vec::new();
                    let summary = engine.peek(&check, &mut decisions).summary;
                    prop_assert_eq!(peeked, expected(&check, summary, &decisions));
                    engine.fill_resets(&check, &mut decisions, &Budget::of_command());
                    let reports = limiter.peek_all(&rules, units(cost), now);
                    prop_assert_eq!(reports.len(), decisions.len());
                    for (report, decision) in reports.iter().zip(&decisions) {
                        prop_assert_eq!(report.denies, decision.verdict == Verdict::Limited);
                        prop_assert_eq!(i64::from(report.remaining), decision.remaining);
                        prop_assert_eq!(report.wait, millis(decision.wait_ms));
                        prop_assert_eq!(report.reset, millis(decision.reset_ms));
                    }
                }
                Action::Refund(units, _) => {
                    let returned = engine.refund(units, now_us, rules.engine());
                    prop_assert_eq!(u64::from(limiter.refund(&rules, self::units(units), now)), returned);
                }
                Action::Reset => (limiter, engine) = (Limiter::new(), key::Limiter::default()),
            }
            prop_assert_eq!(&limiter.0, &engine);
            if limiter.is_idle(now) {
                prop_assert_eq!(limiter.peek(&rules, Cost::ONE, now), Limiter::new().peek(&rules, Cost::ONE, now));
            }
            if let Some(expires) = limiter.expires() {
                prop_assert!(limiter.is_idle(expires.max(now)));
            }
            prop_assert_eq!(Limiter::from_bytes(&limiter.to_bytes()), Ok(limiter.clone()));
        }
    }

    #[test]
    fn holds_do_what_the_engine_does(
        rules in with_slots(rule_set(2)),
        steps in vec((0..3_000u64, 0..3usize, step()), 1..40),
    ) {
        let rules = reread::<true>(&rules);
        let (mut limiter, mut engine) = (Limiter::new(), key::Limiter::default());
        let mut now = NOW;
        for (gap_ms, id, step) in steps {
            now += Duration::from_millis(gap_ms);
            let (now_us, id) = (micros_of(now), ["a", "b", "c"][id]);
            let hold = |ttl_ms| Hold::new(id, Duration::from_millis(ttl_ms)).expect("bounds");
            match step {
                Step::Hold(cost, ttl_ms, refund) => {
                    let end_us = now_us + ttl_ms * 1_000;
                    let request = Some(HoldRequest { id: id.as_bytes(), end_us, refund });
                    let options = CheckOptions { hold: request, ..CheckOptions::default() };
                    let check = Check::new(rules.engine(), cost, now_us).with(&options);
                    let hold = if refund { hold(ttl_ms).refunding() } else { hold(ttl_ms) };
                    let answer = limiter.hold(&rules, units(cost), &hold, now);
                    prop_assert_eq!(answer.ok(), engine_check(&mut engine, &check));
                }
                Step::Settle(cost) => {
                    let settlement = cost.map(units).map_or(Settlement::AsCharged, Settlement::Cost);
                    let costs = Settlement::Cost(Costs { default: cost, named: &[] });
                    let same = if cost.is_some() { costs } else { Settlement::AsCharged };
                    let settled = engine.settle(id.as_bytes(), same, now_us);
                    prop_assert_eq!(limiter.settle(id, settlement, now), settled);
                }
                Step::Refund => {
                    let settled = engine.settle(id.as_bytes(), Settlement::Refund, now_us);
                    prop_assert_eq!(limiter.settle(id, Settlement::Refund, now), settled);
                }
                Step::Renew(ttl_ms) => {
                    let renewed = engine.renew(id.as_bytes(), now_us + ttl_ms * 1_000, now_us);
                    prop_assert_eq!(limiter.renew(&hold(ttl_ms), now), renewed);
                }
            }
            prop_assert_eq!(&limiter.0, &engine);
            let bytes = limiter.to_bytes();
            prop_assert_eq!(Limiter::from_bytes(&bytes), Ok(limiter.clone()));
            prop_assert!((0..bytes.len()).all(|end| Limiter::from_bytes(&bytes[..end]).is_err()));
            let held = rules.slots();
            let refused = Answer::Denied { wait: None, rule: held, remaining: 0, reset: None };
            let plain = Check::new(rules.engine(), 1, now_us);
            let expected = engine_check(&mut engine.clone(), &plain).filter(|_| held.is_none());
            prop_assert_eq!(limiter.clone().check(&rules, now), expected.unwrap_or(refused));
        }
    }

    #[test]
    fn any_bytes_are_a_limiter_or_an_error(
        bytes in prop_oneof![vec(any::<u8>(), 0..60).boxed(), changed_payload().boxed()],
        rules in with_slots(rule_set(3)),
        (cost, now) in (cost(), any_time()),
    ) {
        let Ok(mut limiter) = Limiter::from_bytes(&bytes) else { return Ok(()) };
        let rules = reread::<true>(&rules);
        let hold = Hold::new("a", Duration::from_secs(9)).expect("bounds");
        let _ = (limiter.peek_all(&rules, units(cost), now), limiter.hold(&rules, units(cost), &hold, now));
        limiter.settle("a", Settlement::Refund, now);
        let _ = (limiter.check(&rules, now), limiter.refund(&rules, units(cost), now));
        let _ = (limiter.expires(), Limiter::from_bytes(&limiter.to_bytes()));
    }

    #[test]
    fn a_rule_is_built_as_it_is_read(rule in prop_oneof![any_rule().boxed(), with_slots(vec(any_rule(), 1..2)).prop_map(|rules| rules[0]).boxed()]) {
        let text = rule.to_string();
        let built = built(&text).build();
        prop_assert_eq!(built.as_ref().map(Rule::to_string), Ok(text.clone()));
        prop_assert_eq!(built, text.parse());
    }

    /// A list of rules becomes `Rules` only if the rules fit together. The text of `Rules` parses to
    /// equal `Rules`.
    #[test]
    fn only_rules_that_fit_together_are_accepted(rules in prop_oneof![
        vec(any_rule(), 0..6).boxed(), any_logs(4).boxed(), with_slots(vec(any_rule(), 1..4)).boxed(),
        (any_logs(2), any_logs(2)).prop_map(|(some, others)| [some, others].concat()).boxed(),
    ]) {
        let pairs = || rules.iter().enumerate().flat_map(|(n, rule)| rules[..n].iter().map(move |other| (other, rule)));
        let logs = || rules.iter().filter(|rule| rule.kind() == Kind::Log);
        let fit = !rules.is_empty()
            && rules.len() <= 32
            && pairs().all(|(a, b)| a.identity() != b.identity())
            && logs().all(|log| logs().all(|other| log.cost().written() == other.cost().written()));
        let read = rules.iter().map(|rule| rule.to_string().parse()).collect::<Result<Vec<Rule>, _>>();
        let read = read.expect("rules");
        let held = HeldRules::try_from(read.clone());
        prop_assert_eq!(held.is_ok(), fit, "{:?}", held);
        let has_slots = rules.iter().any(|rule| rule.kind() == Kind::Slots);
        let made = Rules::<false>::try_from(read.clone());
        prop_assert_eq!(made.is_ok(), fit && !has_slots, "{:?}", made);
        if let Ok(held) = held {
            prop_assert!(held.iter().eq(read));
            prop_assert_eq!(held.to_string().parse(), Ok(held));
        }
    }

    #[test]
    fn no_number_causes_a_panic(
        rules in with_slots(rule_set(3)),
        calls in vec((0..4u8, any_cost().prop_map(units), any_time()), 1..30),
    ) {
        let rules = reread::<true>(&rules);
        let rates = rules.iter().filter(|rule| rule.period().is_some()).collect::<Vec<_>>();
        let mut limiter = Limiter::new();
        let hold = Hold::new("a", Duration::from_secs(366 * 86_400)).expect("bounds");
        for (call, cost, now) in calls {
            match (call, Rules::<false>::try_from(rates.clone())) {
                (0, Ok(rates)) => drop(limiter.check_cost(&rates, cost, now)),
                (1, Ok(rates)) => drop(limiter.refund(&rates, cost, now)),
                (2, _) => drop(limiter.settle("a", Settlement::Cost(cost), now)),
                _ => drop(limiter.hold(&rules, cost, &hold, now)),
            }
            let _ = (limiter.peek(&rules, cost, now), limiter.expires(), limiter.is_idle(now));
        }
    }
}

fn micros_of(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("a time of this century")
}

#[test]
fn errors_name_what_was_given_and_expected() {
    for (text, error) in [
        (" ", "no rule, expected one or more such as 20/1m"),
        ("2/s 5", "rule '5': the period is missing, expected limit/period such as 20/1m"),
        (
            "2/s,name=a bucket:5/s,name=a",
            "rule 'bucket:5/1s,name=a': same identity as rule 'log:2/1s,name=a', both count in the \
             same state; give one of them another name=",
        ),
        (
            "2/s bucket:5/s 9/h,cost=2",
            "rule 'log:9/1h,cost=2': costs 2, but rule 'log:2/1s' costs as much as the check: log \
             rules share one log; use bucket, window or fixed",
        ),
        ("5/s slots:8", "rule 'slots:8': slots are held, expected HeldRules and a hold"),
    ] {
        let refused = text.parse::<Rules>().expect_err(text);
        assert_eq!(refused.to_string(), error);
    }
    let error = "2/s 5".parse::<Rules>().unwrap_err();
    assert!(matches!(error, RulesError::Rule { index: 1, .. }));
    let source = error.source().expect("why").to_string();
    assert_eq!(source, "the period is missing, expected limit/period such as 20/1m");
    let many =
        |rules: u32| (0..rules).map(|n| rule(&format!("bucket:5/s,name=n{n}"))).collect::<Vec<_>>();
    assert!(Rules::<false>::try_from(many(32)).is_ok());
    let error = Rules::<false>::try_from(many(33)).unwrap_err();
    assert_eq!(error.to_string(), "too many rules, expected at most 32");
}

#[test]
fn holds_out_of_bounds_are_refused() {
    const DAY: Duration = Duration::from_secs(86_400);
    let ms = Duration::from_millis(1);
    let (longest, long) = ("x".repeat(64), "x".repeat(65));
    for (id, ttl, error) in [
        ("a", ms, None),
        (&longest, 366 * DAY, None),
        ("", ms, Some("the id of the hold is 0 bytes long, expected 1..64")),
        (&long, ms, Some("the id of the hold is 65 bytes long, expected 1..64")),
        ("a", ms / 2, Some("the hold lasts 500µs, expected 1ms..366d")),
        ("a", 366 * DAY + ms, Some("the hold lasts 31622400.001s, expected 1ms..366d")),
    ] {
        let refused = Hold::new(id, ttl).err().map(|error| error.to_string());
        assert_eq!(refused.as_deref(), error);
    }
}

#[test]
fn a_hold_repeated_at_another_cost_is_refused() {
    let rules: Rules = "20/m".parse().unwrap();
    let mut limiter = Limiter::new();
    let hold = Hold::new("a", Duration::from_secs(1)).unwrap();
    assert!(limiter.hold(&rules, units(3), &hold, NOW).unwrap().is_allowed());
    let before = limiter.clone();
    let error = limiter.hold(&rules, units(4), &hold, NOW).unwrap_err();
    assert!(matches!(error, HoldError::OtherCost(_)) && error.source().is_some());
    let text = "hold 'a' was taken with other costs: rule 'log:20/1m' cost 3, given 4";
    assert_eq!((error.to_string().as_str(), &limiter), (text, &before));
}

#[test]
fn a_ban_answers_without_a_rule() {
    let rules: Rules = "bucket:5/s bucket:1/s,name=a,ban=1m".parse().unwrap();
    let mut limiter = Limiter::new();
    assert!(limiter.check(&rules, NOW).is_allowed());
    let minute = Some(Duration::from_secs(60));
    for deciding in [Some(1), None] {
        let answer = limiter.check(&rules, NOW);
        let Answer::Denied { wait, rule, .. } = answer else { panic!("{answer:?}") };
        assert_eq!((wait, rule), (minute, deciding));
    }
    assert_eq!(limiter.peek_all(&rules, Cost::ONE, NOW), []);
}

#[test]
fn an_idle_limiter_answers_like_a_new_one() {
    let (rules, held): (Rules, HeldRules) =
        ("leaky:5/h".parse().unwrap(), "leaky:5/h".parse().unwrap());
    let at = |s: u64| NOW + Duration::from_secs(s);
    let (mut limiter, hold) = (Limiter::new(), |s| Hold::new("h", Duration::from_secs(s)));
    assert!(limiter.hold(&held, Cost::ZERO, &hold(60).unwrap(), at(50)).unwrap().is_allowed());
    assert!(limiter.renew(&hold(1).unwrap(), at(0)));
    assert!(limiter.is_idle(at(2)));
    assert_eq!(limiter.check(&rules, at(2)), Limiter::new().check(&rules, at(2)));
}

#[test]
fn limiters_are_small() {
    assert_eq!(size_of::<Limiter>(), 16);
}

#[test]
fn threads_share_limiters() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<(Limiter, Rules, HeldRules, RulesError, HoldError, Answer, Keyed<String>)>();
}

/// Without this bound, the refund would never end.
#[test]
fn a_cost_above_a_billion_is_refused() {
    let rules: Rules = "1000000000/d,shadow bucket:5/s,cost=1".parse().unwrap();
    let mut limiter = Limiter::new();
    for cost in [units(6), Cost::MAX] {
        assert!(limiter.check_cost(&rules, cost, NOW).is_allowed());
    }
    assert_eq!(limiter.refund(&rules, Cost::MAX, NOW), 1_000_000_000);
    assert_eq!(Cost::new(1_000_000_000), Ok(Cost::MAX));
    assert!(Cost::new(1_000_000_001).is_err());
    let error = Cost::new(u64::MAX).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a cost of 18446744073709551615 units, expected at most 1000000000"
    );
}

#[test]
fn slots_need_a_hold() {
    let rules: HeldRules = "bucket:5/s,count=all slots:8".parse().unwrap();
    let mut limiter = Limiter::new();
    let refused = Answer::Denied { wait: None, rule: Some(1), remaining: 0, reset: None };
    assert_eq!(limiter.check(&rules, NOW), refused);
    assert_eq!(limiter, Limiter::new(), "nothing is charged");
    assert!(limiter.peek(&rules, Cost::ONE, NOW).is_allowed(), "a hold would pass");
    let rates: HeldRules = "bucket:5/s".parse().unwrap();
    assert!(limiter.check_cost(&rates, units(5), NOW).is_allowed());
    assert_eq!(limiter.refund(&rules, units(2), NOW), 2);
}

#[test]
fn a_configuration_contains_rules_as_text() {
    use serde_core::de::value::{Error, StrDeserializer};
    use serde_core::de::{Deserialize, IntoDeserializer};
    use serde_core::ser::Serialize;

    let read = |text: &'static str| {
        let text: StrDeserializer<'_, Error> = text.into_deserializer();
        Rules::<false>::deserialize(text)
    };
    struct Written(Rules);
    impl std::fmt::Display for Written {
        fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.serialize(to)
        }
    }
    let rules = read("2/s bucket:100/h").expect("rules");
    assert_eq!(Written(rules).to_string(), "log:2/1s bucket:100/1h");
    let error = read("2/s 2x").expect_err("no rule");
    assert_eq!(error.to_string(), "2/s 2x".parse::<Rules>().unwrap_err().to_string());
}
