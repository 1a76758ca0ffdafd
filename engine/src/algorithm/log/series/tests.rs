use super::layout::OVERHEAD;
use super::*;
use crate::rule::{MAX_PERIOD_US, memory};
use crate::tests::laws::holds::memory::Bytes;
use proptest::prelude::*;

#[test]
fn rings_fill_the_allocator_classes() {
    let classes = [64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640];
    let mut entries = 1;
    for bytes in classes {
        let ring = ring_for(entries, Width::Four);
        assert_eq!(OVERHEAD + ring, bytes, "for {entries} entries");
        entries = ring / 4 + 1;
    }
}

#[test]
fn rings_hold_whole_entries() {
    for width in [Width::Four, Width::Five, Width::Six, Width::Eight] {
        for entries in 1..2_000 {
            let ring = ring_for(entries, width);
            assert_eq!(ring % width.bytes(), 0, "{entries} entries of {width:?}");
            assert!(ring >= entries * width.bytes(), "{entries} entries of {width:?}");
        }
    }
}

/// Sixty requests over a day.
#[test]
fn a_sparse_day_takes_five_bytes_an_entry() {
    let mut series = Series::default();
    for request in 0..60 {
        series.push(1_700_000_000_000_000 + request * 24 * 60_000_000, 1);
        assert!(request > 0 || series.width() == Width::Four);
    }
    assert_eq!(series.width(), Width::Five);
    assert_eq!(OVERHEAD + series.ring.count(), 36 + 345);
    let weeks = 1_700_000_000_000_000 + 3 * 7 * 86_400_000_000;
    series.push(weeks, 1);
    assert_eq!(series.width(), Width::Six);
    series.drop_until(weeks - 1);
    assert_eq!((series.width(), series.len()), (Width::Four, 1));
}

#[test]
fn a_series_with_room_for_its_entries_does_not_move() {
    for gap_us in [1, 24 * 60_000_000, 400 * 86_400_000_000, 1 << 47] {
        let (entries, oldest_us) = (1_000, 1_000);
        let newest_us = oldest_us + u64::from(entries - 1) * gap_us;
        let mut series = Series::with_room(entries, newest_us - oldest_us, false).unwrap();
        let block = series.ring.start();
        for entry in 0..u64::from(entries) {
            series.push(oldest_us + entry * gap_us, 1);
        }
        assert_eq!(series.ring.start(), block, "{gap_us} us apart");
        let span_us = newest_us - oldest_us;
        assert_eq!(series.ring.count(), ring_for(entries, Width::for_span(span_us)));
    }
}

#[test]
fn dropped_entries_free_their_memory() {
    let mut series = Series::default();
    (0..1_000).for_each(|n| series.push(n, 2));
    series.drop_until(989);
    let mut bytes = Bytes::default();
    series.visit_heap(&mut bytes);
    assert!(bytes.all <= 300, "{} bytes for ten entries", bytes.all);
    (0..1_000).for_each(|n| series.push(1_000 + n, 1));
    series.clear();
    assert_eq!(series.ring.count(), ring_for(1, Width::Four));
}

/// The entries added or dropped since the last copy pay for copying entries to another width.
#[test]
fn long_gaps_do_not_copy_a_dense_log_again_and_again() {
    let mut series = Series::default();
    let mut now_us = 1_700_000_000_000_000;
    let (mut pushed, mut resized) = (0_u64, 0_u64);
    for _ in 0..40 {
        for _ in 0..1_000 {
            let before = series.ring.start();
            now_us += 1_000;
            series.push(now_us, 1);
            series.keep_newest(1_000);
            pushed += 1;
            resized += u64::from(series.ring.start() != before) * series.len();
        }
        now_us += 2 * 3_600_000_000;
        series.drop_until(now_us - 86_400_000_000);
    }
    assert!(resized < 8 * pushed, "{resized} entries copied for {pushed}");
}

