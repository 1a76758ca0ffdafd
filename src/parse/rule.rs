//! The text of a rule.
//!
//! ```text
//! rule   = [algorithm ":"] limit "/" period *("," option)
//! period = [integer] unit
//! unit   = ms | s sec second | m min minute | h hour | d day | w week | month
//!          the words also in the plural, but for month
//! option = word | word "=" value
//! ```
//!
//! Read in one pass from left to right into a [`RuleSpec`], which then
//! validates itself. Names are lower case, integers are digits only, an option
//! may be given once: a text has one reading or none.

use super::cursor::digits;
use super::error::{Excerpt, ParseError, RuleTextError, THE_PERIOD};
use crate::rule::{Align, Kind, Name, Period, Refill, Rule, RuleSpec, Unit};

const UNITS: &str = "an integer 0..1000000000";

/// A rule from its text.
///
/// # Errors
/// [`ParseError::Rule`], naming the rule, what is wrong and what was expected.
pub fn rule(text: &[u8]) -> Result<Rule, ParseError> {
    spec(text).and_then(|spec| Ok(spec.validate()?)).map_err(|fault| ParseError::rule(text, fault))
}

/// Whether an argument is meant as a rule; no keyword looks like one. An
/// algorithm without a period, such as `bucket:10`, is meant as one.
#[must_use]
pub fn looks_like_rule(text: &[u8]) -> bool {
    let names_algorithm = || split(text, b':').is_some_and(|(name, _)| algorithm(name).is_ok());
    text.first() == Some(&b'@') || text.contains(&b'/') || names_algorithm()
}

/// A length of time as the `ban` of a rule has it, for an option of a command:
/// 1 ms to 366 days in microseconds, in any unit but months.
///
/// # Errors
/// [`ParseError::Span`], naming the option, what is wrong and what was expected.
pub fn span_us(option: &'static str, text: &[u8]) -> Result<u64, ParseError> {
    let expected = "a period of 1ms..366d";
    period(option, text)
        .and_then(|period| period.plain_micros().ok_or_else(|| wrong(option, text, expected)))
        .map_err(ParseError::Span)
}

fn spec(text: &[u8]) -> Result<RuleSpec, RuleTextError> {
    let (head, tail) = split(text, b'/').ok_or(RuleTextError::NoPeriod)?;
    let (kind, limit) = match split(head, b':') {
        Some((name, limit)) => (algorithm(name)?, limit),
        None => (Kind::Log, head),
    };
    let limit = number("limit", limit, UNITS)?;
    let (period, mut rest) = next_part(tail);
    let mut spec = RuleSpec::new(kind, limit, self::period(THE_PERIOD, period)?);
    let mut seen = Seen::default();
    while let Some(options) = rest {
        let (text, after) = next_part(options);
        option(&mut spec, text, &mut seen)?;
        rest = after;
    }
    Ok(spec)
}

/// The part before a comma, and what follows it.
fn next_part(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    match split(text, b',') {
        Some((part, rest)) => (part, Some(rest)),
        None => (text, None),
    }
}

/// The text before the first such byte, and the text after it.
fn split(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let middle = text.iter().position(|&byte| byte == at)?;
    let (before, after) = text.split_at_checked(middle)?;
    Some((before, after.get(1..)?))
}

fn algorithm(name: &[u8]) -> Result<Kind, RuleTextError> {
    Ok(match name {
        b"log" => Kind::Log,
        b"window" => Kind::Window,
        b"fixed" => Kind::Fixed,
        b"bucket" => Kind::Bucket,
        b"leaky" => Kind::Leaky,
        _ => return Err(RuleTextError::UnknownAlgorithm { given: Excerpt::new(name) }),
    })
}

/// The options given so far whose absence the spec cannot tell.
#[derive(Default)]
struct Seen {
    count: bool,
    shadow: bool,
}

