//! The text of a rule, read and printed.
//!
//! ```text
//! rule   = [algorithm ":"] limit "/" period *("," option)
//!        | "slots:" limit *("," option)
//! period = [integer] unit
//! unit   = ms | s sec second | m min minute | h hour | d day | w week | month
//!          the words also in the plural, but not month
//! option = name | name "=" value
//! ban    = period *(":" period)
//! ```
//!
//! [`Rule::from_text`] reads in one pass from left to right into a [`RuleSpec`],
//! which then validates itself. Names are lower case, integers are digits only,
//! an option may be given once: a text has at most one reading.
//!
//! `Display` prints the canonical text: the algorithm always named, the period
//! in its longest unit, options in one order and only where they differ from
//! the default.

use super::error::{Excerpt, PeriodOf, RuleTextError};
use super::{
    Algorithm, Align, BucketParams, Calendar, FixedParams, Kind, Ladder, LeakyParams, Name, Period,
    Refill, Rule, RuleError, RuleOption, RuleSpec, Unit, WindowParams,
};
use std::fmt::{self, Display, Formatter};

impl Rule {
    /// Reads a rule from its text.
    ///
    /// # Errors
    /// [`RuleTextError`]: the first thing wrong, from left to right.
    pub fn from_text(text: &[u8]) -> Result<Self, RuleTextError> {
        Ok(spec(text)?.validate()?)
    }
}

/// Whether a text is meant as a rule: it has a slash, or it begins with a digit or with an
/// algorithm's name and a colon. So `10` and `bucket:10` get the error that the period is
/// missing.
#[must_use]
pub fn looks_like_rule(text: &[u8]) -> bool {
    let begins_with_limit = || text.first().is_some_and(u8::is_ascii_digit);
    let names_algorithm =
        || split(text, b':').is_some_and(|(name, _)| Kind::of_name(name).is_some());
    text.contains(&b'/') || begins_with_limit() || names_algorithm()
}

/// Reads a period that is not part of a rule: 1 ms to 366 days, in any unit but months.
/// Returns it in microseconds.
///
/// # Errors
/// [`RuleTextError`], which names the option that the period belongs to.
pub fn span_us(option: &'static str, text: &[u8]) -> Result<u64, RuleTextError> {
    let period = period(PeriodOf::Option(option), text)?;
    period.plain_micros().ok_or_else(|| wrong(option, text, "a period of 1ms..366d"))
}

/// The number of these decimal digits; `None` for a sign, a blank or an overflow.
#[inline]
#[must_use]
pub fn digits(text: &[u8]) -> Option<u64> {
    /// A number of this many digits fits `u64`.
    const ALWAYS_FIT: usize = 19;
    if text.is_empty() {
        return None;
    }
    let digit = |byte: &u8| byte.is_ascii_digit().then_some(u64::from(byte & 0x0f));
    let mut digits = text.iter();
    if text.len() <= ALWAYS_FIT {
        return digits.try_fold(0, |number: u64, byte| {
            Some(number.wrapping_mul(10).wrapping_add(digit(byte)?))
        });
    }
    digits.try_fold(0, |number: u64, byte| number.checked_mul(10)?.checked_add(digit(byte)?))
}

fn spec(text: &[u8]) -> Result<RuleSpec, RuleTextError> {
    let (mut spec, mut rest) = match split(text, b':') {
        Some((name, slots)) if Kind::of_name(name) == Some(Kind::Slots) => spec_of_slots(slots)?,
        _ => spec_of_rate(text)?,
    };
    let mut given = [false; RuleOption::ALL.len()];
    while let Some(options) = rest {
        let (text, after) = until_comma(options);
        read_option(&mut spec, text, &mut given)?;
        rest = after;
    }
    Ok(spec)
}

