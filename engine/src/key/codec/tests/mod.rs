mod holds;

use super::parts::{DEBT, FIXED, INTERVAL, LOG, NOTHING, WINDOW};
use super::{DecodeError, SavedBans, VERSION, WITHOUT_AUTHOR, decode, encode};
use crate::algorithm::log::series::needs::{MAX_RETAINED_UNITS, MOST_PAST};
use crate::algorithm::meter::Meter;
use crate::exact::Uint48;
use crate::key::{MAX_FORGOTTEN_US, MAX_SPAN_US};
use crate::rule::{DAY_US, MAX_PERIOD_US, MAX_TIME_US, MAX_TZ_MIN, MAX_UNITS, MS_US, SECOND_US};
use crate::saved::form::{put, save_items};
use bincode::Encode;
use proptest::prelude::*;

/// The saved fields of a fixed window, or of a bucket with `refill=interval`.
#[derive(Clone, Copy, Debug)]
struct Fields {
    last_us: u64,
    period_us: u64,
    start_us: i64,
    count: u64,
    calendar: u8,
    tz_min: i16,
}

impl Fields {
    fn fixed(self) -> Vec<u8> {
        let Self { last_us, period_us, start_us, count, calendar, tz_min } = self;
        let (limit, past) = (5_u32, NOTHING);
        let fields = (FIXED, last_us, period_us, start_us, count, limit, tz_min, calendar, past);
        save_items([fields])
    }

    /// `None` if the window starts before the epoch.
    fn interval(self) -> Option<Vec<u8>> {
        let Self { last_us, period_us, start_us, count, .. } = self;
        let start_us = u64::try_from(start_us).ok()?;
        let used = u32::try_from(count).unwrap_or(u32::MAX);
        Some(save_items([(INTERVAL, last_us, period_us, start_us, used, 5_u32, 7_u32)]))
    }

    /// True if the last request lies in the window.
    fn are_an_open_window(self) -> bool {
        let into = i128::from(self.last_us) - i128::from(self.start_us);
        (0..i128::from(self.period_us)).contains(&into)
    }
}

/// Starts, periods, and times of the last request: in the window, at its bounds and outside.
fn fields() -> impl Strategy<Value = Fields> {
    let period = prop_oneof![
        Just(MS_US),
        Just(MAX_PERIOD_US),
        // Not only whole milliseconds: a payload can have such a period, a rule cannot.
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
            Fields { last_us, period_us, start_us, count, calendar, tz_min }
        },
    )
}

fn loaded(meter: &[u8]) -> Result<Meter, DecodeError> {
    Meter::load(&mut &*meter)
}

