//! How much memory a hold takes, by the sizes of allocations; an allocator may round them up.

use crate::header_slice::{Count, HeaderSlice};
use crate::limit::{Check, CheckOptions, HeapVisitor, HoldRequest, Limiter};
use crate::parse::rules_of_line;
use crate::rule::Rule;

/// The bytes of all allocations, and how many of them are in use.
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

/// The bytes of a key after checks of these rules at one time.
fn bytes(rules: &[Rule], takes_holds: bool) -> Bytes {
    let mut limiter = Limiter::default();
    for n in 0..HOLDS {
        let id = format!("{n:016}");
        let hold = HoldRequest { id: id.as_bytes(), end_us: NOW_US + 1_000_000, refund: true };
        let options = CheckOptions { hold: Some(hold), ..CheckOptions::default() };
        let options = takes_holds.then_some(&options);
        limiter.check(&Check { options, ..Check::new(rules, 1, NOW_US) }, &mut Vec::new());
    }
    assert_eq!(limiter.live_holds(NOW_US), if takes_holds { HOLDS as usize } else { 0 });
    Bytes::of(&mut limiter)
}

/// The bytes that a hold adds: in use, and in all.
fn bytes_a_hold(rules: &str) -> (f64, f64) {
    let rules = rules_of_line(rules);
    let (with, without) = (bytes(&rules, true), bytes(&rules, false));
    let a_hold = |with: usize, without: usize| (with - without) as f64 / f64::from(HOLDS);
    (a_hold(with.used, without.used), a_hold(with.all, without.all))
}

#[test]
fn a_hold_takes_no_more_than_stated() {
    for (rule, most) in [
        ("100000/m", 61.0),
        ("window:100000/m", 61.0),
        ("fixed:100000/m", 61.0),
        ("leaky:100000/m", 61.0),
        // These keep the least debt as well.
        ("bucket:100000/m", 73.0),
    ] {
        let (used, all) = bytes_a_hold(rule);
        assert!(used <= most, "{used} bytes a hold on {rule}");
        assert!(all <= used * 1.25, "{all} bytes for the {used} of a hold on {rule}");
    }
}

#[test]
fn a_further_rule_takes_no_more_than_stated() {
    let three = bytes_a_hold("window:100000/m fixed:100000/m leaky:100000/m").0;
    let four = bytes_a_hold("window:100000/m fixed:100000/m leaky:100000/m window:100000/h").0;
    assert!(four - three <= 24.1, "{} bytes a further rule", four - three);
}
