//! Where fixed windows begin and end.
//!
//! Times are Unix microseconds, signed: the first windows of a time zone or of
//! a week begin before the epoch. Months follow the proleptic Gregorian
//! calendar, by the days-from-civil algorithm of Howard Hinnant,
//! "chrono-Compatible Low-Level Date Algorithms".
//!
//! No sum overflows: a time is at most [`LATEST_US`], half the range of an `i64`, and a period,
//! time zone or month adds little more than a year. A test covers the bounds.
#![allow(clippy::arithmetic_side_effects)]

use crate::rule::{Calendar, DAY_US, MINUTE_US};

/// Later than the time of any decision: 146,000 years after the epoch.
const LATEST_US: u64 = 1 << 62;
const DAY: i64 = DAY_US.cast_signed();
const MINUTE: i64 = MINUTE_US.cast_signed();

/// The origin and the length of a rule's windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub calendar: Calendar,
    pub period_us: u64,
    pub tz_min: i16,
}

impl Bounds {
    /// How far local time is ahead of UTC.
    fn ahead_us(self) -> i64 {
        i64::from(self.tz_min) * MINUTE
    }

    fn period_us(self) -> i64 {
        signed(self.period_us).max(1)
    }
}

/// The start of the window that holds a time.
pub fn start(bounds: Bounds, at_us: u64) -> i64 {
    let local = signed(at_us) + bounds.ahead_us();
    let local_start = match bounds.calendar {
        Calendar::Months => month_start_us(month_of(local)),
        Calendar::Epoch => local - local.rem_euclid(bounds.period_us()),
        Calendar::Weeks => {
            let monday = 4 * DAY; // 1970-01-05
            local - (local - monday).rem_euclid(bounds.period_us())
        }
    };
    local_start - bounds.ahead_us()
}

/// The end of the window that starts at a time.
pub fn end(bounds: Bounds, start_us: i64) -> i64 {
    match bounds.calendar {
        Calendar::Months => {
            let local = start_us + bounds.ahead_us();
            month_start_us(month_of(local) + 1) - bounds.ahead_us()
        }
        Calendar::Epoch | Calendar::Weeks => start_us + bounds.period_us(),
    }
}

fn signed(us: u64) -> i64 {
    us.min(LATEST_US).cast_signed()
}

/// Days from 0000-03-01 to the epoch.
const DAYS_TO_EPOCH: i64 = 719_468;
/// Days of 400 years, after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;

/// The month that contains a local time, as months since year 0. Years begin in March here, so the
/// leap day comes last.
fn month_of(local_us: i64) -> i64 {
    let days = local_us.div_euclid(DAY) + DAYS_TO_EPOCH;
    let (era, day) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - days_before(year);
    let month = (5 * day_of_year + 2) / 153;
    (400 * era + year) * 12 + month + 2
}

/// The local time at which a month begins, given as months since year 0.
fn month_start_us(month: i64) -> i64 {
    let from_march = month - 2;
    let (year, month) = (from_march.div_euclid(12), from_march.rem_euclid(12));
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month + 2) / 5;
    (ERA_DAYS * era + days_before(year) + day_of_year - DAYS_TO_EPOCH) * DAY
}

/// Days from the start of an era to the start of one of its years.
fn days_before(year: i64) -> i64 {
    365 * year + year / 4 - year / 100
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::{MAX_PERIOD_US, MAX_TIME_US, MAX_TZ_MIN};

    fn months(tz_min: i16) -> Bounds {
        Bounds { calendar: Calendar::Months, period_us: 31 * DAY_US, tz_min }
    }

    #[test]
    fn months_follow_the_calendar() {
        // date -u -d 2024-02-10T12:00Z +%s and the starts of its neighbours
        let cases = [
            (1_707_566_400, 1_706_745_600, 1_709_251_200), // 2024-02: 29 days
            (1_706_745_600, 1_706_745_600, 1_709_251_200), // its first second
            (1_709_251_199, 1_706_745_600, 1_709_251_200), // its last second
            (951_782_400, 949_363_200, 951_868_800),       // 2000-02-29
            (0, 0, 2_678_400),                             // the epoch
            (4_107_542_399, 4_105_123_200, 4_107_542_400), // 2100-02: 28 days
        ];
        for (at_s, start_s, end_s) in cases {
            let from = start(months(0), at_s * 1_000_000);
            assert_eq!(from, start_s * 1_000_000, "start of the month of {at_s}");
            assert_eq!(end(months(0), from), end_s * 1_000_000, "end of the month of {at_s}");
        }
    }

    #[test]
    fn months_of_a_time_zone() {
        // 2024-03-01T00:30+01:00 is still February in UTC.
        let at = 1_709_249_400 * 1_000_000;
        assert_eq!(start(months(60), at), (1_709_251_200 - 3_600) * 1_000_000);
        assert_eq!(start(months(0), at), 1_706_745_600 * 1_000_000);
    }

    #[test]
    fn every_month_of_four_centuries_abuts_the_next() {
        let mut from = 0;
        for _ in 0..4_800 {
            let to = end(months(0), from);
            let days = (to - from) / DAY_US as i64;
            assert!((28..=31).contains(&days), "{days} days");
            assert_eq!(start(months(0), to as u64), to);
            assert_eq!(start(months(0), to as u64 - 1), from);
            from = to;
        }
        // 400 Gregorian years have 146097 days.
        assert_eq!(from / DAY_US as i64, 146_097);
    }

    #[test]
    fn windows_hold_their_times_at_the_bounds() {
        for calendar in [Calendar::Epoch, Calendar::Weeks, Calendar::Months] {
            for tz_min in [-MAX_TZ_MIN, 0, MAX_TZ_MIN] {
                for at_us in [0, 1, MAX_TIME_US, LATEST_US - 1, LATEST_US, u64::MAX] {
                    let period_us = MAX_PERIOD_US;
                    let bounds = Bounds { calendar, period_us, tz_min };
                    let start_us = start(bounds, at_us);
                    let at_us = signed(at_us);
                    assert!(start_us <= at_us && at_us < end(bounds, start_us), "{bounds:?}");
                }
            }
        }
        for start_us in [-LATEST_US.cast_signed(), -MAX_TIME_US.cast_signed()] {
            let start_us = start_us.div_euclid(DAY) * DAY;
            assert!(end(months(0), start_us) > start_us);
        }
    }

    #[test]
    fn weeks_start_on_monday() {
        let week = Bounds { calendar: Calendar::Weeks, period_us: 7 * DAY_US, tz_min: 0 };
        // Thursday 1970-01-01 belongs to the week of Monday 1969-12-29.
        assert_eq!(start(week, 0), -3 * DAY_US as i64);
        assert_eq!(start(week, 4 * DAY_US), 4 * DAY_US as i64);
        // Monday 2024-01-01 00:00:00 UTC.
        let monday = 1_704_067_200_000_000;
        assert_eq!(start(week, monday as u64 + 3 * DAY_US), monday);
    }
}
