//! `CL.THROTTLE` and `RL.THROTTLE`: three or four numbers that give a token bucket and a quantity.
//!
//! ```text
//! 15 30 60 1   is   RL.CHECK key COST 1 bucket:30/60s,burst=16,name=throttle
//! ```
//!
//! Because of the name, the state stays when the period changes. In redis-cell, too, all calls of a key
//! use one bucket. A negative quantity gives units back, which redis-cell does without documenting it.

use super::cursor::{Cursor, UNITS, units};
use super::error::{ParseError, Parsed};
use ratelimit_engine::rule::{MAX_UNITS, Name, Period, Rule, RuleSpec, THROTTLE, Unit};
use std::ops::RangeInclusive;

/// The bounds of `max_burst`, which is the capacity minus one.
const MAX_BURST: RangeInclusive<u64> = 0..=MAX_UNITS as u64 - 1;
/// The bounds of the period: up to 366 days.
const PERIOD_S: RangeInclusive<u64> = 1..=366 * 86_400;

/// The arguments of an `RL.THROTTLE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottleRequest {
    /// Which rule decides.
    pub bucket: Bucket,
    /// How many units to take; if negative, how many to give back. At most [`MAX_UNITS`]; 1 if no
    /// quantity was given.
    pub quantity: i32,
}

/// A token bucket, given by numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The capacity, `max_burst` + 1, even if tokens never come back.
    pub limit: u32,
    count: u32,
    period_s: u32,
}

/// Parses an `RL.THROTTLE` or `CL.THROTTLE`.
pub fn throttle<'a>(args: impl Iterator<Item = &'a [u8]>) -> Parsed<ThrottleRequest> {
    let mut args = Cursor::new(args);
    let max_burst: u32 = args.integer("max_burst", MAX_BURST)?;
    let count: u32 = args.integer("count_per_period", UNITS)?;
    let period_s: u32 = args.integer("period", PERIOD_S)?;
    let quantity = args.take().map_or(Ok(1), quantity)?;
    if args.take().is_some() {
        return Err(ParseError::Arity);
    }
    let bucket = Bucket { limit: max_burst.saturating_add(1), count, period_s };
    Ok(ThrottleRequest { bucket, quantity })
}

impl Bucket {
    /// The numbers that distinguish this bucket.
    #[inline]
    pub fn numbers(self) -> [u64; 3] {
        [self.limit, self.count, self.period_s].map(u64::from)
    }

    /// The bucket as a rule.
    ///
    /// # Errors
    /// [`ParseError::Rule`] if the numbers make no rule.
    pub fn rule(self) -> Parsed<Rule> {
        let period = Period { count: self.period_s.into(), unit: Unit::Second };
        let mut spec = RuleSpec::bucket(self.count.into(), period, self.limit);
        spec.name = Name::new(THROTTLE.as_bytes());
        spec.validate().map_err(|error| ParseError::rule(THROTTLE.as_bytes(), error))
    }
}

fn quantity(arg: &[u8]) -> Parsed<i32> {
    let number = |text| i32::try_from(units(text)?).ok();
    let quantity = match arg.strip_prefix(b"-") {
        Some(text) => number(text).map(i32::wrapping_neg),
        None => number(arg),
    };
    let expected = "an integer -1000000000..1000000000";
    quantity.ok_or_else(|| ParseError::value("quantity", arg, expected))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::resolver::{DirectMapped, SLOTS};

    fn parsed(args: &str) -> Result<(String, u32, i32), String> {
        let args = args.split(' ').filter(|arg| !arg.is_empty()).map(str::as_bytes);
        let shown = |request: ThrottleRequest| {
            let ThrottleRequest { bucket, quantity } = request;
            Ok((bucket.rule()?.to_string(), bucket.limit, quantity))
        };
        throttle(args).and_then(shown).map_err(|error: ParseError| error.to_string())
    }

    #[test]
    fn numbers_give_a_bucket_and_a_quantity() {
        for (args, rule, limit, quantity) in [
            ("15 30 60", "bucket:30/1m,burst=16,name=throttle", 16, 1),
            ("15 30 60 0", "bucket:30/1m,burst=16,name=throttle", 16, 0),
            ("29 30 61 1000000000", "bucket:30/61s,name=throttle", 30, 1_000_000_000),
            ("4 0 1 -0", "bucket:0/1s,burst=5,name=throttle", 5, 0),
            ("0 1 1 -1", "bucket:1/1s,name=throttle", 1, -1),
            (
                "999999999 1000000000 31622400 -1000000000",
                "bucket:1000000000/366d,name=throttle",
                1_000_000_000,
                -1_000_000_000,
            ),
        ] {
            assert_eq!(parsed(args), Ok((rule.to_string(), limit, quantity)), "{args}");
        }
    }

    #[test]
    fn cached_buckets_equal_those_made_without_a_cache() {
        let mut rules = DirectMapped::<Bucket, Rule>::default();
        for n in 0..2_000_u32 {
            let bucket = Bucket { limit: n % 7 + 1, count: n % 11, period_s: n % 3 + 1 };
            let make = || bucket.rule().map(|rule| (bucket, rule));
            let cached = rules.get_or_try_insert(bucket.numbers(), |key| *key == bucket, make);
            let cached = cached.copied();
            assert_eq!(cached, bucket.rule(), "{bucket:?}");
        }
        assert_eq!(rules.entries(), SLOTS, "some slots stay empty");
    }

    #[test]
    fn errors_name_what_was_given_and_expected() {
        const ARITY: &str = "wrong number of arguments";
        for (args, error) in [
            ("", ARITY),
            ("15 30", ARITY),
            ("15 30 60 1 1", ARITY),
            ("-1 30 60", "max_burst is '-1', expected an integer 0..999999999"),
            ("1000000000 30 60", "max_burst is '1000000000', expected an integer 0..999999999"),
            ("15 -1 60", "count_per_period is '-1', expected an integer 0..1000000000"),
            ("15 x 60", "count_per_period is 'x', expected an integer 0..1000000000"),
            ("15 30 0", "period is '0', expected an integer 1..31622400"),
            ("15 30 31622401", "period is '31622401', expected an integer 1..31622400"),
            (
                "15 30 9223372036854775808",
                "period is '9223372036854775808', expected an integer 1..31622400",
            ),
            ("15 30 60 --1", "quantity is '--1', expected an integer -1000000000..1000000000"),
            ("15 30 60 -", "quantity is '-', expected an integer -1000000000..1000000000"),
            (
                "15 30 60 1000000001",
                "quantity is '1000000001', expected an integer -1000000000..1000000000",
            ),
            (
                "15 30 60 -1000000001",
                "quantity is '-1000000001', expected an integer -1000000000..1000000000",
            ),
        ] {
            assert_eq!(parsed(args), Err(error.into()), "{args}");
        }
    }
}