/// A limit and a period, and the options that follow.
fn spec_of_rate(text: &[u8]) -> Result<(RuleSpec, Option<&[u8]>), RuleTextError> {
    let (head, tail) = split(text, b'/').ok_or(RuleTextError::NoPeriod)?;
    let (kind, given) = match split(head, b':') {
        Some((name, limit)) => (algorithm(name)?, limit),
        None => (Kind::Log, head),
    };
    let limit = limit(given)?;
    let (period_text, options) = until_comma(tail);
    Ok((RuleSpec::new(kind, limit, period(PeriodOf::Rule, period_text)?), options))
}

/// A limit without a period, and the options that follow.
fn spec_of_slots(text: &[u8]) -> Result<(RuleSpec, Option<&[u8]>), RuleTextError> {
    let (given, options) = until_comma(text);
    if given.contains(&b'/') {
        return Err(RuleError::SlotsPeriod.into());
    }
    Ok((RuleSpec::slots(limit(given)?), options))
}

fn limit(text: &[u8]) -> Result<u64, RuleTextError> {
    digits(text).ok_or_else(|| wrong("limit", text, "an integer 0..1000000000"))
}

/// The part before a comma, and what follows the comma.
fn until_comma(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    match split(text, b',') {
        Some((part, rest)) => (part, Some(rest)),
        None => (text, None),
    }
}

/// The text before the first byte `at`, and the text after it.
fn split(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let middle = text.iter().position(|&byte| byte == at)?;
    let (before, after) = text.split_at_checked(middle)?;
    Some((before, after.get(1..)?))
}

fn algorithm(name: &[u8]) -> Result<Kind, RuleTextError> {
    Kind::of_name(name).ok_or_else(|| RuleTextError::UnknownAlgorithm { given: Excerpt::new(name) })
}

/// Reads one option into the spec. Also reads options of other algorithms, which validation
/// then refuses by name.
fn read_option(
    spec: &mut RuleSpec,
    text: &[u8],
    given: &mut [bool; RuleOption::ALL.len()],
) -> Result<(), RuleTextError> {
    let (name, value) = match split(text, b'=') {
        Some((name, value)) => (name, Some(value)),
        None => (text, None),
    };
    let unknown = || RuleTextError::UnknownOption { given: Excerpt::new(name), kind: spec.kind };
    let option = RuleOption::of_name(name).ok_or_else(unknown)?;
    if given.get_mut(option as usize).is_some_and(|given| std::mem::replace(given, true)) {
        return Err(RuleTextError::RepeatedOption(option));
    }
    let value = match (option.value(), value) {
        (Some(_), Some(value)) => value,
        (Some(expected), None) => return Err(RuleTextError::NoValue { option, expected }),
        (None, Some(value)) => return Err(wrong(option.name(), value, "no value")),
        (None, None) => b"",
    };
    let wrong = || wrong(option.name(), value, option.value().unwrap_or_default());
    match option {
        RuleOption::Res => spec.res = Some(digits(value).ok_or_else(wrong)?),
        RuleOption::Align => {
            spec.align = Some(match value {
                b"epoch" => Align::Epoch,
                b"first" => Align::First,
                _ => return Err(wrong()),
            });
        }
        RuleOption::Tz => spec.tz_min = Some(time_zone(value).ok_or_else(wrong)?),
        RuleOption::Keep => spec.keep = Some(digits(value).ok_or_else(wrong)?),
        RuleOption::Burst => spec.burst = Some(digits(value).ok_or_else(wrong)?),
        RuleOption::Refill => {
            spec.refill = Some(match value {
                b"interval" => Refill::Interval,
                _ => return Err(wrong()),
            });
        }
        RuleOption::Queue => spec.queue = Some(digits(value).ok_or_else(wrong)?),
        RuleOption::Name => spec.name = Some(Name::new(value).ok_or_else(wrong)?),
        RuleOption::Count => {
            spec.count_all = match value {
                b"all" => true,
                b"allowed" => false,
                _ => return Err(wrong()),
            };
        }
        RuleOption::Cost => spec.cost = Some(digits(value).ok_or_else(wrong)?),
        RuleOption::Ban => spec.ban = Some(ladder(value)?),
        RuleOption::Shadow => spec.shadow = true,
    }
    Ok(())
}

