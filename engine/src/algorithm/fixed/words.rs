//! The words of `fixed`.
//!
//! The worst burst is `2L`: `L` at the end of a window, and `L` at the start of the next. With
//! `align=first` it is `2L - 1`: the request that opens a window comes a whole period before the
//! window's end, so it is not part of the burst at that end.

use crate::algorithm::{OptionValues, RuleText};
use crate::rule::explain::{amount, at_worst, constant, per, requests, time};
use crate::rule::{
    Align, Calendar, MAX_KEEP, MAX_TZ_MIN, OwnOption, Rule, RuleError, Unit, WEEK_US, digits,
    memory, write_option, write_period,
};
use alloc::string::String;
use core::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FixedParams {
    /// `None`: a window opens at the first request (`align=first`).
    pub calendar: Option<Calendar>,
    /// Minutes ahead of UTC, up to [`MAX_TZ_MIN`] either way.
    pub tz_min: i16,
    /// How many past windows to keep, up to [`MAX_KEEP`].
    pub keep: u16,
}

const ALIGN: OwnOption = OwnOption {
    name: "align",
    value: "epoch or first",
    read: |text| Some(i128::from(Align::of_name(text)? == Align::First)),
};
const TZ: OwnOption = OwnOption { name: "tz", value: "+HH:MM or -HH:MM", read: minutes };
const KEEP: OwnOption = OwnOption::number("keep", "an integer 0..366");

impl RuleText for FixedParams {
    fn options() -> &'static [OwnOption] {
        &[ALIGN, TZ, KEEP]
    }

    fn read(words: &OptionValues) -> Result<Self, RuleError> {
        let (first, tz_min) = (words.of(0, 0) == 1, words.of(1, 0));
        let within = |tz: &i16| (-MAX_TZ_MIN..=MAX_TZ_MIN).contains(tz);
        let tz_min = i16::try_from(tz_min).ok().filter(within).ok_or(RuleError::TimeZone)?;
        let keep = words.within((2, &KEEP), 0, 0, MAX_KEEP)?;
        let unit = words.period.map(|period| period.unit);
        if first && unit == Some(Unit::Month) {
            return Err(RuleError::MonthAlignFirst);
        }
        let calendar = unit.filter(|_| !first).map(Unit::calendar);
        Ok(Self { calendar, tz_min, keep })
    }

    /// Two bits for the calendar, above them the time zone.
    fn shape(&self) -> u32 {
        super::Anchor::new(self.calendar, self.tz_min).number()
    }

    fn write(&self, rule: &Rule, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calendar, tz_min, keep } = *self;
        match calendar {
            Some(Calendar::Months) => f.write_str("/1month")?,
            Some(Calendar::Weeks) => write_period(f, rule, Unit::Week)?,
            Some(Calendar::Epoch) | None => write_period(f, rule, Unit::Day)?,
        }
        write_option(f, ALIGN.name, calendar.is_none().then_some("first"))?;
        write_option(f, TZ.name, (tz_min != 0).then(|| time_zone(tz_min)))?;
        write_option(f, KEEP.name, (keep != 0).then_some(keep))
    }

    fn worst_in_period(&self, rule: &Rule) -> u64 {
        let all = rule.capacity().saturating_mul(2);
        if self.calendar.is_none() { all.saturating_sub(1) } else { all }
    }

    fn identity(&self) -> Option<(&'static str, &'static str)> {
        Some(("algorithm, period, align and tz", "limit and keep"))
    }

    fn explain(&self, rule: &Rule) -> String {
        let Self { calendar, tz_min, keep } = *self;
        let windows = windows(rule, calendar, tz_min);
        let limit = u64::from(rule.limit());
        let worst = at_worst(rule, |worst| {
            let before = worst.saturating_sub(limit);
            format!(
                "{} within a moment, {before} at the end of a window and {limit} at the start of \
             the next",
                requests(worst)
            )
        });
        let memory = match u64::from(keep) {
            0 => constant(),
            keep => format!(
                "{} bytes, and up to {} for {} kept for graphs",
                memory::KEY,
                amount(keep.saturating_mul(memory::PAST_WINDOW), "byte"),
                amount(keep, "past window")
            ),
        };
        format!(
            "at most {} in each {windows} (fixed window). Worst burst: {worst}. Memory: {memory}.",
            requests(limit)
        )
    }
}

/// The windows of a `fixed` rule, in words.
fn windows(rule: &Rule, calendar: Option<Calendar>, tz_min: i16) -> String {
    let (us, zone) = (rule.period_us(), zone(tz_min));
    match calendar {
        None => format!("window of {}, opened by the first request", time(us)),
        Some(Calendar::Months) => format!("calendar month, from the 1st at 00:00 {zone}"),
        Some(Calendar::Weeks) if us == WEEK_US => format!("week, from Monday at 00:00 {zone}"),
        Some(Calendar::Weeks) => {
            format!("{}, counted from Monday 1970-01-05 00:00 {zone}", per(us))
        }
        Some(Calendar::Epoch) => format!("{}, counted from 1970-01-01 00:00 {zone}", per(us)),
    }
}

/// `UTC`, `UTC+02:00`.
fn zone(tz_min: i16) -> String {
    if tz_min == 0 { "UTC".into() } else { format!("UTC{}", time_zone(tz_min)) }
}

/// Minutes east of UTC as `+HH:MM` or `-HH:MM`.
fn time_zone(tz_min: i16) -> String {
    let (sign, minutes) = (if tz_min < 0 { '-' } else { '+' }, tz_min.unsigned_abs());
    format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

/// `+HH:MM` or `-HH:MM` as minutes.
fn minutes(text: &[u8]) -> Option<i128> {
    let &[sign, h1, h2, b':', m1, m2] = text else { return None };
    let (hours, minutes) = (digits(&[h1, h2])?, digits(&[m1, m2]).filter(|&minutes| minutes < 60)?);
    let east = i128::from(hours.checked_mul(60)?.checked_add(minutes)?);
    match sign {
        b'+' => Some(east),
        b'-' => east.checked_neg(),
        _ => None,
    }
}
