#![expect(clippy::large_stack_arrays, reason = "keys that are too long")]

use super::*;
use proptest::prelude::*;
use proptest::test_runner::Config;
use std::collections::HashMap;

/// One denial in fixed point, so that halving it does not round in these tests.
const ONE: u128 = 1 << 64;

/// The denials of each key and of all keys, halved each half-life.
#[derive(Default)]
struct Naive {
    left: HashMap<Vec<u8>, u128>,
    all: u128,
    halvings: u32,
    halved_us: u64,
}

impl Naive {
    fn advance(&mut self, now_us: u64, empty: bool) {
        if empty || now_us < self.halved_us {
            self.halved_us = now_us;
        }
        while now_us - self.halved_us >= HALF_LIFE_US {
            self.halved_us += HALF_LIFE_US;
            self.halvings += 1;
            self.all /= 2;
            self.left.values_mut().for_each(|left| *left /= 2);
        }
    }
}

/// A sketch and the exact counts, at a time.
struct Pair {
    top: Top,
    naive: Naive,
    now_us: u64,
}

impl Pair {
    fn new(counters: usize) -> Self {
        Self { top: Top::new(counters), naive: Naive::default(), now_us: 1_000 * HALF_LIFE_US }
    }

    fn deny(&mut self, key: &[u8]) {
        self.naive.advance(self.now_us, self.top.order.is_empty());
        self.naive.all += ONE;
        *self.naive.left.entry(key.to_vec()).or_default() += ONE;
        self.top.count(key, self.now_us);
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Deny(key) => self.deny(&[*key]),
            Act::Wait(us) => self.now_us += us,
            Act::StepBack(us) => self.now_us -= us,
        }
    }

    /// Checks the sketch's order, and bounds 1 and 2 of the module's text.
    fn check(&mut self) {
        self.naive.advance(self.now_us, self.top.order.is_empty());
        let entries: Vec<_> = self
            .top
            .largest(self.now_us, usize::MAX)
            .map(|entry| (entry.key.to_vec(), entry.count, entry.error))
            .collect();
        in_order(&self.top);
        for (key, &left) in &self.naive.left {
            match entries.iter().find(|entry| entry.0 == *key) {
                Some((_, count, error)) => {
                    assert!(left / ONE <= u128::from(*count), "{key:?} counts too little");
                    assert!(u128::from(count - error) * ONE <= left, "{key:?} counts too much");
                }
                None => assert!(
                    left / ONE <= u128::from(missed(&mut self.top, key)),
                    "{key:?} is missed"
                ),
            }
        }
    }

    /// Also checks bounds 3 and 4, which do not hold after resizing.
    fn check_all(&mut self) {
        self.check();
        let all = self.naive.all;
        let counters = self.top.capacity as u128;
        let counts: u64 = counts(&self.top).iter().sum();
        assert!(u128::from(counts) * ONE <= all);
        for slot in &self.top.slots {
            assert!(u128::from(slot.error) * ONE * counters < all + ONE * counters);
            if self.naive.halvings == 0 {
                assert!(u128::from(slot.error) * ONE * counters <= all);
            }
        }
        for (key, left) in &self.naive.left {
            let spare = if self.naive.halvings == 0 { 1 } else { ONE * counters };
            if left * counters >= all + spare {
                assert!(found(&self.top, key).is_some(), "{key:?} has no counter");
            }
        }
    }
}

impl Top {
    /// A sketch with at most this many counters.
    fn new(counters: usize) -> Self {
        let mut top = Self::default();
        top.resize(counters);
        top
    }
}

/// The counts, in order.
fn counts(top: &Top) -> Vec<u64> {
    top.order.iter().map(|counter| counter.count).collect()
}

/// The slot of a key, found by the index.
fn found(top: &Top, key: &[u8]) -> Option<usize> {
    top.find(key, top.hashing.hash_one(key))
}

