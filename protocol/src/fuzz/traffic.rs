//! Turns bytes into traffic for the laws. The bytes make the choices that the strategies of the
//! laws make in tests; when the bytes end, so do the calls.

use arbitrary::unstructured::Int;
use arbitrary::{Result, Unstructured};
use ratelimit_engine::rule::{
    Kind, Ladder, MAX_TIME_US, MAX_UNITS, Name, NamedCost, Period, Rule, RuleSpec, Unit,
};
use ratelimit_engine::testing::laws::holds::traffic::{
    Ask, CALLS, Ending, Extra, HoldTraffic, IDS, Length, Terms,
};
use ratelimit_engine::testing::laws::rules::{
    NAMES, PERIODS, SETTLED_EXACTLY, distinct, made_exact, suited,
};
use ratelimit_engine::testing::laws::traffic::{Action, Clock, Gap, Step, Traffic};
use std::ops::RangeInclusive;

type Bytes<'a, 'b> = &'a mut Unstructured<'b>;

/// Traffic under up to three sets of rules of any algorithm.
pub fn of_any_rules(bytes: Bytes<'_, '_>) -> Result<Traffic> {
    traffic(bytes, Clock::StepsBack, any_rule)
}

/// Traffic with holds under any rules.
pub fn with_holds(bytes: Bytes<'_, '_>) -> Result<HoldTraffic> {
    holding(bytes, of_any_rules)
}

/// Traffic with holds under one set of rules that settle exactly: a settled hold leaves the state that
/// a check at the settled cost leaves.
pub fn settled_exactly(bytes: Bytes<'_, '_>, clock: Clock) -> Result<HoldTraffic> {
    holding(bytes, |bytes| {
        let exact = |bytes: Bytes<'_, '_>| Ok(made_exact(&rule(bytes, &SETTLED_EXACTLY)?));
        let mut traffic = traffic(bytes, clock, exact)?;
        traffic.rule_sets.truncate(1);
        Ok(traffic)
    })
}

fn holding(
    bytes: Bytes<'_, '_>,
    traffic: impl FnOnce(Bytes<'_, '_>) -> Result<Traffic>,
) -> Result<HoldTraffic> {
    let mut extras = vec![Extra { ending: None, hold: None }; CALLS];
    for extra in extras.iter_mut().take(bytes.int_in_range(0..=CALLS)?) {
        *extra = Extra { ending: maybe(bytes, 2, ending)?, hold: maybe(bytes, 2, ask)? };
    }
    Ok(HoldTraffic { traffic: traffic(bytes)?, extras })
}

fn traffic(
    bytes: Bytes<'_, '_>,
    clock: Clock,
    rule: impl Fn(Bytes<'_, '_>) -> Result<Rule>,
) -> Result<Traffic> {
    let rule_set = |bytes: Bytes<'_, '_>| Ok(distinct(some(bytes, 1..=4, &rule)?));
    let rule_sets = some(bytes, 1..=3, rule_set)?;
    let start_us = one_of(
        bytes,
        &[
            1_600_000_000_000_000..=1_900_000_000_000_000,
            1_709_164_800_000_000..=1_709_424_000_000_000,
            0..=10_000_000,
            0..=MAX_TIME_US / 2,
        ],
    )?;
    let mut steps = Vec::new();
    while steps.is_empty() || steps.len() < CALLS && !bytes.is_empty() {
        let (gap, rules) = (gap(bytes, clock)?, bytes.int_in_range(0..=3)?);
        steps.push(Step { gap, rules, action: action(bytes)? });
    }
    Ok(Traffic { start_us, rule_sets, steps })
}

fn gap(bytes: Bytes<'_, '_>, clock: Clock) -> Result<Gap> {
    let forward = [0..=0, 0..=100, 0..=1_000, 1_000..=1_000, 0..=5_000];
    let steps_back = clock != Clock::Forward && bytes.int_in_range(0..=12)? == 12;
    let (mille, jitter_us) = if steps_back {
        (one_of(bytes, &[-500..=0, -1_000..=-1_000, -4_000..=0])?, one_of(bytes, &[-3_000..=0])?)
    } else {
        (one_of(bytes, &forward)?, one_of(bytes, &[0..=0, 0..=1, 0..=5_000])?)
    };
    Ok(Gap { mille, of: bytes.int_in_range(0..=3)?, jitter_us })
}

fn action(bytes: Bytes<'_, '_>) -> Result<Action> {
    Ok(match bytes.int_in_range(0..=30)? {
        0..=23 => Action::Check(cost(bytes)?),
        24..=25 => Action::Peek(cost(bytes)?),
        26..=29 => Action::Refund(cost(bytes)?, bytes.arbitrary()?),
        _ => Action::Reset,
    })
}

fn any_rule(bytes: Bytes<'_, '_>) -> Result<Rule> {
    rule(bytes, &Kind::RATES)
}

