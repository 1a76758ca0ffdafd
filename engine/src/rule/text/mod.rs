//! The text of a rule, read and printed.
//!
//! ```text
//! rule   = [algorithm ":"] limit "/" period *("," option)
//!        | "slots:" limit *("," option)
//! period = [integer] unit
//! unit   = ms | s sec second | m min minute | h hour | d day | w week | month
//!          the words also in the plural, except month
//! option = name | name "=" value
//! ban    = period *(":" period)
//! ```
//!
//! [`Rule::from_text`] reads a text in one pass from left to right into a [`RuleSpec`],
//! and validates the spec. Names are lower case, integers are digits only, and an option
//! may be given once: a text has at most one reading.
//!
//! `Display` prints the canonical text. It always names the algorithm, and has the
//! period in its longest unit. It has the options in one order, and only those that
//! differ from their defaults.

use super::{
    CommonOption, Excerpt, Kind, Ladder, Name, Period, Rule, RuleError, RuleOption, RuleSpec, Unit,
    meant,
};
use alloc::vec::Vec;
use core::fmt;
use core::fmt::{Display, Formatter};

impl Rule {
    /// Reads a rule from its text.
    ///
    /// # Errors
    /// [`RuleError`] about the first part that cannot be read. If every part can be read, the error
    /// is about a part that is not valid.
    pub fn from_text(text: &[u8]) -> Result<Self, RuleError> {
        RuleSpec::from_text(text)?.validate()
    }
}

/// Whether a text is meant as a rule: it has a slash, or it begins with a digit or with an
/// algorithm's name and a colon. So `10` and `bucket:10` get the error that the period is
/// missing.
pub fn looks_like_rule(text: &[u8]) -> bool {
    let begins_with_limit = || text.first().is_some_and(u8::is_ascii_digit);
    let kind = || split(text, b':').and_then(|(name, _)| Kind::of_name(name));
    text.contains(&b'/') || begins_with_limit() || kind().is_some()
}

/// Reads a period that is not part of a rule: 1 ms to 366 days, in any unit but months.
/// Returns it in microseconds.
///
/// # Errors
/// [`RuleError`], which names the option that the period belongs to.
pub fn span_us(option: &'static str, text: &[u8]) -> Result<u64, RuleError> {
    let period = period(option, SPAN_UNITS, text)?;
    let us = period.micros().filter(|_| period.unit != Unit::Month);
    us.ok_or_else(|| wrong(option, text, "a period of 1ms..366d"))
}