/// How many denials a key without a counter may have had at most.
fn missed(top: &mut Top, key: &[u8]) -> u64 {
    let hash = top.hashing.hash_one(key);
    *top.cell(hash).unwrap()
}

fn in_order(top: &Top) {
    assert!(top.order.len() <= top.capacity);
    assert!(top.order.is_sorted_by(|one, next| one.count >= next.count));
    assert_eq!((top.slots.len(), top.index.len()), (top.order.len(), top.order.len()));
    for (rank, counter) in top.order.iter().enumerate() {
        let slot = &top.slots[counter.slot];
        assert_eq!(slot.rank, rank);
        assert_eq!(found(top, &slot.key), Some(counter.slot));
        assert!(counter.count > 0 && counter.count >= slot.error);
    }
    assert_eq!(top.cells.len(), CELLS * top.capacity);
    assert!(top.cells.iter().all(|&cell| cell <= top.smallest().unwrap_or(0)));
}

#[derive(Clone, Debug)]
enum Act {
    Deny(u8),
    Wait(u64),
    StepBack(u64),
}

/// Sequences of keys: uniform, mostly the first few, or each key in turn.
fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(0..12u8, 1..150),
        proptest::collection::vec(1..=255u8, 1..150)
            .prop_map(|keys| keys.iter().map(|key| (255 / key).ilog2() as u8).collect()),
        (1..9u8, 1..150u8).prop_map(|(keys, n)| (0..n).map(|key| key % keys).collect()),
    ]
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let gap = prop_oneof![
        20 => Just(None),
        3 => (0..HALF_LIFE_US).prop_map(|us| Some(Act::Wait(us))),
        1 => (1..4u64).prop_map(|n| Some(Act::Wait(n * HALF_LIFE_US))),
        1 => (0..3 * HALF_LIFE_US).prop_map(|us| Some(Act::StepBack(us))),
    ];
    (keys(), proptest::collection::vec(gap, 150)).prop_map(|(keys, gaps)| {
        let denials = keys.into_iter().map(|key| Some(Act::Deny(key)));
        denials.zip(gaps).flat_map(|(deny, gap)| [deny, gap]).flatten().collect()
    })
}

fn cases(number: u32) -> Config {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    Config { failure_persistence: None, ..Config::with_cases(asked.unwrap_or(number)) }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn error_bounds_hold(counters in 1..7usize, acts in acts()) {
        let mut pair = Pair::new(counters);
        for act in acts {
            pair.act(&act);
            pair.check_all();
        }
    }

    #[test]
    fn a_resized_sketch_keeps_the_largest(
        parts in proptest::collection::vec((1..9usize, acts()), 2..4),
    ) {
        let mut pair = Pair::new(1);
        for (counters, acts) in parts {
            let mut largest = counts(&pair.top);
            largest.truncate(counters);
            if counters > pair.top.capacity && pair.top.order.len() == pair.top.capacity {
                largest.clear();
                pair.naive.left.clear();
            }
            pair.top.resize(counters);
            in_order(&pair.top);
            prop_assert_eq!(largest, counts(&pair.top));
            for act in acts {
                pair.act(&act);
                pair.check();
            }
        }
    }

    #[test]
    fn the_first_of_equals_is_found(
        mut counts in proptest::collection::vec(1..6u64, 1..20),
        raised in 0..20usize,
    ) {
        counts.sort_unstable_by(|one, next| next.cmp(one));
        let mut top = Top::new(counts.len());
        top.order = (0..).zip(&counts).map(|(slot, &count)| RankedCount { count, slot }).collect();
        for place in (raised..counts.len()).chain(0..raised.min(counts.len())) {
            let first = counts.iter().position(|&count| count == counts[place]);
            prop_assert_eq!(Some(top.first_of_equals(place, counts[place])), first);
        }
    }
}

fn entries(top: &mut Top, now_us: u64) -> Vec<(String, u64, u64)> {
    let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    top.largest(now_us, usize::MAX).map(|e| (text(e.key), e.count, e.error)).collect()
}