fn rule(bytes: Bytes<'_, '_>, kinds: &[Kind]) -> Result<Rule> {
    let kind = *bytes.choose(kinds)?;
    let name = |bytes: Bytes<'_, '_>| Ok(name_of(bytes.choose(&NAMES)?));
    let mut given = RuleSpec::new(kind, limit(bytes)?, period(bytes)?);
    given.name = maybe(bytes, 5, name)?;
    given.count_all = one_in(bytes, 4)?;
    given.cost = maybe(bytes, 7, cost)?.map(u64::from);
    given.ban = maybe(bytes, 10, ladder)?;
    given.shadow = one_in(bytes, 6)?;
    let mut give = |name: &str, value: Option<u64>| {
        if let Some(value) = value {
            given = given.clone().with(name, value.cast_signed());
        }
    };
    match kind {
        Kind::Log | Kind::Slots => {}
        Kind::Window => give("res", maybe(bytes, 2, |b| b.int_in_range(1..=60))?),
        Kind::Fixed => {
            give("align", maybe(bytes, 2, |bytes| bytes.int_in_range(0..=1))?);
            let tz = maybe(bytes, 3, |bytes| bytes.int_in_range(-840..=840_i64))?;
            give("tz", tz.map(i64::cast_unsigned));
            give("keep", maybe(bytes, 5, |bytes| bytes.int_in_range(0..=5))?);
        }
        Kind::Bucket => {
            give("burst", maybe(bytes, 2, limit)?.map(|burst| burst.max(1)));
            give("refill", maybe(bytes, 2, |bytes| bytes.int_in_range(0..=1))?);
        }
        Kind::Leaky => give("queue", maybe(bytes, 2, limit)?),
    }
    Ok(suited(given, maybe(bytes, 10, cost)?))
}

fn limit(bytes: Bytes<'_, '_>) -> Result<u64> {
    let most = MAX_UNITS.into();
    one_of(bytes, &[1..=6, 1..=6, 7..=20, 21..=1_000, 0..=0, 0..=most, most..=most])
}

fn cost(bytes: Bytes<'_, '_>) -> Result<u32> {
    let ranges = [1..=1, 1..=1, 2..=6, 0..=30, 0..=1_000, 0..=MAX_UNITS, MAX_UNITS..=MAX_UNITS];
    one_of(bytes, &ranges)
}

fn period(bytes: Bytes<'_, '_>) -> Result<Period> {
    if one_in(bytes, 4)? {
        let count = bytes.int_in_range(1..=100_000)?;
        return Ok(Period { count, unit: Unit::Millisecond });
    }
    let &(count, unit) = bytes.choose(&PERIODS)?;
    Ok(Period { count, unit })
}

fn ladder(bytes: Bytes<'_, '_>) -> Result<Ladder> {
    Ok(Ladder::of_ms(&some(bytes, 1..=3, |bytes| bytes.int_in_range(1..=5_000))?))
}

fn ask(bytes: Bytes<'_, '_>) -> Result<Ask> {
    Ok(Ask { id: id(bytes)?, length: length(bytes)?, refund: bytes.arbitrary()? })
}

fn ending(bytes: Bytes<'_, '_>) -> Result<Ending> {
    let id = id(bytes)?;
    Ok(match bytes.int_in_range(0..=14)? {
        0..=7 => {
            let name = |bytes: Bytes<'_, '_>| Ok(name_of(bytes.choose(&["free", "x", "other"])?));
            let named =
                |bytes: Bytes<'_, '_>| Ok(NamedCost { name: name(bytes)?, cost: cost(bytes)? });
            let (default, named) = (maybe(bytes, 2, cost)?, some(bytes, 0..=2, named)?);
            Ending::Settle(id, Terms::Costs { default, named })
        }
        8..=10 => Ending::Settle(id, Terms::Refund),
        11 => Ending::Settle(id, Terms::AsCharged),
        _ => Ending::Renew(id, length(bytes)?),
    })
}

fn id(bytes: Bytes<'_, '_>) -> Result<usize> {
    bytes.int_in_range(0..=IDS.len() - 1)
}

fn length(bytes: Bytes<'_, '_>) -> Result<Length> {
    let mille = one_of(bytes, &[0..=100, 0..=1_000, 1_000..=1_000, 0..=5_000])?;
    Ok(Length { mille, jitter_us: one_of(bytes, &[0..=0, 0..=2_000])? })
}

fn name_of(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

/// A number in one of these ranges.
fn one_of<T: Int>(bytes: Bytes<'_, '_>, ranges: &[RangeInclusive<T>]) -> Result<T> {
    let range = bytes.choose(ranges)?.clone();
    bytes.int_in_range(range)
}

fn one_in(bytes: Bytes<'_, '_>, number: u8) -> Result<bool> {
    Ok(bytes.int_in_range(1..=number)? == number)
}

/// A value in one of `number` cases, otherwise `None`.
fn maybe<'b, T>(
    bytes: &mut Unstructured<'b>,
    number: u8,
    of: impl FnOnce(&mut Unstructured<'b>) -> Result<T>,
) -> Result<Option<T>> {
    one_in(bytes, number)?.then(|| of(bytes)).transpose()
}

/// A list of values, its length in this range.
fn some<'b, T>(
    bytes: &mut Unstructured<'b>,
    number: RangeInclusive<usize>,
    of: impl Fn(&mut Unstructured<'b>) -> Result<T>,
) -> Result<Vec<T>> {
    let number = bytes.int_in_range(number)?;
    (0..number).map(|_| of(bytes)).collect()
}
