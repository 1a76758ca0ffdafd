//! Settling a hold corrects a meter: units return as if the check had cost less, or more units
//! are consumed.

use crate::algorithm::fixed::Past;
use crate::algorithm::log::Log;
use crate::algorithm::log::series::Series;
use crate::algorithm::log::series::needs::{MAX_HELD, MAX_RETAINED_UNITS, Needs};
use crate::algorithm::log::{Consumption, Eviction};
use crate::algorithm::meter::Meter;
use crate::algorithm::{Algorithm, Excess};
use crate::algorithm::{Moment, NO_TIME_US};
use crate::exact::Uint48;
use crate::rule::{DAY_US, HOUR_US, Kind, MAX_UNITS, MINUTE_US, Rule, SECOND_US};
use crate::tests::rules_of_line;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::slice;

/// 2024-02-10 12:00 UTC.
const START_US: u64 = 1_707_566_400_000_000;

fn rule(text: &str) -> Rule {
    rules_of_line(text).into_iter().next().expect("a rule")
}

fn needs(rule: &Rule) -> Needs {
    Needs::of(slice::from_ref(rule))
}

/// A meter in which a check consumed nothing.
fn untouched(rule: &Rule) -> Meter {
    let mut meter = Meter::of_units(rule, START_US, 0);
    if let Meter::Log(log) = &mut meter {
        *log = Log::of(Series::default(), Series::default(), needs(rule), vec![]);
    } else {
        meter.consume(rule, START_US, 1);
        assert_eq!(meter.refund(rule.period_us(), START_US, 1), 1);
    }
    meter
}

/// An excess of this many units, of a hold that was charged under the rule while its limit was `limit`.
fn excess(rule: &Rule, limit: u32, shadow: bool, units: u32) -> Excess {
    let needs = Needs { window_us: rule.period_us(), units: limit, admitted: true };
    Excess { units, limit, shadow, needs }
}

/// Consumes as a check does while the key has holds.
fn consume(meter: &mut Meter, rule: &Rule, at_us: u64, units: u32) {
    if let Meter::Log(log) = meter {
        log.add(needs(rule), at_us, units, Consumption::Admitted, Eviction::ByAge);
    } else {
        meter.consume(rule, at_us, units);
    }
}

/// Units consumed at a time, minus those given back.
#[derive(Clone, Copy, Debug)]
struct Consumed {
    stamp_us: u64,
    units: u32,
}

#[derive(Clone, Debug)]
enum Step {
    Consume(u32),
    Excess(u32),
    /// Gives units of a charge back.
    GiveBack(Index, u32),
}

/// A rule, and steps, each with the time since the previous one.
fn scenario(rules: Vec<&'static str>) -> impl Strategy<Value = (Rule, Vec<(u64, Step)>)> {
    select(rules).prop_map(rule).prop_flat_map(|rule| {
        let period_us = rule.period_us();
        let gap = prop_oneof![
            3 => Just(0),
            3 => 0..period_us / 50,
            3 => 0..period_us / 4,
            1 => 0..period_us * 2
        ];
        let units = || prop_oneof![Just(1u32), 1..6u32];
        let step = prop_oneof![
            4 => units().prop_map(Step::Consume),
            1 => units().prop_map(Step::Excess),
            4 => (any::<Index>(), units()).prop_map(|(of, units)| Step::GiveBack(of, units)),
        ];
        (Just(rule), vec((gap, step), 1..60))
    })
}

/// Plays the steps on a meter. Returns the time of the last step, and the charges in order.
fn play(meter: &mut Meter, rule: &Rule, steps: &[(u64, Step)]) -> (u64, Vec<Consumed>) {
    let (mut at_us, mut charges) = (START_US, Vec::<Consumed>::new());
    for (gap_us, step) in steps {
        at_us += gap_us;
        match *step {
            Step::Consume(units) => {
                consume(meter, rule, at_us, units);
                charges.push(Consumed { stamp_us: at_us, units });
            }
            Step::Excess(units) => {
                meter.consume_excess(excess(rule, rule.limit(), false, units), at_us);
                assert_eq!(meter.last_us(), at_us);
                charges.push(Consumed { stamp_us: at_us, units });
            }
            Step::GiveBack(of, units) => {
                let chosen = of.index(charges.len().max(1));
                let Some(charge) = charges.get_mut(chosen) else {
                    continue;
                };
                let before = meter.clone();
                let asked = units.min(charge.units);
                let given = meter.give_back(charge.stamp_us, asked.into());
                assert!(given == 0 || given == u64::from(asked), "{given} of {asked}");
                assert!(given > 0 || *meter == before, "changed, but gave nothing back");
                if let Meter::Log(_) = meter {
                    let counts = at_us - charge.stamp_us < rule.period_us();
                    assert!(given == u64::from(asked) || !counts);
                } else {
                    let emptied = meter.last_us() == NO_TIME_US && meter.consumed(NO_TIME_US) == 0;
                    assert!(emptied || meter.last_us() == before.last_us());
                }
                charge.units -= u32::try_from(given).unwrap();
            }
        }
    }
    (at_us, charges)
}

