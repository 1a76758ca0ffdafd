use super::form::{SavedMeter, put};
use super::load::load_meter;
use super::save::save_meter;
use crate::limit::rule::{MAX_PERIOD_US, MAX_TIME_US, MAX_TZ_MIN, MS_US};
use crate::limit::uint48::Uint48;
use proptest::prelude::*;

/// The parts of a `fixed` or a `refill=interval`.
#[derive(Clone, Copy, Debug)]
struct Parts {
    last_us: u64,
    period_us: u64,
    start_us: i64,
    count: u64,
    calendar: u8,
    tz_min: i16,
}

impl Parts {
    fn fixed(self) -> SavedMeter<'static> {
        let Self { last_us, period_us, start_us, count, calendar, tz_min } = self;
        SavedMeter::Fixed {
            last_us,
            period_us,
            start_us,
            count,
            limit: 5,
            tz_min,
            calendar,
            past: None,
        }
    }

    /// `None`: no token can have been taken so early.
    fn interval(self) -> Option<SavedMeter<'static>> {
        let Self { last_us, period_us, start_us, count, .. } = self;
        let start_us = u64::try_from(start_us).ok()?;
        let used = u32::try_from(count).unwrap_or(u32::MAX);
        Some(SavedMeter::Interval { last_us, period_us, start_us, used, limit: 5, burst: 7 })
    }

    /// The last count lies in the term.
    fn are_a_term(self) -> bool {
        let into = i128::from(self.last_us) - i128::from(self.start_us);
        (0..i128::from(self.period_us)).contains(&into)
    }
}

/// Starts, periods, and last counts in the term, at its bounds and outside.
fn parts() -> impl Strategy<Value = Parts> {
    let period = prop_oneof![
        Just(MS_US),
        Just(MAX_PERIOD_US),
        // Microseconds that no rule can have, but a payload may.
        MS_US..=MAX_PERIOD_US,
    ];
    let period_us = (period, -1..=1i64);
    let start = prop_oneof![
        Just(0),
        -20_000_000..=20_000_000i64,
        -MAX_PERIOD_US.cast_signed()..=MAX_TIME_US.cast_signed(),
    ];
    let count = prop_oneof![0..10u64, Uint48::MAX - 2..=Uint48::MAX + 2, any::<u64>()];
    let into = (0..4u8, -1..=1i64, any::<prop::sample::Index>());
    (period_us, start, count, into, 0..4u8, -MAX_TZ_MIN..=MAX_TZ_MIN).prop_map(
        |((period_us, by_us), start_us, count, (near, near_us, index), calendar, tz_min)| {
            let period_us = period_us.saturating_add_signed(by_us);
            let into_us = match near {
                0 => 0,
                1 => period_us.cast_signed(),
                2 => index.index(period_us as usize) as i64,
                _ => index.index(MAX_TIME_US as usize) as i64 - start_us,
            };
            let last_us = u64::try_from(start_us + into_us + near_us).unwrap_or(0);
            Parts { last_us, period_us, start_us, count, calendar, tz_min }
        },
    )
}

fn bytes(meter: &SavedMeter<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    put(&mut bytes, meter);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// Nothing is bent to fit 32 bytes but a count that no limit is near.
    #[test]
    fn what_is_kept_packed_is_saved_as_it_was_or_refused(parts in parts()) {
        let sound = parts.are_a_term()
            && parts.last_us <= MAX_TIME_US
            && (MS_US..=MAX_PERIOD_US).contains(&parts.period_us);
        let held = Parts { count: parts.count.min(Uint48::MAX), ..parts };
        let fixed = load_meter(parts.fixed()).map(|state| bytes(&save_meter(&state)));
        prop_assert_eq!(fixed.ok(), sound.then(|| bytes(&held.fixed())));
        if let Some(meter) = parts.interval() {
            let interval = load_meter(meter).map(|state| bytes(&save_meter(&state)));
            prop_assert_eq!(interval.ok(), sound.then(|| bytes(&parts.interval().unwrap())));
        }
    }
}
