//! Limiters take the memory and allow the worst bursts that `RL.EXPLAIN` states.

use crate::algorithm::meter::Params;
use crate::header_slice::{self, HeaderSlice};
use crate::heap::HeapVisitor;
use crate::key::{Check, Limiter, Verdict};
use crate::rule::{Rule, memory, worst_in_period};

fn rule(text: &str) -> Rule {
    Rule::from_text(text.as_bytes()).unwrap()
}

/// The bytes of a limiter: those that it always takes, and those of rings and counters.
#[derive(Debug, Default, PartialEq, Eq)]
struct Bytes {
    fixed: usize,
    growing: usize,
}

impl Bytes {
    /// The bytes of a limiter after `checks` checks, one period apart.
    fn of(text: &str, checks: u64) -> Self {
        let (rule, mut limiter) = (rule(text), Limiter::default());
        for n in 0..checks {
            let check = Check::new(std::slice::from_ref(&rule), 1, n * rule.period_us());
            limiter.check(&check, &mut Vec::new());
        }
        let mut bytes = Self { fixed: size_of::<Limiter>(), growing: 0 };
        limiter.visit_heap(&mut bytes);
        bytes
    }
}

impl HeapVisitor for Bytes {
    fn boxed<T>(&mut self, _: &mut Box<T>) {
        self.fixed += size_of::<T>();
    }

    fn header_slice<H, T: Copy, N: header_slice::Count>(&mut self, of: &mut HeaderSlice<H, T, N>) {
        self.fixed += HeaderSlice::<H, T, N>::OVERHEAD;
        self.growing += size_of_val(of.items());
    }

    fn slice<T>(&mut self, of: &mut Box<[T]>) {
        self.growing += size_of_val(&**of);
    }

    fn vec<T>(&mut self, of: &mut Vec<T>) {
        self.growing += size_of_val(of.as_slice());
    }
}

#[test]
fn limiters_have_the_size_that_explain_reports() {
    for text in
        ["fixed:5/m", "fixed:5/month", "bucket:5/m", "bucket:5/m,refill=interval", "leaky:5/m"]
    {
        assert_eq!(Bytes::of(text, 1), Bytes { fixed: memory::KEY as usize, growing: 0 }, "{text}");
    }
    assert_eq!(Bytes::of("5/m", 1).fixed, memory::LOG_KEY as usize);
    for res in [1, 6, 60] {
        let growing = (res + 1) * memory::WINDOW_COUNTER as usize;
        let explained = Bytes { fixed: memory::WINDOW_KEY as usize, growing };
        assert_eq!(Bytes::of(&format!("window:5/m,res={res}"), 1), explained);
    }
    for kept in 1..=3 {
        let growing = kept * memory::PAST_WINDOW as usize;
        assert_eq!(Bytes::of("fixed:5/m,keep=3", kept as u64 + 1).growing, growing);
    }
}

/// The number of units that a client gets in the period from `first_us` on, by requesting all it can
/// at every microsecond. Before that it may have taken one unit at `opened_us`.
fn flood(rule: &Rule, opened_us: Option<u64>, first_us: u64) -> u64 {
    let mut limiter = Limiter::default();
    let mut decisions = Vec::new();
    let mut ask = |now_us| {
        let rules = std::slice::from_ref(rule);
        let check = Check::new(rules, 1, now_us);
        limiter.check(&check, &mut decisions).summary.verdict == Verdict::Allowed
    };
    assert!(opened_us.is_none_or(&mut ask));
    let mut admitted = 0;
    for now_us in first_us..first_us.saturating_add(rule.period_us()) {
        while ask(now_us) {
            admitted += 1;
        }
    }
    admitted
}

#[test]
fn worst_bursts_are_reached_and_never_exceeded() {
    for text in [
        "4/ms",
        "window:1/ms",
        "window:4/ms",
        "window:4/ms,res=2",
        "window:4/ms,res=3",
        "window:3/ms,res=7",
        "window:700/ms",
        "window:700/ms,res=6",
        "fixed:1/ms",
        "fixed:4/ms",
        "fixed:4/ms,align=first",
        "fixed:1/ms,align=first",
        "bucket:1/ms",
        "bucket:4/ms",
        "bucket:3/ms,burst=7",
        "bucket:1500/ms",
        "bucket:4/ms,refill=interval",
        "bucket:1/ms,refill=interval",
        "bucket:9/ms,burst=2,refill=interval",
        "leaky:4/ms,queue=2",
    ] {
        let rule = rule(text);
        // Two windows cover every phase of the clock and every distance to the first unit.
        let start = 10 * rule.period_us();
        let phases = (start.saturating_add(1)..).take(1002);
        let coarse = if rule.limit() > 99 { 83 } else { 7 };
        let near_the_end = |us: &u64| us.is_multiple_of(coarse) || us % 1000 > 985 || us % 1000 < 2;
        let worst = phases
            .filter(near_the_end)
            .chain(sub_interval_ends(&rule, start))
            .flat_map(|first| [flood(&rule, None, first), flood(&rule, Some(start), first)])
            .max();
        assert_eq!(worst, Some(worst_in_period(&rule)), "{text}");
    }
}

fn sub_interval_ends(rule: &Rule, start: u64) -> impl Iterator<Item = u64> {
    let res = match rule.params() {
        Params::Window(window) => u64::from(window.res),
        _ => 1,
    };
    let period_us = rule.period_us();
    (1..=res).flat_map(move |part| (0..4).map(move |us| start + part * period_us / res - us))
}