/// A meter in which each check consumed only what it cost in the end.
fn as_if(rule: &Rule, charges: &[Consumed]) -> Meter {
    let mut meter = untouched(rule);
    for charge in charges.iter().filter(|charge| charge.units > 0) {
        consume(&mut meter, rule, charge.stamp_us, charge.units);
    }
    meter
}

/// The windows in which something was counted.
fn graph(meter: &Meter) -> Vec<Past> {
    let Meter::FixedWithPast(past) = meter else { return Vec::new() };
    let last = Past { start_us: past.fixed.start_us(), count: past.fixed.count() };
    past.past.iter().copied().chain([last]).filter(|window| window.count > 0).collect()
}

/// The excesses of holds add up, but to no more than the state can count, and never wrap.
#[test]
fn every_state_saturates() {
    let (debt, counter) = (u64::from(u32::MAX), Uint48::MAX);
    for (text, most) in [
        ("bucket:1/d", debt),
        ("bucket:1/d,refill=interval", debt),
        ("leaky:1/d", debt),
        ("window:1/d", counter),
        ("fixed:1/d", counter),
        ("fixed:1/d,keep=2", counter),
        ("1/d", MAX_RETAINED_UNITS),
    ] {
        let rule = rule(text);
        let (mut meter, mut consumed) = (untouched(&rule), 0);
        for _ in 0..=counter / u64::from(MAX_UNITS) {
            meter.consume_excess(excess(&rule, 1, false, MAX_UNITS), START_US);
            let now = meter.consumed(START_US);
            assert!(now == most || now == consumed + u64::from(MAX_UNITS), "{text}: {now}");
            consumed = now;
        }
        assert_eq!(consumed, most, "{text}");
        assert_eq!(meter.read(&rule, START_US, 1).remaining, 0, "{text}");
    }
}