/// Reads one option into the spec. An option of another algorithm is read like
/// any other; the spec refuses it by name.
fn option(spec: &mut RuleSpec, text: &[u8], seen: &mut Seen) -> Result<(), RuleTextError> {
    let (word, value) = match split(text, b'=') {
        Some((word, value)) => (word, Some(value)),
        None => (text, None),
    };
    let given = |option, expected| value.ok_or(RuleTextError::NoValue { option, expected });
    match word {
        b"res" => once(&mut spec.res, "res", || {
            const RES: &str = "an integer 1..60";
            number("res", given("res", RES)?, RES)
        }),
        b"align" => once(&mut spec.align, "align", || {
            const ALIGN: &str = "epoch or first";
            match given("align", ALIGN)? {
                b"epoch" => Ok(Align::Epoch),
                b"first" => Ok(Align::First),
                other => Err(wrong("align", other, ALIGN)),
            }
        }),
        b"tz" => once(&mut spec.tz_min, "tz", || {
            const TZ: &str = "+HH:MM or -HH:MM";
            let value = given("tz", TZ)?;
            time_zone(value).ok_or_else(|| wrong("tz", value, TZ))
        }),
        b"keep" => once(&mut spec.keep, "keep", || {
            const KEEP: &str = "an integer 0..366";
            number("keep", given("keep", KEEP)?, KEEP)
        }),
        b"burst" => once(&mut spec.burst, "burst", || {
            const BURST: &str = "an integer 1..1000000000";
            number("burst", given("burst", BURST)?, BURST)
        }),
        b"refill" => once(&mut spec.refill, "refill", || match given("refill", "interval")? {
            b"interval" => Ok(Refill::Interval),
            other => Err(wrong("refill", other, "interval")),
        }),
        b"queue" => {
            once(&mut spec.queue, "queue", || number("queue", given("queue", UNITS)?, UNITS))
        }
        b"name" => once(&mut spec.name, "name", || {
            const NAME: &str = "1 to 32 of A-Z a-z 0-9 _ . -";
            let value = given("name", NAME)?;
            Name::new(value).ok_or_else(|| wrong("name", value, NAME))
        }),
        b"count" => {
            const COUNT: &str = "all or allowed";
            first(&mut seen.count, "count")?;
            spec.count_all = match given("count", COUNT)? {
                b"all" => true,
                b"allowed" => false,
                other => return Err(wrong("count", other, COUNT)),
            };
            Ok(())
        }
        b"ban" => {
            once(&mut spec.ban, "ban", || period("ban", given("ban", "a period such as 10m")?))
        }
        b"shadow" => {
            first(&mut seen.shadow, "shadow")?;
            if let Some(value) = value {
                return Err(wrong("shadow", value, "no value"));
            }
            spec.shadow = true;
            Ok(())
        }
        _ => Err(RuleTextError::UnknownOption { given: Excerpt::new(word), kind: spec.kind }),
    }
}

/// Fills an option's place, which must be empty yet.
fn once<T>(
    place: &mut Option<T>,
    option: &'static str,
    read: impl FnOnce() -> Result<T, RuleTextError>,
) -> Result<(), RuleTextError> {
    if place.is_some() {
        return Err(RuleTextError::RepeatedOption { option });
    }
    *place = Some(read()?);
    Ok(())
}

fn first(seen: &mut bool, option: &'static str) -> Result<(), RuleTextError> {
    if std::mem::replace(seen, true) {
        return Err(RuleTextError::RepeatedOption { option });
    }
    Ok(())
}

fn number(what: &'static str, text: &[u8], expected: &'static str) -> Result<u64, RuleTextError> {
    digits(text).ok_or_else(|| wrong(what, text, expected))
}

#[cold]
fn wrong(what: &'static str, given: &[u8], expected: &'static str) -> RuleTextError {
    RuleTextError::Value { what, given: Excerpt::new(given), expected }
}

/// A period; one too long for a `u64` counts as the longest, which no rule
/// takes either.
fn period(what: &'static str, text: &[u8]) -> Result<Period, RuleTextError> {
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
        _ => return Err(bad_period(what, text, unit)),
    };
    let count = if count.is_empty() { 1 } else { digits(count).unwrap_or(u64::MAX) };
    Ok(Period { count, unit })
}

#[cold]
fn bad_period(what: &'static str, text: &[u8], unit: &[u8]) -> RuleTextError {
    let given = Excerpt::new(text);
    if !text.is_empty() && unit.iter().all(u8::is_ascii_alphabetic) {
        RuleTextError::PeriodUnit { what, given }
    } else {
        RuleTextError::Period { what, given }
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

#[cfg(test)]
mod tests;