/// Reads the rungs of a ladder.
fn ladder(text: &[u8]) -> Result<Ladder, RuleTextError> {
    let option = RuleOption::Ban;
    let mut rungs = text.split(|&byte| byte == b':');
    let mut next = || rungs.next().map(|rung| span_us(option.name(), rung)).transpose();
    let too_many = || wrong(option.name(), text, option.value().unwrap_or_default());
    let mut ladder = next()?.and_then(Ladder::new).ok_or_else(too_many)?;
    while let Some(rung_us) = next()? {
        ladder = ladder.and(rung_us).ok_or_else(too_many)?;
    }
    Ok(ladder)
}

#[cold]
fn wrong(what: &'static str, given: &[u8], expected: &'static str) -> RuleTextError {
    RuleTextError::Value { what, given: Excerpt::new(given), expected }
}

/// Reads a period. A count that overflows becomes `u64::MAX`, which validation refuses.
fn period(of: PeriodOf, text: &[u8]) -> Result<Period, RuleTextError> {
    let is_unit = |byte: &u8| !byte.is_ascii_digit();
    let count_len = text.iter().position(is_unit).unwrap_or(text.len());
    let (count, unit) = text.split_at_checked(count_len).unwrap_or_default();
    let unit = match unit {
        b"ms" => Unit::Millisecond,
        b"s" | b"sec" | b"secs" | b"second" | b"seconds" => Unit::Second,
        b"m" | b"min" | b"mins" | b"minute" | b"minutes" => Unit::Minute,
        b"h" | b"hour" | b"hours" => Unit::Hour,
        b"d" | b"day" | b"days" => Unit::Day,
        b"w" | b"week" | b"weeks" => Unit::Week,
        b"month" => Unit::Month,
        _ => return Err(bad_period(of, text, unit)),
    };
    let count = if count.is_empty() { 1 } else { digits(count).unwrap_or(u64::MAX) };
    Ok(Period { count, unit })
}

#[cold]
fn bad_period(of: PeriodOf, text: &[u8], unit: &[u8]) -> RuleTextError {
    let given = Excerpt::new(text);
    if !text.is_empty() && unit.iter().all(u8::is_ascii_alphabetic) {
        RuleTextError::PeriodUnit { of, given }
    } else {
        RuleTextError::Period { of, given }
    }
}

/// `+HH:MM` or `-HH:MM` as minutes.
fn time_zone(text: &[u8]) -> Option<i16> {
    let &[sign, h1, h2, b':', m1, m2] = text else { return None };
    let hours = i16::try_from(digits(&[h1, h2])?).ok()?;
    let minutes = i16::try_from(digits(&[m1, m2])?).ok()?;
    let east = hours.checked_mul(60)?.checked_add(minutes)?;
    match sign {
        _ if minutes >= 60 => None,
        b'+' => Some(east),
        b'-' => east.checked_neg(),
        _ => None,
    }
}

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write(f, self.cost.written())
    }
}

/// A rule's canonical text with its cost in this request, whether `cost=` or `COST name=n`
/// gives it.
#[derive(Clone, Copy, Debug)]
pub struct WithCost<'a>(pub &'a Rule);

impl Display for WithCost<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.write(f, self.0.cost.own())
    }
}