/// A sketch after denials of each key in turn at time 0.
fn denied(counters: usize, keys: &[(&str, u64)]) -> Top {
    let mut top = Top::new(counters);
    for (key, times) in keys {
        (0..*times).for_each(|_| top.count(key.as_bytes(), 0));
    }
    top
}

/// Denies a key until it has a counter.
fn insert(top: &mut Top, key: &[u8]) {
    while found(top, key).is_none() {
        top.count(key, 0);
    }
}

fn owned(entries: &[(&str, u64, u64)]) -> Vec<(String, u64, u64)> {
    entries.iter().map(|(key, count, error)| ((*key).into(), *count, *error)).collect()
}

#[test]
fn the_example_in_the_documentation_holds() {
    let mut top = denied(5, &[("a", 9), ("f", 4), ("c", 4), ("d", 4), ("x", 2)]);
    let then = [("a", 9, 0), ("f", 4, 0), ("c", 4, 0), ("d", 4, 0), ("x", 2, 0)];
    assert_eq!(entries(&mut top, 0), owned(&then));
    top.count(b"c", 0);
    for cell in [1, 2] {
        top.count(b"y", 0);
        assert_eq!((found(&top, b"y"), missed(&mut top, b"y")), (None, cell));
    }
    top.count(b"y", 0);
    assert_eq!((found(&top, b"x"), missed(&mut top, b"x")), (None, 2));
    let now = [("a", 9, 0), ("c", 5, 0), ("f", 4, 0), ("d", 4, 0), ("y", 3, 2)];
    assert_eq!(entries(&mut top, 0), owned(&now));
    assert_eq!(top.largest(0, 2).map(|entry| entry.count).collect::<Vec<_>>(), [9, 5]);
}

#[test]
fn a_flood_of_different_keys_does_not_evict_a_frequent_one() {
    let mut pair = Pair::new(10);
    for n in 0..400u32 {
        pair.deny(&n.to_le_bytes());
        if n % 8 == 0 {
            pair.deny(b"offender");
        }
    }
    pair.check_all();
    let first = pair.top.largest(pair.now_us, 1).next().unwrap();
    assert_eq!((first.key, first.count - first.error), (&b"offender"[..], 50));
}

#[test]
fn keys_denied_in_turn_have_exact_counts() {
    let mut pair = Pair::new(4);
    for n in 0..100u8 {
        pair.deny(&[n % 5]);
        pair.check_all();
    }
    // The key without a counter never has more denials than the keys with one.
    assert_eq!(counts(&pair.top), [20, 20, 20, 20]);
}

#[test]
fn the_largest_of_a_zipf_distribution_are_found_in_order() {
    let mut top = Top::new(64);
    let mut exact = vec![0u64; 1_000];
    let mut random = 1u64;
    for _ in 0..100_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let unit = (random >> 11) as f64 / (1u64 << 53) as f64;
        let rank = 1_000f64.powf(unit) as usize - 1;
        exact[rank] += 1;
        top.count(format!("user:{rank}").as_bytes(), 0);
    }
    in_order(&top);
    let found: Vec<_> = top.largest(0, 8).map(|entry| entry.key.to_vec()).collect();
    let expected: Vec<_> = (0..8).map(|rank| format!("user:{rank}").into_bytes()).collect();
    assert_eq!(found, expected);
    for (entry, exact) in top.largest(0, 8).zip(exact) {
        assert!(entry.count - entry.error <= exact && exact <= entry.count);
        assert!(entry.error <= 100_000 / 64);
    }
}

#[test]
fn counts_halve_each_half_life_and_counters_at_zero_are_dropped() {
    let mut top = denied(3, &[("a", 13), ("b", 4), ("c", 1)]);
    assert_eq!(entries(&mut top, HALF_LIFE_US - 1).len(), 3);
    assert_eq!(entries(&mut top, HALF_LIFE_US), owned(&[("a", 6, 0), ("b", 2, 0)]));
    assert_eq!(entries(&mut top, 3 * HALF_LIFE_US), owned(&[("a", 1, 0)]));
    in_order(&top);
    for pause in [64 * HALF_LIFE_US, u64::MAX] {
        let mut top = denied(3, &[("a", 13), ("b", 4), ("c", 4), ("d", 1)]);
        assert_eq!(entries(&mut top, pause), []);
        in_order(&top);
    }
}

