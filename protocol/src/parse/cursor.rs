//! A cursor over a command's arguments: a parser looks at the next argument
//! before it takes the argument.

use super::error::{ParseError, Parsed};
use super::limits::Limits;
use ratelimit_engine::rule::{MAX_TIME_US, MAX_UNITS, digits};
use std::ops::RangeInclusive;

/// The arguments not yet taken.
#[derive(Clone)]
pub struct Cursor<'a, I> {
    next: Option<&'a [u8]>,
    rest: I,
}

impl<'a, I: Iterator<Item = &'a [u8]>> Cursor<'a, I> {
    pub fn new(mut args: I) -> Self {
        Self { next: args.next(), rest: args }
    }

    /// The next argument, without taking it.
    pub fn peek(&self) -> Option<&'a [u8]> {
        self.next
    }

    /// Takes the next argument.
    pub fn take(&mut self) -> Option<&'a [u8]> {
        let taken = self.next;
        if taken.is_some() {
            self.next = self.rest.next();
        }
        taken
    }

    /// Takes the next argument if it is this keyword, in upper or lower case.
    pub fn keyword(&mut self, keyword: &str) -> bool {
        let found = self.next.is_some_and(|arg| arg.eq_ignore_ascii_case(keyword.as_bytes()));
        if found {
            self.next = self.rest.next();
        }
        found
    }

    /// Takes an argument that the command requires.
    ///
    /// # Errors
    /// [`ParseError::Arity`] if no argument is left.
    pub fn required(&mut self) -> Parsed<&'a [u8]> {
        let Some(arg) = self.take() else { return Err(ParseError::Arity) };
        Ok(arg)
    }

    /// Takes an integer that the command requires.
    ///
    /// # Errors
    /// [`ParseError::Arity`] if no argument is left, [`ParseError::Value`] if the
    /// argument is no integer within bounds.
    #[inline]
    pub fn integer<T: TryFrom<u64>>(
        &mut self,
        what: &'static str,
        bounds: RangeInclusive<u64>,
    ) -> Parsed<T> {
        integer(self.required()?, what, bounds)
    }

    /// Takes the integer that follows an option's name.
    ///
    /// # Errors
    /// [`ParseError::Missing`] if no argument is left, [`ParseError::Value`] if
    /// the argument is no integer within bounds.
    pub fn value<T: TryFrom<u64>>(
        &mut self,
        option: &'static str,
        bounds: RangeInclusive<u64>,
    ) -> Parsed<T> {
        let no_value =
            || ParseError::missing(option, format!("value, expected {}", an_integer(&bounds)));
        integer(self.take().ok_or_else(no_value)?, option, bounds)
    }

    /// Tests that no argument is left.
    ///
    /// # Errors
    /// [`ParseError::Unexpected`], with the argument and what was expected.
    pub fn finish(self, expected: &'static str) -> Parsed<()> {
        match self.next {
            None => Ok(()),
            Some(arg) => Err(ParseError::unexpected(arg, expected)),
        }
    }
}

/// Refuses any argument, for a command that takes none.
pub fn no_arguments<'a>(mut args: impl Iterator<Item = &'a [u8]>) -> Parsed<()> {
    if args.next().is_some() { Err(ParseError::Arity) } else { Ok(()) }
}

#[inline]
fn integer<T: TryFrom<u64>>(
    arg: &[u8],
    what: &'static str,
    bounds: RangeInclusive<u64>,
) -> Parsed<T> {
    digits(arg)
        .filter(|number| bounds.contains(number))
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| out_of_bounds(arg, what, &bounds))
}

#[cold]
fn out_of_bounds(arg: &[u8], what: &'static str, bounds: &RangeInclusive<u64>) -> ParseError {
    ParseError::value(what, arg, an_integer(bounds))
}

fn an_integer(bounds: &RangeInclusive<u64>) -> String {
    format!("an integer {}..{}", bounds.start(), bounds.end())
}

pub(crate) const UNITS: RangeInclusive<u64> = 0..=MAX_UNITS as u64;
pub(crate) const TIME_US: RangeInclusive<u64> = 0..=MAX_TIME_US;
pub(super) const COUNT: RangeInclusive<u64> = 1..=1_000_000_000;
/// How many items `RL.LOG` and `RL.TOP` show without a `COUNT`.
pub(super) const DEFAULT_COUNT: usize = 10;