/// The number that these decimal digits form; `None` for a sign, a blank or an overflow.
#[inline]
pub fn digits(text: &[u8]) -> Option<u64> {
    /// Any number with at most this number of digits fits `u64`.
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

impl RuleSpec {
    /// Reads a rule without testing its bounds.
    pub(crate) fn from_text(text: &[u8]) -> Result<Self, RuleError> {
        let (mut spec, mut rest) = match split(text, b':') {
            Some((name, slots)) if Kind::of_name(name) == Some(Kind::Slots) => {
                spec_of_slots(slots)?
            }
            _ => spec_of_rate(text)?,
        };
        let mut given = Vec::new();
        while let Some(options) = rest {
            let (option, after) = cut(options, b',');
            read_option(&mut spec, option, &mut given)?;
            rest = after;
        }
        Ok(spec)
    }
}

/// A limit and a period, and the options that follow.
fn spec_of_rate(text: &[u8]) -> Result<(RuleSpec, Option<&[u8]>), RuleError> {
    let (head, tail) = split(text, b'/').ok_or_else(|| no_period(text))?;
    let (kind, given) = match split(head, b':') {
        Some((name, limit)) => (algorithm(name)?, limit),
        None => (Kind::Log, head),
    };
    let limit = limit(given)?;
    let (period_text, options) = cut(tail, b',');
    Ok((RuleSpec::new(kind, limit, period("the period", RULE_UNITS, period_text)?), options))
}

/// A limit without a period, and the options that follow.
fn spec_of_slots(text: &[u8]) -> Result<(RuleSpec, Option<&[u8]>), RuleError> {
    let (given, options) = cut(text, b',');
    if given.contains(&b'/') {
        return Err(RuleError::SlotsPeriod);
    }
    Ok((RuleSpec::slots(limit(given)?), options))
}

fn limit(text: &[u8]) -> Result<u64, RuleError> {
    digits(text).ok_or_else(|| wrong("limit", text, "an integer 0..1000000000"))
}

/// The text before the first byte `at`, and the text after it; without such a byte, all of the text.
fn cut(text: &[u8], at: u8) -> (&[u8], Option<&[u8]>) {
    split(text, at).map_or((text, None), |(before, after)| (before, Some(after)))
}

/// The text before the first byte `at`, and the text after it.
pub fn split(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let middle = text.iter().position(|&byte| byte == at)?;
    let (before, after) = text.split_at_checked(middle)?;
    Some((before, after.get(1..)?))
}

fn algorithm(name: &[u8]) -> Result<Kind, RuleError> {
    Kind::of_name(name).ok_or_else(|| RuleError::UnknownAlgorithm {
        given: Excerpt::new(name),
        meant: meant::algorithm(name),
    })
}

#[cold]
fn no_period(text: &[u8]) -> RuleError {
    let (kind, given) = match split(text, b':') {
        Some((name, given)) => (meant::algorithm(name), given),
        None => (None, text),
    };
    meant::rate(cut(given, b',').0)
        .map_or(RuleError::NoPeriod, |(limit, unit)| RuleError::PeriodInWords { kind, limit, unit })
}

/// Reads one option into the spec. Also reads options of other algorithms, which validation
/// then refuses by name.
fn read_option(
    spec: &mut RuleSpec,
    text: &[u8],
    given: &mut Vec<&'static str>,
) -> Result<(), RuleError> {
    let (name, value) = cut(text, b'=');
    let unknown = || RuleError::UnknownOption { given: Excerpt::new(name), kind: spec.kind };
    let option = RuleOption::of_name(name).ok_or_else(unknown)?;
    if given.contains(&option.name()) {
        return Err(RuleError::RepeatedOption(option));
    }
    given.push(option.name());
    if value.is_none() && option != RuleOption::Common(CommonOption::Shadow) {
        return Err(RuleError::NoValue(option));
    }
    let (value, has_value) = (value.unwrap_or_default(), value.is_some());
    let wrong = || RuleError::of_value(option, value);
    let option = match option {
        RuleOption::Common(option) => option,
        RuleOption::Own(_, own) => {
            spec.set(option, (own.read)(value).ok_or_else(wrong)?);
            return Ok(());
        }
    };
    match option {
        CommonOption::Name => spec.name = Some(Name::new(value).ok_or_else(wrong)?),
        CommonOption::Count => {
            spec.count_all = match value {
                b"all" => true,
                b"allowed" => false,
                _ => return Err(wrong()),
            };
        }
        CommonOption::Cost => spec.cost = Some(digits(value).ok_or_else(wrong)?),
        CommonOption::Ban => spec.ban = Some(ladder(value)?),
        CommonOption::Shadow if has_value => return Err(wrong()),
        CommonOption::Shadow => spec.shadow = true,
    }
    Ok(())
}

/// Reads the rungs of a ladder.
fn ladder(text: &[u8]) -> Result<Ladder, RuleError> {
    let option = RuleOption::Common(CommonOption::Ban);
    let mut rungs = text.split(|&byte| byte == b':');
    let mut next = || rungs.next().map(|rung| span_us(option.name(), rung)).transpose();
    let too_many = || RuleError::of_value(option, text);
    let mut ladder = next()?.and_then(Ladder::new).ok_or_else(too_many)?;
    while let Some(rung_us) = next()? {
        ladder = ladder.and(rung_us).ok_or_else(too_many)?;
    }
    Ok(ladder)
}

#[cold]
fn wrong(what: &'static str, given: &[u8], expected: &'static str) -> RuleError {
    RuleError::Value { what, given: Excerpt::new(given), expected }
}

/// The units of a rule's period.
const RULE_UNITS: &str =
    "ms, s (sec, second), m (min, minute), h (hour), d (day), w (week) or month";
/// The units of a period that is an option's value.
const SPAN_UNITS: &str = "ms, s (sec, second), m (min, minute), h (hour), d (day) or w (week)";

/// Reads a period; errors call it `of` and expect one of these units. A count that overflows
/// becomes `u64::MAX`, which validation refuses.
fn period(of: &'static str, units: &'static str, text: &[u8]) -> Result<Period, RuleError> {
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
        _ => return Err(bad_period(of, units, text, unit)),
    };
    let count = if count.is_empty() { 1 } else { digits(count).unwrap_or(u64::MAX) };
    Ok(Period { count, unit })
}