impl Rule {
    /// Writes the canonical text with this cost.
    fn write(&self, f: &mut Formatter<'_>, cost: Option<u32>) -> fmt::Result {
        let Self {
            algorithm,
            limit,
            period_us,
            name,
            count_all,
            ref ban,
            shadow,
            capacity: _,
            cost: _,
        } = *self;
        f.write_str(self.kind().name())?;
        f.write_str(":")?;
        Number(limit).fmt(f)?;
        if algorithm != Algorithm::Slots {
            f.write_str("/")?;
        }
        match algorithm {
            Algorithm::Slots => {}
            Algorithm::Fixed(FixedParams { calendar: Some(Calendar::Months), .. }) => {
                f.write_str("1month")?;
            }
            Algorithm::Fixed(FixedParams { calendar: Some(Calendar::Epoch) | None, .. }) => {
                write_period(f, period_us, false)?;
            }
            Algorithm::Fixed(FixedParams { calendar: Some(Calendar::Weeks), .. })
            | Algorithm::Log
            | Algorithm::Window(_)
            | Algorithm::Bucket(_)
            | Algorithm::Leaky(_) => write_period(f, period_us, true)?,
        }
        match algorithm {
            Algorithm::Log | Algorithm::Slots => {}
            Algorithm::Window(WindowParams { res }) => {
                write_unless(f, RuleOption::Res, res == 1, Number(res.into()))?;
            }
            Algorithm::Fixed(FixedParams { calendar, tz_min, keep }) => {
                write_unless(f, RuleOption::Align, calendar.is_some(), "first")?;
                write_unless(f, RuleOption::Tz, tz_min == 0, TimeZone(tz_min))?;
                write_unless(f, RuleOption::Keep, keep == 0, Number(keep.into()))?;
            }
            Algorithm::Bucket(BucketParams { burst, refill }) => {
                write_unless(f, RuleOption::Burst, burst == limit, Number(burst))?;
                write_unless(f, RuleOption::Refill, refill == Refill::Even, "interval")?;
            }
            Algorithm::Leaky(LeakyParams { queue }) => {
                write_unless(f, RuleOption::Queue, queue == limit, Number(queue))?;
            }
        }
        if let Some(name) = name {
            write_option(f, RuleOption::Name, name.as_str())?;
        }
        if count_all {
            write_option(f, RuleOption::Count, "all")?;
        }
        if let Some(cost) = cost {
            write_option(f, RuleOption::Cost, Number(cost))?;
        }
        if let Some(ladder) = ban {
            write_option(f, RuleOption::Ban, ladder)?;
        }
        if shadow {
            f.write_str(",")?;
            f.write_str(RuleOption::Shadow.name())?;
        }
        Ok(())
    }
}

fn write_option(f: &mut Formatter<'_>, option: RuleOption, value: impl Display) -> fmt::Result {
    f.write_str(",")?;
    f.write_str(option.name())?;
    f.write_str("=")?;
    value.fmt(f)
}

/// Writes an option that differs from its default.
fn write_unless(
    f: &mut Formatter<'_>,
    option: RuleOption,
    is_default: bool,
    value: impl Display,
) -> fmt::Result {
    if is_default { Ok(()) } else { write_option(f, option, value) }
}

/// A number of units, printed by `itoa`: every effect of `RL.THROTTLE` prints its rule,
/// and the standard library takes several times as long.
struct Number(u32);

impl Display for Number {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(itoa::Buffer::new().format(self.0))
    }
}

/// Minutes east of UTC as `+HH:MM` or `-HH:MM`.
struct TimeZone(i16);

impl Display for TimeZone {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (sign, minutes) = (if self.0 < 0 { '-' } else { '+' }, self.0.unsigned_abs());
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

/// A period in microseconds, in the longest unit that divides it.
pub(crate) struct DisplayPeriod(pub u64);

impl Display for DisplayPeriod {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_period(f, self.0, true)
    }
}

impl Display for Ladder {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, rung_us) in self.rungs_us().enumerate() {
            f.write_str(if index == 0 { "" } else { ":" })?;
            write_period(f, rung_us, true)?;
        }
        Ok(())
    }
}

/// Writes a period in the longest unit that divides it; in weeks only if `weeks`.
fn write_period(f: &mut Formatter<'_>, us: u64, weeks: bool) -> fmt::Result {
    for unit in Unit::PLAIN {
        if unit == Unit::Week && !weeks {
            continue;
        }
        if us.checked_rem(unit.micros()) == Some(0) {
            let count = us.checked_div(unit.micros()).unwrap_or(0);
            f.write_str(itoa::Buffer::new().format(count))?;
            return f.write_str(unit.symbol());
        }
    }
    write!(f, "{us}us")
}

#[cfg(test)]
mod tests;