#[test]
fn errors_round_up_and_stay_within_their_counts() {
    for (a, b, halved) in
        [(5, 13, [(13, 5), (6, 3), (3, 2), (1, 1)]), (7, 8, [(8, 7), (4, 4), (2, 2), (1, 1)])]
    {
        let mut top = denied(1, &[("a", a), ("b", b)]);
        for (n, (count, error)) in (0..).zip(halved) {
            assert_eq!(entries(&mut top, n * HALF_LIFE_US), owned(&[("b", count, error)]));
        }
        assert_eq!(entries(&mut top, 4 * HALF_LIFE_US), []);
    }
}

#[test]
fn a_half_life_begins_with_the_first_denial() {
    let now_us = 1_763_735_000_123_456;
    let mut top = Top::new(2);
    assert_eq!(entries(&mut top, 5), []);
    top.count(b"a", now_us);
    assert_eq!(entries(&mut top, now_us + HALF_LIFE_US - 1).len(), 1);
    assert_eq!(entries(&mut top, now_us + HALF_LIFE_US).len(), 0);
    top.count(b"a", now_us + 3 * HALF_LIFE_US / 2);
    assert_eq!(entries(&mut top, now_us + 5 * HALF_LIFE_US / 2 - 1).len(), 1);
}

#[test]
fn a_clock_that_steps_back_halves_nothing() {
    let now_us = 1_763_735_000_123_456;
    let mut top = Top::new(2);
    (0..8).for_each(|_| top.count(b"a", now_us));
    assert_eq!(entries(&mut top, 7), owned(&[("a", 8, 0)]));
    top.count(b"a", 7 + HALF_LIFE_US - 1);
    assert_eq!(entries(&mut top, 7 + HALF_LIFE_US - 1), owned(&[("a", 9, 0)]));
    assert_eq!(entries(&mut top, 7 + HALF_LIFE_US), owned(&[("a", 4, 0)]));
    assert_eq!(entries(&mut top, HALF_LIFE_US), owned(&[("a", 4, 0)]));
}

#[test]
fn a_sketch_without_counters_counts_nothing() {
    let mut top = denied(0, &[("a", 3)]);
    assert_eq!(entries(&mut top, 0), []);
    top.resize(1);
    top.count(b"a", 0);
    assert_eq!(entries(&mut top, 0), owned(&[("a", 1, 0)]));
    top.resize(0);
    top.count(b"b", 0);
    in_order(&top);
    assert_eq!(entries(&mut top, 0), []);
    top.resize(2);
    top.count(b"b", 0);
    assert_eq!(entries(&mut top, 0), owned(&[("b", 1, 0)]));
}

#[test]
fn a_larger_sketch_keeps_its_counters_unless_it_missed_others() {
    let mut top = denied(3, &[("a", 9), ("b", 5)]);
    top.resize(4);
    assert_eq!(entries(&mut top, 0), owned(&[("a", 9, 0), ("b", 5, 0)]));
    top.resize(2);
    top.resize(3);
    assert_eq!(entries(&mut top, 0), []);
    top.count(b"c", 0);
    assert_eq!(entries(&mut top, 0), owned(&[("c", 1, 0)]));
}

#[test]
fn a_cleared_sketch_equals_a_new_one() {
    let mut top = denied(2, &[("a", 3), ("b", 2), ("c", 1)]);
    top.clear();
    in_order(&top);
    assert_eq!(entries(&mut top, 0), []);
    top.count(b"c", 0);
    assert_eq!(entries(&mut top, 0), owned(&[("c", 1, 0)]));
}