#[cold]
fn bad_period(of: &'static str, units: &'static str, text: &[u8], unit: &[u8]) -> RuleError {
    let given = Excerpt::new(text);
    if !text.is_empty() && unit.iter().all(u8::is_ascii_alphabetic) {
        RuleError::PeriodUnit { of, given, units }
    } else {
        RuleError::Period { of, given }
    }
}

/// The canonical text; `{:#}` shows the cost in this request, whether `cost=` or `COST name=n` gives
/// it.
impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { params, limit, .. } = *self;
        let cost = if f.alternate() { self.cost.own() } else { self.cost.written() };
        f.write_str(self.kind().name())?;
        f.write_str(":")?;
        Number(limit).fmt(f)?;
        params.write(self, f)?;
        write_option(f, CommonOption::Name.name(), self.name().map(Name::as_str))?;
        write_option(f, CommonOption::Count.name(), self.count_all.then_some("all"))?;
        write_option(f, CommonOption::Cost.name(), cost.map(Number))?;
        write_option(f, CommonOption::Ban.name(), self.ban())?;
        if self.is_written_shadow() || f.alternate() && self.is_observed() {
            f.write_str(",")?;
            f.write_str(CommonOption::Shadow.name())?;
        }
        Ok(())
    }
}

/// Writes an option. Without a value the option has its default, and is not written.
pub(crate) fn write_option(
    f: &mut Formatter<'_>,
    option: &str,
    value: Option<impl Display>,
) -> fmt::Result {
    let Some(value) = value else { return Ok(()) };
    f.write_str(",")?;
    f.write_str(option)?;
    f.write_str("=")?;
    value.fmt(f)
}

/// A number of units, printed by `itoa`: every effect of `RL.THROTTLE` prints its rule,
/// and the standard library takes several times as long.
pub(crate) struct Number(pub u32);

impl Display for Number {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(itoa::Buffer::new().format(self.0))
    }
}

/// A period in microseconds, in the longest unit that divides it.
pub(crate) struct DisplayPeriod(pub u64);

impl Display for DisplayPeriod {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_length(f, self.0, Unit::Week)
    }
}

impl Display for Ladder {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, rung_us) in self.rungs_us().enumerate() {
            f.write_str(if index == 0 { "" } else { ":" })?;
            write_length(f, rung_us, Unit::Week)?;
        }
        Ok(())
    }
}

/// Writes the period of a rule in the longest unit, up to `longest`, that divides it.
pub(crate) fn write_period(f: &mut Formatter<'_>, rule: &Rule, longest: Unit) -> fmt::Result {
    f.write_str("/")?;
    write_length(f, rule.period_us, longest)
}

/// Writes a length of time in the longest unit, up to `longest`, that divides it.
fn write_length(f: &mut Formatter<'_>, us: u64, longest: Unit) -> fmt::Result {
    let Some(Period { count, unit }) = Period::of_micros(us, longest) else {
        return write!(f, "{us}us");
    };
    f.write_str(itoa::Buffer::new().format(count))?;
    f.write_str(unit.name())
}

#[cfg(all(test, feature = "testing"))]
mod tests;