#[derive(Clone, Debug)]
enum Step {
    Push(u64, u32),
    Keep(u64),
    Until(u64),
    Take(u32),
    PullBack(u64),
    /// Takes up to this number of units at the time of an entry.
    TakeAt(prop::sample::Index, u64),
    /// Takes units that have a given time; there may be no entry of that time.
    TakeNear(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let gap = prop_oneof![2 => Just(0u64), 4 => 0..1_000u64, 4 => 0..10_000_000_000u64, 1 => 0..3_000_000_000_000_000u64];
    let weight = prop_oneof![4 => Just(1u32), 1 => 1..50u32];
    let take = prop_oneof![3 => Just(1u64), 3 => 0..60u64, 1 => Just(u64::MAX)];
    prop_oneof![
        8 => (gap.clone(), weight).prop_map(|(gap, weight)| Step::Push(gap, weight)),
        1 => (0..80u64).prop_map(Step::Keep),
        1 => gap.prop_map(Step::Until),
        1 => (1..20u32).prop_map(Step::Take),
        1 => (0..5_000u64).prop_map(Step::PullBack),
        3 => (any::<prop::sample::Index>(), take).prop_map(|(of, units)| Step::TakeAt(of, units)),
        1 => (0..5_000u64).prop_map(Step::TakeNear),
    ]
}

/// Removes up to `units` units of one time from a list of units.
fn take_at(naive: &mut Vec<u64>, time: u64, units: u64) -> u64 {
    let mut taken = 0;
    naive.retain(|&at| {
        let goes = at == time && taken < units;
        taken += u64::from(goes);
        !goes
    });
    taken
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// The rings are full and wrapped, and of each width.
    #[test]
    fn taking_units_from_one_entry_keeps_the_others(
        gap_us in prop::sample::select(vec![1_000u64, 200_000_000, 30_000_000_000, 1 << 44]),
        entries in 1..80u64,
        dropped in 0..200u64,
        heavy in prop::option::of(0..200u64),
        takes in prop::collection::vec((0..80u64, 1..4u64), 1..40),
    ) {
        let mut series = Series::default();
        let mut naive = Vec::new();
        for entry in 0..entries + dropped {
            let units = if heavy == Some(entry) { 5 } else { 1 };
            let time = gap_us * (entry / 2);
            series.push(time, units);
            naive.extend(std::iter::repeat_n(time, units as usize));
            series.keep_newest(entries);
            naive.drain(..naive.len().saturating_sub(entries as usize));
        }
        for (of, units) in takes {
            let time = gap_us * dropped.midpoint(of);
            prop_assert_eq!(series.take_at(time, units), take_at(&mut naive, time, units));
            let left: Vec<u64> =
                series.iter().flat_map(|(t, w)| std::iter::repeat_n(t, w as usize)).collect();
            prop_assert_eq!(&left, &naive);
            prop_assert_eq!(series.newest_us(), naive.last().copied());
        }
        let mut now = naive.last().map_or(0, |&time| time);
        for _ in 0..100 {
            now += gap_us;
            series.push(now, 1);
            naive.push(now);
        }
        prop_assert!(series.iter().map(|(time, _)| time).rev().take(100).eq(naive.into_iter().rev().take(100)));
    }

    #[test]
    fn takes_in_one_pass_equal_takes_one_by_one(
        gap_us in prop::sample::select(vec![0, 1_000u64, 200_000_000, 30_000_000_000, 1 << 44]),
        weights in prop::collection::vec(prop_oneof![6 => Just(1u32), 1 => 1..9u32], 1..80),
        dropped in 0..40u64,
        takes in prop::collection::vec((0..80u64, 0..6u64), 1..80),
        charged in any::<bool>(),
    ) {
        let mut series = Series::default();
        for (entry, &weight) in (0..).zip(&weights) {
            series.push(gap_us * (entry / 3), weight);
        }
        series.keep_newest(series.units().saturating_sub(dropped));
        if charged {
            series.extras_or_new().charged.get_or_insert_default().push(7, 1);
        }
        let take = |&(of, units): &(u64, u64)| Take { time_us: gap_us * (of / 3), units };
        let mut takes: Vec<Take> = takes.iter().map(take).collect();
        let mut expected = series.clone();
        for Take { time_us, units } in &takes {
            expected.take_at(*time_us, *units);
        }
        if let Some(kept) = series.without(&mut takes) {
            series = kept;
        }
        let charged = |series: &Series| series.extras().and_then(|extras| extras.charged.clone());
        for more in 0..100 {
            prop_assert_eq!(&series, &expected);
            prop_assert_eq!(charged(&series), charged(&expected));
            prop_assert_eq!(series.newest_us(), expected.newest_us());
            let now_us = gap_us * (more + 30);
            series.push(now_us, 1);
            expected.push(now_us, 1);
        }
    }

    /// A series behaves as a list of units with their times.
    #[test]
    fn a_series_equals_a_list_of_units(steps in prop::collection::vec(step(), 1..120)) {
        let mut series = Series::default();
        let mut naive: Vec<u64> = Vec::new();
        let mut now = 10_000_000_000_000_000u64;
        for step in steps {
            match step {
                Step::Push(gap, weight) => {
                    now += gap;
                    series.push(now, weight);
                    naive.extend(std::iter::repeat_n(now, weight as usize));
                }
                Step::Keep(units) => {
                    series.keep_newest(units);
                    let surplus = naive.len().saturating_sub(units as usize);
                    naive.drain(..surplus);
                }
                Step::Until(age) => {
                    series.drop_until(now - age);
                    naive.retain(|&time| time > now - age);
                }
                Step::Take(units) => {
                    let (newest, units) = (naive.last().map_or(0, |&time| time), units.into());
                    let taken = take_at(&mut naive, newest, units);
                    prop_assert_eq!(series.take_at(newest, units), taken);
                }
                Step::TakeAt(of, units) => {
                    let time = naive.get(of.index(naive.len().max(1))).map_or(0, |&time| time);
                    prop_assert_eq!(series.take_at(time, units), take_at(&mut naive, time, units));
                }
                Step::TakeNear(age) => {
                    let taken = take_at(&mut naive, now - age, 5);
                    prop_assert_eq!(series.take_at(now - age, 5), taken);
                }
                Step::PullBack(age) => {
                    series.pull_back(now - age);
                    naive.iter_mut().for_each(|time| *time = (*time).min(now - age));
                }
            }
            prop_assert_eq!(series.units(), naive.len() as u64);
            let units: Vec<u64> =
                series.iter().flat_map(|(t, w)| std::iter::repeat_n(t, w as usize)).collect();
            prop_assert_eq!(&units, &naive);
            prop_assert_eq!(series.newest_us(), naive.last().copied());
            prop_assert_eq!(series.oldest_us(), naive.first().copied());
            let span = series.newest_us().zip(series.oldest_us()).map_or(0, |(n, o)| n - o);
            prop_assert!(series.width() >= Width::for_span(span));
            for age in [0, 1, 500, 1_000_000, 5_000_000_000, 2_000_000_000_000] {
                let after = naive.iter().filter(|&&time| time > now - age).count();
                prop_assert_eq!(series.units_after(Some(now - age)), after as u64);
            }
            for nth in 1..=naive.len() {
                let entry = series.entry_of_newest(nth as u64).map(|at| series.time(at));
                prop_assert_eq!(entry, naive.get(naive.len() - nth).copied());
            }
        }
    }
}

#[test]
fn entries_have_the_size_that_explain_reports() {
    for span_us in [0, (1 << 32) - 1, 1 << 32, (1 << 40) - 1, 1 << 40, MAX_PERIOD_US] {
        assert_eq!(memory::log_entry(span_us), Width::for_span(span_us).bytes().into());
    }
}
