//! The memory that a hold takes, by the sizes of allocations; an allocator may round these up.

use crate::header_slice::{Count, HeaderSlice};
use crate::heap::HeapVisitor;
use crate::key::{Check, CheckOptions, HoldRequest, Limiter, Settlement};
use crate::rule::Rule;
use crate::tests::rules_of_line;

/// The bytes of all allocations, and the bytes in use.
#[derive(Clone, Copy, Default)]
pub struct Bytes {
    pub all: usize,
    pub used: usize,
}

impl Bytes {
    /// The bytes of a limiter's allocations.
    pub fn of(limiter: &mut Limiter) -> Self {
        let mut bytes = Self::default();
        limiter.visit_heap(&mut bytes);
        bytes
    }

    fn add(&mut self, bytes: usize) {
        self.all += bytes;
        self.used += bytes;
    }
}

impl HeapVisitor for Bytes {
    fn boxed<T>(&mut self, _: &mut Box<T>) {
        self.add(size_of::<T>());
    }

    fn header_slice<H, T: Copy, N: Count>(&mut self, owner: &mut HeaderSlice<H, T, N>) {
        self.add(size_of::<H>() + size_of_val(owner.items()));
    }

    fn slice<T>(&mut self, owner: &mut Box<[T]>) {
        self.add(size_of_val::<[T]>(owner));
    }

    fn vec<T>(&mut self, owner: &mut Vec<T>) {
        self.all += owner.capacity() * size_of::<T>();
        self.used += owner.len() * size_of::<T>();
    }
}

const HOLDS: u32 = 5_000;
const NOW_US: u64 = 1_700_000_000_000_000;

fn id(n: u32) -> String {
    format!("{n:016}")
}

/// Checks these rules, with the `n`th hold if `takes_hold`.
fn check(limiter: &mut Limiter, rules: &[Rule], n: u32, takes_hold: bool) {
    let id = id(n);
    let hold = HoldRequest { id: id.as_bytes(), end_us: NOW_US + 1_000_000, refund: true };
    let options = CheckOptions { hold: Some(hold), ..CheckOptions::default() };
    let options = takes_hold.then_some(&options);
    limiter.check(&Check { options, ..Check::new(rules, 1, NOW_US) }, &mut Vec::new());
}

fn settle(limiter: &mut Limiter, n: u32) {
    assert!(limiter.settle(id(n).as_bytes(), Settlement::AsCharged, NOW_US));
}

/// A key after checks of these rules at one time.
fn checked(rules: &[Rule], checks: u32, takes_holds: bool) -> Limiter {
    let mut limiter = Limiter::default();
    (0..checks).for_each(|n| check(&mut limiter, rules, n, takes_holds));
    assert_eq!(limiter.live_holds(NOW_US), if takes_holds { checks as usize } else { 0 });
    limiter
}

/// The bytes of a key after checks of these rules at one time.
fn bytes(rules: &[Rule], takes_holds: bool) -> Bytes {
    Bytes::of(&mut checked(rules, HOLDS, takes_holds))
}

/// The bytes that a hold adds: in use, and in all.
fn bytes_a_hold(rules: &str) -> (f64, f64) {
    let rules = rules_of_line(rules);
    let (with, without) = (bytes(&rules, true), bytes(&rules, false));
    let a_hold = |with: usize, without: usize| (with - without) as f64 / f64::from(HOLDS);
    (a_hold(with.used, without.used), a_hold(with.all, without.all))
}

#[test]
fn a_hold_takes_no_more_memory_than_stated() {
    for (rule, most) in [
        ("100000/m", 65.0),
        ("window:100000/m", 65.0),
        ("fixed:100000/m", 65.0),
        ("leaky:100000/m", 65.0),
        // A bucket's holds also store their least debt.
        ("bucket:100000/m", 77.0),
    ] {
        let (used, all) = bytes_a_hold(rule);
        assert!(used <= most, "{used} bytes per hold on {rule}");
        assert!(all <= used * 1.25, "{all} bytes allocated for {used} in use per hold on {rule}");
    }
}

#[test]
fn a_further_rule_takes_no_more_memory_than_stated() {
    let three = bytes_a_hold("window:100000/m fixed:100000/m leaky:100000/m").0;
    let four = bytes_a_hold("window:100000/m fixed:100000/m leaky:100000/m window:100000/h").0;
    assert!(four - three <= 24.1, "{} bytes per further rule", four - three);
}

#[test]
fn a_first_hold_leaves_little_memory_unused() {
    for rules in 1..9 {
        let rules: Vec<String> = (0..rules).map(|n| format!("window:9/m,name=n{n}")).collect();
        let mut limiter = checked(&rules_of_line(&rules.join(" ")), 1, true);
        let Bytes { all, used } = Bytes::of(&mut limiter);
        assert!(all - used <= 200, "{} unused bytes for {} rules", all - used, rules.len());
    }
}

#[test]
fn holds_that_end_free_their_memory() {
    for rule in ["window:100000/m", "bucket:100000/m"] {
        let mut limiter = checked(&rules_of_line(rule), HOLDS, true);
        (50..HOLDS).for_each(|n| settle(&mut limiter, n));
        let all = Bytes::of(&mut limiter).all;
        assert!(all <= 12_000, "{all} bytes for 50 holds on {rule}");
    }
}

/// Rules that replace each other's state.
const RESHAPED: [&str; 2] = ["window:9999/m,name=x", "fixed:9999/m,name=x"];

#[test]
fn states_that_are_gone_take_little_memory() {
    let (rules, mut limiter) = (RESHAPED.map(rules_of_line), Limiter::default());
    (0..HOLDS).for_each(|n| check(&mut limiter, &rules[n as usize % 2], n, true));
    let all = Bytes::of(&mut limiter).all;
    assert!(all <= HOLDS as usize * 80, "{all} bytes");
    // Holds give nothing back to states that are gone.
    settle(&mut limiter, 0);
    (1..HOLDS).for_each(|n| settle(&mut limiter, n));
    assert_eq!(limiter.live_holds(NOW_US), 0);
}

#[test]
fn a_new_state_takes_the_place_of_one_that_is_gone() {
    let rules = RESHAPED.map(rules_of_line);
    let mut limiter = checked(&rules_of_line("window:9/m,name=kept"), 1, true);
    for n in 1..500 {
        check(&mut limiter, &rules[n as usize % 2], n, true);
        settle(&mut limiter, n);
    }
    let all = Bytes::of(&mut limiter).all;
    assert!(all <= 1_000, "{all} bytes");
}
