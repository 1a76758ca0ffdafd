//! Options that several commands have.

use super::cursor::Cursor;
use super::error::{ParseError, Parsed};
use super::limits::Limits;
use ratelimit_core::rule::{MAX_TIME_US, MAX_UNITS, digits};
use std::ops::RangeInclusive;

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
