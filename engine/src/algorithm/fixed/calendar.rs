//! Where fixed windows begin and end.
//!
//! Times are Unix microseconds, signed: the first windows of a time zone or of
//! a week begin before the epoch. Months follow the proleptic Gregorian
//! calendar, by the days-from-civil algorithm of Howard Hinnant,
//! "chrono-Compatible Low-Level Date Algorithms".
//!
//! No sum overflows. A time is at most [`LATEST_US`], half the range of an `i64`. A period, a time
//! zone or a month adds little more than a year. A test covers the bounds.
#![allow(clippy::arithmetic_side_effects)]

use crate::rule::{Calendar, DAY_US, MINUTE_US};

/// Later than the time of any decision: 146,000 years after the epoch.
const LATEST_US: u64 = 1 << 62;
const DAY: i64 = DAY_US.cast_signed();
const MINUTE: i64 = MINUTE_US.cast_signed();

/// The origin of windows, in 2 bytes: the time zone in minutes, and below it two bits for the
/// calendar's code. The saved form has the same code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor(i16);

impl Anchor {
    pub const MAX_CODE: u8 = 3;

    /// Without a calendar, windows count from their first request.
    pub const fn new(calendar: Option<Calendar>, tz_min: i16) -> Self {
        let code = match calendar {
            Some(Calendar::Epoch) => 0,
            Some(Calendar::Weeks) => 1,
            Some(Calendar::Months) => 2,
            None => Self::MAX_CODE,
        };
        Self::of_code(code, tz_min)
    }

    pub const fn of_code(code: u8, tz_min: i16) -> Self {
        Self((tz_min << 2) | (code & Self::MAX_CODE) as i16)
    }

    /// The calendar and the time zone as one number.
    pub const fn number(self) -> u32 {
        self.0.cast_unsigned() as u32
    }

    pub const fn code(self) -> u8 {
        self.0.to_le_bytes()[0] & Self::MAX_CODE
    }

    pub const fn calendar(self) -> Option<Calendar> {
        match self.code() {
            0 => Some(Calendar::Epoch),
            1 => Some(Calendar::Weeks),
            2 => Some(Calendar::Months),
            _ => None,
        }
    }

    pub const fn tz_min(self) -> i16 {
        self.0 >> 2
    }

    /// How far local time is ahead of UTC.
    fn ahead_us(self) -> i64 {
        i64::from(self.tz_min()) * MINUTE
    }

    /// The start of the window that a request at `at_us` opens.
    pub fn start(self, period_us: u64, at_us: u64) -> i64 {
        let (local, period) = (signed(at_us) + self.ahead_us(), signed(period_us).max(1));
        let local_start = match self.calendar() {
            None => local,
            Some(Calendar::Months) => month_start_us(month_of(local)),
            Some(Calendar::Epoch) => local - local.rem_euclid(period),
            Some(Calendar::Weeks) => {
                let monday = 4 * DAY; // 1970-01-05
                local - (local - monday).rem_euclid(period)
            }
        };
        local_start - self.ahead_us()
    }