proptest! {
    #![proptest_config(super::laws::cases(1_500))]

    #[test]
    fn units_given_back_are_as_if_never_charged((rule, steps) in scenario(vec![
        "7/m", "20/10s", "20/w", "window:20/m", "window:20/m,res=5", "window:20/100ms,res=60",
        "fixed:20/m", "fixed:20/d,tz=-03:30", "fixed:20/w,tz=+14:00", "fixed:20/month",
        "fixed:20/month,tz=-05:00,keep=366", "fixed:20/m,keep=366", "fixed:20/w,keep=366",
    ])) {
        let mut meter = untouched(&rule);
        let (at_us, charges) = play(&mut meter, &rule, &steps);
        let as_if = as_if(&rule, &charges);
        let period_us = rule.period_us();
        for later_us in [0, 1, period_us / 7, period_us / 2, period_us - 1, period_us, 2 * period_us] {
            let at_us = at_us + later_us;
            // A log does not store by how much it exceeds its limit. Only a cost of 0 would show
            // that.
            let least = u32::from(rule.kind() == Kind::Log);
            for cost in [least, 1, 5, rule.limit()] {
                prop_assert_eq!(meter.read(&rule, at_us, cost), as_if.read(&rule, at_us, cost));
            }
            prop_assert_eq!(meter.consumed(at_us), as_if.consumed(at_us));
            prop_assert_eq!(meter.clears(&rule, at_us), as_if.clears(&rule, at_us));
        }
        prop_assert_eq!(graph(&meter), graph(&as_if));
    }

    /// A window that opens with its first request stays open when that request is refunded.
    #[test]
    fn a_window_stays_open_after_a_refund_of_its_first_request((rule, steps) in scenario(vec![
        "fixed:20/m,align=first", "fixed:20/m,align=first,keep=366", "bucket:20/m,burst=60,refill=interval",
    ])) {
        let mut meter = untouched(&rule);
        let (at_us, charges) = play(&mut meter, &rule, &steps);
        let mut naive: Option<(u64, u64)> = None;
        let (mut now_us, mut left) = (START_US, Vec::new());
        for (gap_us, step) in &steps {
            now_us += gap_us;
            let open = naive.filter(|&(start_us, _)| now_us - start_us < rule.period_us());
            match *step {
                Step::Consume(units) | Step::Excess(units) => {
                    let (start_us, count) = open.filter(|&(_, count)| count > 0).unwrap_or((now_us, 0));
                    let capped = matches!(step, Step::Consume(_)) && matches!(meter, Meter::Interval(_));
                    let most = if capped { count.max(rule.capacity()) } else { u64::MAX };
                    naive = Some((start_us, (count + u64::from(units)).min(most)));
                    left.push((now_us, units));
                }
                Step::GiveBack(of, units) => {
                    let chosen = of.index(left.len().max(1));
                    let Some((stamp_us, units_left)) = left.get_mut(chosen) else {
                        continue;
                    };
                    let back = units.min(*units_left);
                    let in_past = matches!(meter, Meter::FixedWithPast(_));
                    let holds = |&(start_us, _): &(u64, u64)| {
                        (start_us..start_us + rule.period_us()).contains(&*stamp_us)
                    };
                    match naive.filter(holds) {
                        Some((start_us, count)) => {
                            naive = Some((start_us, count - u64::from(back)));
                            *units_left -= back;
                        }
                        None if in_past => *units_left -= back,
                        None => {}
                    }
                }
            }
        }
        let used = naive.filter(|&(start_us, _)| at_us - start_us < rule.period_us());
        prop_assert_eq!(meter.consumed(at_us), used.map_or(0, |(_, count)| count));
        let ends = used.filter(|&(_, count)| count > 0).map_or(0, |(start_us, _)| start_us + rule.period_us());
        prop_assert_eq!(meter.clears(&rule, at_us), Moment::At(ends));
        prop_assert!(charges.iter().map(|charge| charge.units).eq(left.iter().map(|&(_, units)| units)));
        if let Meter::FixedWithPast(_) = meter {
            let charged: u64 = charges.iter().map(|charge| u64::from(charge.units)).sum();
            prop_assert_eq!(graph(&meter).iter().map(|window| window.count).sum::<u64>(), charged);
        }
    }

    /// An excess leaves a debt above the burst or queue, exact to the fraction.
    #[test]
    fn an_excess_is_owed_in_full(
        text in select(vec!["bucket:7/s,burst=20", "leaky:7/m,queue=19", "bucket:1000000000/366d"]),
        consumed in 0..30u32,
        gap_us in 0..10 * SECOND_US,
        rate in 0..50u32,
        units in 1..100u32,
        capped: bool,
        taken in 0..u64::MAX,
    ) {
        let rule = rule(text);
        let mut meter = untouched(&rule);
        meter.consume(&rule, START_US, consumed);
        let Meter::Debt(before) = meter.clone() else { unreachable!() };
        let at_us = START_US + gap_us;
        meter.consume_excess(excess(&rule, rate, capped, units), at_us);
        let Meter::Debt(mut debt) = meter else { unreachable!() };
        let period = u128::from(rule.period_us());
        let left = |rate: u32| before.owed().saturating_sub(u128::from(gap_us) * u128::from(rate));
        // Once the debt has drained at its own limit, it has ended at every rate.
        let drained = if left(before.limit) == 0 { 0 } else { left(rate) };
        prop_assert_eq!(before.owed_at(rate, at_us), drained);
        let full = drained + u128::from(units) * period;
        let capacity = if rate == 0 { 0 } else { u128::from(rule.capacity()) * period };
        let owed = if capped { full.min(drained.max(capacity)) } else { full };
        let last_us = if owed == 0 { NO_TIME_US } else { at_us };
        prop_assert_eq!((debt.owed(), debt.last_us()), (owed, last_us));
        // The debt ends no sooner than it would at either rule's limit. One that had drained leaves
        // no limit behind.
        let limit = match (drained, rate) {
            (0, _) => rate.max(1),
            (_, 0) => before.limit,
            (_, _) => before.limit.min(rate),
        };
        prop_assert_eq!((debt.limit, debt.burst_or_queue), (limit, before.burst_or_queue));
        debt.take_off(taken.into());
        prop_assert_eq!(debt.owed(), owed.saturating_sub(taken.into()));
    }

    #[test]
    fn no_number_causes_a_panic(
        text in select(vec![
            "5/s", "window:5/s", "window:5/366d,res=60", "fixed:5/w,tz=-14:00", "fixed:5/month,keep=366",
            "fixed:5/s,align=first", "bucket:5/s,burst=3", "bucket:5/s,refill=interval", "leaky:5/d",
        ]),
        calls in vec((0..3u8, number(), number(), number(), any::<bool>()), 1..20),
    ) {
        let rule = rule(text);
        let mut meter = untouched(&rule);
        for (call, at_us, stamp_us, units, flag) in calls {
            let few = u32::try_from(units).unwrap_or(u32::MAX);
            match call {
                0 => meter.consume(&rule, at_us.max(meter.last_us()), few),
                1 => meter.consume_excess(excess(&rule, few, flag, few), at_us),
                _ => drop(meter.give_back(stamp_us, units)),
            }
            meter.read(&rule, at_us.max(meter.last_us()), few);
        }
    }
}

