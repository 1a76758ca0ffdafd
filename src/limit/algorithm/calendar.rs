//! Where fixed windows begin and end.
//!
//! Times are Unix microseconds, signed: the first windows of a time zone or of
//! a week begin before the epoch. Months follow the proleptic Gregorian
//! calendar, by the days-from-civil algorithm of Howard Hinnant,
//! "chrono-Compatible Low-Level Date Algorithms".

use crate::rule::{Calendar, DAY_US, MINUTE_US};

/// What windows count from, and how long they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub calendar: Calendar,
    pub period_us: u64,
    pub tz_min: i16,
}

impl Bounds {
    /// What local time is ahead of UTC.
    fn ahead_us(self) -> i64 {
        i64::from(self.tz_min).saturating_mul(signed(MINUTE_US))
    }

    /// Local time of the first window's start: Monday 1970-01-05 for weeks.
    fn origin_us(self) -> i64 {
        match self.calendar {
            Calendar::Weeks => signed(DAY_US).saturating_mul(4),
            Calendar::Epoch | Calendar::Months => 0,
        }
    }
}

/// The start of the window that holds a time.
pub fn start(bounds: Bounds, at_us: u64) -> i64 {
    let local = signed(at_us).saturating_add(bounds.ahead_us());
    let start = match bounds.calendar {
        Calendar::Months => month_start_us(month_of(local)),
        Calendar::Epoch | Calendar::Weeks => {
            let since = local.saturating_sub(bounds.origin_us());
            let into = since.checked_rem_euclid(signed(bounds.period_us)).unwrap_or(0);
            local.saturating_sub(into)
        }
    };
    start.saturating_sub(bounds.ahead_us())
}

/// The end of the window that starts at a time.
pub fn end(bounds: Bounds, start_us: i64) -> i64 {
    match bounds.calendar {
        Calendar::Months => {
            let local = start_us.saturating_add(bounds.ahead_us());
            month_start_us(month_of(local).saturating_add(1)).saturating_sub(bounds.ahead_us())
        }
        Calendar::Epoch | Calendar::Weeks => start_us.saturating_add(signed(bounds.period_us)),
    }
}

fn signed(us: u64) -> i64 {
    i64::try_from(us).unwrap_or(i64::MAX)
}

/// Months since year 0, of a local time.
fn month_of(local_us: i64) -> i64 {
    // Days since 0000-03-01: an era of 400 years has 146097 days, and a year
    // that begins in March has its leap day last.
    let days = local_us.div_euclid(signed(DAY_US)).saturating_add(719_468);
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let leap_days = (day_of_era / 1_460)
        .saturating_sub(day_of_era / 36_524)
        .saturating_add(day_of_era / 146_096);
    let year_of_era = day_of_era.saturating_sub(leap_days) / 365;
    let year_days = year_of_era
        .saturating_mul(365)
        .saturating_add(year_of_era / 4)
        .saturating_sub(year_of_era / 100);
    let month_from_march =
        day_of_era.saturating_sub(year_days).saturating_mul(5).saturating_add(2) / 153;
    era.saturating_mul(400)
        .saturating_add(year_of_era)
        .saturating_mul(12)
        .saturating_add(month_from_march)
        .saturating_add(2)
}

/// The local time a month begins at, given as months since year 0.
fn month_start_us(month: i64) -> i64 {
    let from_march = month.saturating_sub(2);
    let (year, month) = (from_march.div_euclid(12), from_march.rem_euclid(12));
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = month.saturating_mul(153).saturating_add(2) / 5;
    let days = era
        .saturating_mul(146_097)
        .saturating_add(year_of_era.saturating_mul(365))
        .saturating_add(year_of_era / 4)
        .saturating_sub(year_of_era / 100)
        .saturating_add(day_of_year)
        .saturating_sub(719_468);
    days.saturating_mul(signed(DAY_US))
}

#[cfg(test)]
mod tests {
    use super::*;

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