/// Loads a meter from these bytes, and saves it.
fn saved_again(meter: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut bytes = Vec::new();
    loaded(meter)?.save(&mut bytes);
    Ok(bytes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// Only a count far beyond any limit may be cut to fit.
    #[test]
    fn packed_fields_are_saved_unchanged_or_refused(fields in fields()) {
        let sound = fields.are_an_open_window()
            && fields.last_us <= MAX_TIME_US
            && (MS_US..=MAX_PERIOD_US).contains(&fields.period_us);
        let held = Fields { count: fields.count.min(Uint48::MAX), ..fields };
        prop_assert_eq!(saved_again(&fields.fixed()).ok(), sound.then(|| held.fixed()));
        if let Some(interval) = fields.interval() {
            prop_assert_eq!(saved_again(&interval).ok(), sound.then_some(interval));
        }
    }
}

const NOW_US: u64 = 1_700_000_000_000_000;

/// A log of one request, with its needs.
fn log(latest: (u64, u32), past: &[(u64, u32, u64)]) -> Vec<u8> {
    log_of((NOW_US, 1), latest, past)
}

/// A log of one entry, with its time and its units.
fn log_of(entry: (u64, u32), latest: (u64, u32), past: &[(u64, u32, u64)]) -> Vec<u8> {
    let needs = |window_us: u64, units: u32| (window_us, units, false);
    let past = past.iter().map(|&(window_us, units, until_us)| (needs(window_us, units), until_us));
    let (past, admitted) = (save_items(past), save_items([entry]));
    save_items([(LOG, needs(latest.0, latest.1), past, admitted, Vec::<u8>::new())])
}

#[test]
fn impossible_needs_are_refused() {
    let longest_us = MAX_PERIOD_US + SECOND_US;
    let latest_us = MAX_TIME_US + longest_us;
    let most = [(DAY_US, 5, NOW_US); MOST_PAST];
    let loads = |meter: Vec<u8>| loaded(&meter).map(drop);
    assert_eq!(loads(log((longest_us, MAX_UNITS), &[])), Ok(()));
    assert_eq!(loads(log((DAY_US, 1), &[(longest_us, MAX_UNITS, latest_us)])), Ok(()));
    assert_eq!(loads(log((DAY_US, 1), &most)), Ok(()));

    let (limit, window) = (DecodeError::OutOfRange("a limit"), DecodeError::OutOfRange("a window"));
    for units in [MAX_UNITS + 1, u32::MAX] {
        assert_eq!(loads(log((DAY_US, units), &[])), Err(limit.clone()));
        assert_eq!(loads(log((DAY_US, 1), &[(DAY_US, units, NOW_US)])), Err(limit.clone()));
    }
    assert_eq!(loads(log((longest_us + 1, 1), &[])), Err(window.clone()));
    assert_eq!(loads(log((DAY_US, 1), &[(longest_us + 1, 1, NOW_US)])), Err(window));
    let too_late = log((DAY_US, 1), &[(DAY_US, 1, latest_us + 1)]);
    assert_eq!(loads(too_late), Err(DecodeError::OutOfRange("a time")));
    let too_many = log((DAY_US, 1), &[(DAY_US, 5, NOW_US); MOST_PAST + 1]);
    assert_eq!(loads(too_many), Err(DecodeError::OutOfRange("a number of needs")));
}

#[test]
fn a_log_of_more_units_than_it_may_retain_is_refused() {
    let most = u32::try_from(MAX_RETAINED_UNITS).unwrap();
    let of = |last: u32| {
        let (needs, none) = ((DAY_US, 5_u32, true), Vec::<u8>::new());
        let admitted = save_items([(NOW_US, most - 1), (0, last)]);
        loaded(&save_items([(LOG, needs, &none, admitted, &none)])).map(drop)
    };
    assert_eq!(of(1), Ok(()));
    let refused = Err(DecodeError::OutOfRange("an entry's units"));
    assert_eq!([of(0), of(2)], [refused.clone(), refused]);
}

/// Loads a meter from these fields.
fn loads(meter: impl Encode) -> Result<(), DecodeError> {
    loaded(&save_items([meter])).map(drop)
}

#[test]
fn impossible_debts_are_refused() {
    let debt = |last_us: u64, rem: u64, limit: u32, burst: u32| {
        loads((DEBT, last_us, SECOND_US, rem, 3_u32, limit, burst, false))
    };
    let refused = |what| Err(DecodeError::OutOfRange(what));
    assert_eq!(debt(MAX_TIME_US, SECOND_US - 1, MAX_UNITS, MAX_UNITS), Ok(()));
    assert_eq!(debt(MAX_TIME_US + 1, 0, 1, 1), refused("a time"));
    assert_eq!(debt(NOW_US, SECOND_US, 1, 1), refused("a remainder"));
    assert_eq!(debt(NOW_US, 0, 0, 1), refused("a limit"));
    assert_eq!(debt(NOW_US, 0, 1, MAX_UNITS + 1), refused("a limit"));
}

#[test]
fn impossible_windows_are_refused() {
    let window = |last_us: u64, counts: usize| {
        loads((WINDOW, last_us, SECOND_US, 5_u32, save_items(vec![1_u64; counts])))
    };
    let refused = |what| Err(DecodeError::OutOfRange(what));
    assert_eq!(window(MAX_TIME_US, 2), Ok(()));
    assert_eq!(window(MAX_TIME_US + 1, 2), refused("a time"));
    assert_eq!(window(NOW_US, 1), refused("a number of counters"));
    let past = |start_us: i64| {
        let past = Some((1_u16, save_items([(start_us, 1_u64)])));
        loads((FIXED, NOW_US, SECOND_US, NOW_US.cast_signed(), 1_u64, 5_u32, 0_i16, 0_u8, past))
    };
    let latest = MAX_TIME_US.cast_signed();
    assert_eq!([past(latest), past(-latest)], [Ok(()), Ok(())]);
    assert_eq!(past(latest + 1), refused("a window's start"));
    assert_eq!(past(-latest - 1), refused("a window's start"));
}

#[test]
fn a_refusal_says_what_is_wrong() {
    let refused = |bytes: &[u8]| loaded(bytes).map(drop);
    let malformed = |what| Err(DecodeError::Malformed(what));
    let window = save_items([(WINDOW, NOW_US, SECOND_US, 5_u32)]);
    assert_eq!(refused(&window), malformed("it ends too early"));
    assert_eq!(refused(&save_items([77_u32])), malformed("an unknown kind of state"));
    // No number starts with byte 255, an option starts with 0 or 1, and a name is UTF-8.
    assert_eq!(refused(&[255]), malformed("a malformed number"));
    let of_state = |name: &[u8]| {
        let mut payload = vec![WITHOUT_AUTHOR];
        put(&mut payload, &(name, NOTHING, NOTHING, Vec::<u8>::new(), NOTHING));
        decode(&payload).map(drop)
    };
    assert_eq!(of_state(&[1, 1, 0xFF]), malformed("a name is no text"));
    assert_eq!(of_state(&[2]), malformed("an unknown kind of state"));
}

#[test]
fn logs_with_different_entries_or_needs_are_not_equal() {
    let kept = [
        log((DAY_US, 5), &[]),
        log((DAY_US, 6), &[]),
        log((DAY_US + MS_US, 5), &[]),
        log((DAY_US, 5), &[(DAY_US, 6, NOW_US)]),
        log((DAY_US, 5), &[(DAY_US, 6, NOW_US + 1)]),
        log_of((NOW_US, 2), (DAY_US, 5), &[]),
        log_of((NOW_US + 1, 1), (DAY_US, 5), &[]),
    ];
    let logs = kept.map(|meter| loaded(&meter).expect("a log"));
    for (i, log) in logs.iter().enumerate() {
        assert_eq!(logs.iter().position(|other| other == log), Some(i));
    }
}

#[test]
fn another_version_is_refused_by_its_number() {
    for version in [0, VERSION + 1, u8::MAX] {
        let mut payload = count_of_bans((1, 1, 1));
        payload[0] = version;
        assert_eq!(decode(&payload), Err(DecodeError::Version(version)));
    }
}

/// A payload that holds nothing but a count of bans.
fn count_of_bans(bans: SavedBans) -> Vec<u8> {
    let mut payload = vec![WITHOUT_AUTHOR];
    let empty = Vec::<u8>::new();
    put(&mut payload, &(&empty, NOTHING, NOTHING, &empty, Some(bans)));
    payload
}

#[test]
fn a_count_of_bans_out_of_bounds_is_refused() {
    let saved = |bans, forgotten_us, span_us| {
        decode(&count_of_bans((bans, forgotten_us, span_us))).map(|read| encode(&read))
    };
    for (bans, forgotten_us, span_us) in [(1, 0, 0), (u32::MAX, MAX_FORGOTTEN_US, MAX_SPAN_US)] {
        let payload = count_of_bans((bans, forgotten_us, span_us));
        assert_eq!(saved(bans, forgotten_us, span_us), Ok(payload));
    }
    for (bans, forgotten_us, span_us, what) in [
        (0, 1, 1, "a number of bans"),
        (1, MAX_FORGOTTEN_US + 1, 1, "a time"),
        (1, u64::MAX, 1, "a time"),
        (1, 1, MAX_SPAN_US + 1, "the span of bans"),
    ] {
        let refused = saved(bans, forgotten_us, span_us);
        assert_eq!(refused, Err(DecodeError::OutOfRange(what)), "{bans} {forgotten_us} {span_us}");
    }
}