fn number() -> impl Strategy<Value = u64> {
    let small = [0, 1, SECOND_US, START_US, START_US + 1, MAX_UNITS.into(), u32::MAX.into()];
    let large = [1 << 48, 1 << 62, i64::MAX.cast_unsigned(), u64::MAX - 1, u64::MAX];
    prop_oneof![select([&small[..], &large].concat()), any::<u64>()]
}

#[test]
fn a_capped_interval_takes_no_more_than_its_burst() {
    let rule = rule("bucket:5/m,burst=8,refill=interval");
    let mut meter = untouched(&rule);
    meter.consume(&rule, START_US, 5);
    meter.consume_excess(excess(&rule, 5, true, 9), START_US);
    assert_eq!(meter.consumed(START_US), 8);
    meter.consume_excess(excess(&rule, 5, false, 9), START_US);
    assert_eq!(meter.consumed(START_US), 17);
    assert_eq!(meter.give_back(START_US - 1, 4), 0);
    assert_eq!(meter.give_back(START_US + MINUTE_US, 4), 0);
    assert_eq!(meter.give_back(START_US + MINUTE_US - 1, 4), 4);
    assert_eq!(meter.consumed(START_US), 13);
}

#[test]
fn units_return_to_the_window_they_were_counted_in() {
    let rule = rule("fixed:1000/d,keep=2");
    let midnight_us = START_US + 12 * HOUR_US;
    let mut meter = untouched(&rule);
    meter.consume(&rule, START_US, 300);
    meter.consume(&rule, midnight_us - 1, 400);
    // The window is over, but no other has opened.
    assert_eq!(meter.give_back(midnight_us - 1, 50), 50);
    meter.consume(&rule, midnight_us, 100);
    assert_eq!(meter.give_back(midnight_us - 1, 350), 350);
    let day = |day: i64, count| Past {
        start_us: (midnight_us as i64) + (day - 1) * (DAY_US as i64),
        count,
    };
    assert_eq!(graph(&meter), [day(0, 300), day(1, 100)]);
    assert_eq!(meter.give_back(START_US, 300), 300);
    assert_eq!(graph(&meter), [day(1, 100)]);
}

/// The excess counts as long as the hold's rule can see it, even if other calls fill the log.
#[test]
fn an_excess_lasts_for_the_window_of_its_hold() {
    let (tokens, request) = (rule("100/h"), rule("5/s"));
    let mut log = Log::default();
    log.add(needs(&request), START_US, 1, Consumption::Admitted, Eviction::ByAge);
    log.consume_excess(excess(&tokens, tokens.limit(), false, 150), START_US);
    for second in 1..3600 {
        log.admit(needs(&request), START_US + second * SECOND_US, 1);
    }
    let last_us = START_US + HOUR_US - 1;
    assert_eq!(log.read(&tokens, last_us, 1).remaining, 0);
    assert!(log.consumed(last_us) >= 150);
    log.admit(needs(&request), START_US + HOUR_US, 1);
    assert_eq!(log.admitted().len(), 1);
}

/// Entries beyond the needs stay for holds, but clients cannot make them grow without bound.
#[test]
fn the_entries_kept_for_holds_are_bounded() {
    let rule = rule("5/d");
    let mut log = Log::default();
    for at_us in START_US..START_US + MAX_HELD + 1_000 {
        log.add(needs(&rule), at_us, 1, Consumption::Admitted, Eviction::ByAge);
    }
    assert_eq!(log.admitted().len(), MAX_HELD + 5);
    for _ in 0..5 {
        log.consume_excess(excess(&rule, rule.limit(), false, MAX_UNITS), START_US + DAY_US / 2);
    }
    assert_eq!(log.admitted().units(), MAX_RETAINED_UNITS);
    let later_us = START_US + DAY_US / 2 + DAY_US;
    for at_us in later_us..later_us + 7 {
        log.admit(needs(&rule), at_us, 1);
    }
    assert_eq!(log.admitted().units(), 5);
}