    /// The end of the window that starts at `start_us`.
    pub fn end(self, period_us: u64, start_us: i64) -> i64 {
        match self.calendar() {
            Some(Calendar::Months) => {
                let local = start_us + self.ahead_us();
                month_start_us(month_of(local) + 1) - self.ahead_us()
            }
            None | Some(Calendar::Epoch | Calendar::Weeks) => start_us + period_us.cast_signed(),
        }
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

/// The local time at which `month` begins. Months are counted from year 0.
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

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::rule::{MAX_PERIOD_US, MAX_TIME_US, MAX_TZ_MIN};

    /// The start of the month that holds a time, and its end.
    fn month(tz_min: i16, at_us: u64) -> (i64, i64) {
        let (anchor, period_us) = (Anchor::new(Some(Calendar::Months), tz_min), 31 * DAY_US);
        let start_us = anchor.start(period_us, at_us);
        (start_us, anchor.end(period_us, start_us))
    }

    #[test]
    fn an_anchor_holds_every_calendar_and_time_zone() {
        let calendars = [Calendar::Epoch, Calendar::Weeks, Calendar::Months];
        let mut seen = Vec::new();
        for calendar in calendars.map(Some).into_iter().chain([None]) {
            for tz_min in -MAX_TZ_MIN..=MAX_TZ_MIN {
                let anchor = Anchor::new(calendar, tz_min);
                assert_eq!((anchor.calendar(), anchor.tz_min()), (calendar, tz_min));
                seen.push(anchor.0);
            }
        }
        let all = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), all, "two anchors have the same number");
    }

    #[test]
    fn months_follow_the_calendar() {
        // A time, and the start and the end of its month: date -u -d 2024-02-10T12:00Z +%s
        let cases = [
            (1_707_566_400, 1_706_745_600, 1_709_251_200), // 2024-02: 29 days
            (1_706_745_600, 1_706_745_600, 1_709_251_200), // its first second
            (1_709_251_199, 1_706_745_600, 1_709_251_200), // its last second
            (951_782_400, 949_363_200, 951_868_800),       // 2000-02-29
            (0, 0, 2_678_400),                             // the epoch
            (4_107_542_399, 4_105_123_200, 4_107_542_400), // 2100-02: 28 days
        ];
        for (at_s, start_s, end_s) in cases {
            let expected = (start_s * 1_000_000, end_s * 1_000_000);
            assert_eq!(month(0, at_s * 1_000_000), expected, "the month of {at_s}");
        }
    }

    #[test]
    fn months_begin_at_midnight_of_their_time_zone() {
        // 2024-03-01T00:30+01:00 is still February in UTC.
        let at = 1_709_249_400 * 1_000_000;
        assert_eq!(month(60, at).0, (1_709_251_200 - 3_600) * 1_000_000);
        assert_eq!(month(0, at).0, 1_706_745_600 * 1_000_000);
    }

    #[test]
    fn every_month_of_four_centuries_abuts_the_next() {
        let mut from = 0;
        for _ in 0..4_800 {
            let to = month(0, from as u64).1;
            let days = (to - from) / DAY_US as i64;
            assert!((28..=31).contains(&days), "{days} days");
            assert_eq!(month(0, to as u64).0, to);
            assert_eq!(month(0, to as u64 - 1).0, from);
            from = to;
        }
        // 400 Gregorian years have 146097 days.
        assert_eq!(from / DAY_US as i64, 146_097);
    }

    #[test]
    fn windows_hold_their_times_at_the_bounds() {
        let calendars = [Calendar::Epoch, Calendar::Weeks, Calendar::Months];
        for calendar in calendars.map(Some).into_iter().chain([None]) {
            for tz_min in [-MAX_TZ_MIN, 0, MAX_TZ_MIN] {
                for at_us in [0, 1, MAX_TIME_US, LATEST_US - 1, LATEST_US, u64::MAX] {
                    let period_us = MAX_PERIOD_US;
                    let anchor = Anchor::new(calendar, tz_min);
                    let start_us = anchor.start(period_us, at_us);
                    let window = start_us..anchor.end(period_us, start_us);
                    assert!(window.contains(&signed(at_us)), "{calendar:?} {tz_min}");
                }
            }
        }
        for start_us in [-LATEST_US.cast_signed(), -MAX_TIME_US.cast_signed()] {
            let start_us = start_us.div_euclid(DAY) * DAY;
            let anchor = Anchor::new(Some(Calendar::Months), 0);
            assert!(anchor.end(31 * DAY_US, start_us) > start_us);
        }
    }

    #[test]
    fn weeks_start_on_monday() {
        let start = |at_us| Anchor::new(Some(Calendar::Weeks), 0).start(7 * DAY_US, at_us);
        // Thursday 1970-01-01 belongs to the week of Monday 1969-12-29.
        assert_eq!(start(0), -3 * DAY_US as i64);
        assert_eq!(start(4 * DAY_US), 4 * DAY_US as i64);
        // Monday 2024-01-01 00:00:00 UTC.
        let monday = 1_704_067_200_000_000;
        assert_eq!(start(monday as u64 + 3 * DAY_US), monday);
    }
}