/// Reads an option's value; an error if the option was given before.
pub(super) fn once<T>(
    value: &mut Option<T>,
    option: &'static str,
    read: impl FnOnce() -> Parsed<T>,
) -> Parsed<()> {
    if value.is_some() {
        return Err(ParseError::Repeated { option });
    }
    *value = Some(read()?);
    Ok(())
}

/// A number of units, in [`UNITS`].
pub(super) fn units(text: &[u8]) -> Option<u32> {
    let units = digits(text).filter(|units| UNITS.contains(units))?;
    u32::try_from(units).ok()
}

impl<'a, I: Iterator<Item = &'a [u8]>> Cursor<'a, I> {
    /// Reads an option that may be given at most once; `false` if its name does not come next.
    pub(super) fn option<T>(
        &mut self,
        name: &'static str,
        value: &mut Option<T>,
        read: impl FnOnce(&mut Self) -> Parsed<T>,
    ) -> Parsed<bool> {
        let found = self.keyword(name);
        if found {
            once(value, name, || read(self))?;
        }
        Ok(found)
    }

    /// The time that follows an `AT`.
    pub(super) fn at(&mut self, limits: &Limits) -> Parsed<u64> {
        if !limits.allow_at {
            return Err(ParseError::AtRefused);
        }
        self.value("AT", TIME_US)
    }

    /// The number that follows an option's name, in microseconds: at least 1 of its unit.
    pub(super) fn micros(
        &mut self,
        option: &'static str,
        unit_us: u64,
        most_us: u64,
    ) -> Parsed<u64> {
        let most = most_us.checked_div(unit_us).unwrap_or(0);
        let units: u64 = self.value(option, 1..=most)?;
        Ok(units.saturating_mul(unit_us))
    }

    /// The text that follows an option's name.
    pub(super) fn text(&mut self, option: &'static str) -> Parsed<&'a [u8]> {
        self.take().ok_or_else(|| ParseError::missing(option, "text"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor<'a>(args: &'a [&'a str]) -> Cursor<'a, impl Iterator<Item = &'a [u8]>> {
        Cursor::new(args.iter().map(|arg| arg.as_bytes()))
    }

    #[test]
    fn keywords_match_whole_and_in_any_case() {
        let mut args = cursor(&["fUlL", "FULLY", "x"]);
        assert!(!args.keyword("COST"));
        assert!(args.keyword("FULL"));
        assert!(!args.keyword("FULL"));
        assert_eq!(args.peek(), Some(&b"FULLY"[..]));
        assert_eq!(args.take(), Some(&b"FULLY"[..]));
        assert_eq!(args.take(), Some(&b"x"[..]));
        assert_eq!(args.take(), None);
        assert_eq!(args.take(), None);
        assert!(!args.keyword("FULL"));
        assert_eq!(args.required(), Err(ParseError::Arity));
    }

    #[test]
    fn bounds_are_exact() {
        for (text, within) in [("4", false), ("5", true), ("255", true), ("256", false)] {
            let taken = cursor(&[text]).integer::<u8>("n", 5..=300);
            assert_eq!(taken.is_ok(), within, "{text}");
        }
        assert_eq!(
            cursor(&["301"]).integer::<u32>("n", 5..=300).unwrap_err().to_string(),
            "n is '301', expected an integer 5..300"
        );
        assert_eq!(
            cursor(&[]).value::<u32>("COST", 5..=300).unwrap_err().to_string(),
            "COST has no value, expected an integer 5..300"
        );
    }

    #[test]
    fn no_argument_may_be_left() {
        let mut args = cursor(&["a", "b"]);
        args.take();
        let error = args.finish("the end").unwrap_err();
        assert_eq!(error.to_string(), "unexpected 'b', expected the end");
        assert_eq!(cursor(&[]).finish("the end"), Ok(()));
        assert_eq!(no_arguments(std::iter::empty()), Ok(()));
        assert_eq!(no_arguments([&b"x"[..]].into_iter()), Err(ParseError::Arity));
    }
}