#[test]
fn keys_can_be_any_bytes() {
    let mut top = Top::new(4);
    for key in [&b""[..], b"\0", b"\xff\xfe", &[7; 70_000], b"", b""] {
        top.count(key, 0);
    }
    let first = top.largest(0, 1).next().unwrap();
    assert_eq!((first.key, first.count), (&b""[..], 3));
}

#[test]
fn long_names_with_the_same_beginning_are_counted_separately() {
    let long = [&[b'x'; KEPT_BYTES][..], b"1"].concat();
    let (same_length, longer) = ([&long[..KEPT_BYTES], b"2"].concat(), [7; 4_000_000].as_slice());
    let whole = &long[..KEPT_BYTES];
    let mut top = Top::new(8);
    for (key, times) in [(&*long, 4), (&*same_length, 3), (longer, 2), (whole, 1)] {
        (0..times).for_each(|_| top.count(key, 0));
    }
    let hash = |key: &[u8]| format!("{:016x}", top.hashing.hash_one(key));
    let ends = [
        format!("...#{} (257 bytes)", hash(&long)),
        format!("...#{} (257 bytes)", hash(&same_length)),
        format!("...#{} (4000000 bytes)", hash(longer)),
        String::new(),
    ];
    let beginnings = [whole, whole, &longer[..KEPT_BYTES], whole];
    let shown: Vec<_> = top.largest(0, 8).map(|row| (row.shown(), row.count)).collect();
    for (place, (shown, count)) in shown.iter().enumerate() {
        assert_eq!(**shown, *[beginnings[place], ends[place].as_bytes()].concat());
        assert_eq!(*count, 4 - place as u64);
    }
}

#[test]
fn memory_is_bounded_for_any_names() {
    let mut top = Top::new(16);
    for n in 0..2_000_usize {
        let name = vec![n as u8; n.wrapping_mul(997) % 3_000];
        (0..n).for_each(|_| top.count(&name, 0));
        assert!(top.slots.iter().all(|slot| slot.key.capacity() <= KEPT_BYTES));
    }
    assert_eq!(top.slots.len(), 16);
}

#[test]
fn a_smaller_sketch_frees_memory() {
    let mut top = Top::new(10_000);
    for n in 0..10_000_u64 {
        top.count(&n.to_le_bytes(), 0);
    }
    top.resize(10);
    in_order(&top);
    let room = |top: &Top| {
        let Top { order, slots, index, cells, .. } = top;
        order.capacity() + slots.capacity() + index.capacity() + cells.capacity()
    };
    assert!(room(&top) <= 10 + 10 + 32 + 80, "{}", room(&top));
    top.resize(0);
    assert_eq!(room(&top), 0);
}

#[test]
fn a_new_key_reuses_the_buffer_of_the_evicted_one() {
    let mut top = denied(2, &[("a", 9), ("user:1", 1)]);
    let buffers = |top: &Top| top.slots.iter().map(|slot| slot.key.as_ptr()).collect::<Vec<_>>();
    let before = buffers(&top);
    for key in ["user:2", "b", "", "user:3"] {
        insert(&mut top, key.as_bytes());
        in_order(&top);
        assert_eq!(found(&top, key.as_bytes()), Some(1));
        assert_eq!(buffers(&top), before);
    }
    insert(&mut top, &[7; 70_000]);
    insert(&mut top, b"user:4");
    assert_eq!(found(&top, b"user:4"), Some(1));
}

#[test]
fn a_count_at_its_maximum_stays_there() {
    let mut top = denied(2, &[("a", 1), ("b", 1)]);
    top.order.iter_mut().for_each(|counter| counter.count = u64::MAX);
    top.cells.fill(u64::MAX);
    for key in ["a", "b", "b", "c"] {
        top.count(key.as_bytes(), 0);
        in_order(&top);
    }
    let half = u64::MAX / 2;
    assert_eq!(entries(&mut top, HALF_LIFE_US), owned(&[("a", half, 0), ("c", half, half)]));
    in_order(&top);
}
