use super::*;
use proptest::prelude::*;

#[test]
fn blocks_fill_the_allocator_classes() {
    let classes = [64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640];
    let mut entries = 1;
    for bytes in classes {
        let slots = capacity_for(entries);
        assert_eq!(OVERHEAD + 4 * slots, bytes, "for {entries} entries");
        entries = slots + 1;
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push(u64, u32),
    Keep(u64),
    Until(u64),
    Take(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let gap = prop_oneof![0..1_000u64, 0..10_000_000_000u64];
    let weight = prop_oneof![4 => Just(1u32), 1 => 1..50u32];
    prop_oneof![
        8 => (gap.clone(), weight).prop_map(|(gap, weight)| Step::Push(gap, weight)),
        1 => (0..80u64).prop_map(Step::Keep),
        1 => gap.prop_map(Step::Until),
        1 => (1..20u32).prop_map(Step::Take),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    /// A series is a list of units with their times.
    #[test]
    fn equals_a_list_of_units(steps in prop::collection::vec(step(), 1..120)) {
        let mut series = Series::default();
        let mut naive: Vec<u64> = Vec::new();
        let mut now = 1_000_000_000_000u64;
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
                    let of_newest =
                        naive.iter().rev().take_while(|&time| Some(time) == naive.last()).count();
                    let taken = series.take_newest(units) as usize;
                    prop_assert!(taken <= of_newest.min(units as usize));
                    prop_assert!(taken > 0 || naive.is_empty());
                    naive.truncate(naive.len() - taken);
                }
            }
            prop_assert_eq!(series.units(), naive.len() as u64);
            let units: Vec<u64> =
                series.iter().flat_map(|(t, w)| std::iter::repeat_n(t, w as usize)).collect();
            prop_assert_eq!(&units, &naive);
            prop_assert_eq!(series.newest_us(), naive.last().copied());
            prop_assert_eq!(series.oldest_us(), naive.first().copied());
            let firsts = series.tail().map(Tail::firsts).unwrap_or_default();
            let needed = |first: &u64| (1..series.len()).contains(first);
            prop_assert!(firsts.iter().all(needed), "{firsts:?} of {}", series.len());
            for age in [0, 1, 500, 1_000_000, 5_000_000_000] {
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
