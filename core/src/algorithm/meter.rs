//! What one rule consumed, in its algorithm's form.
//!
//! It passes each call on to the algorithm's file. What a report shows, what is saved and what a
//! hold remembers also differ by algorithm, so those files match on [`Meter`] too.
//!
//! A rule can read and consume from a meter of its *shape*: its algorithm, options and period.
//! [`Meter::reshaped`] converts a meter for a rule of another shape.

use super::debt::Debt;
use super::fixed::{Fixed, FixedWithPast};
use super::interval::Interval;
use super::log::Log;
use super::reading::{Moment, Reading};
use super::window::Window;
use crate::algorithm::series::needs::Needs;
use crate::heap::{HeapVisitor, address_of};
use crate::rule::{Algorithm, BucketParams, Kind, Refill, Rule, Shape, WindowParams};
use std::collections::VecDeque;
use std::slice;

/// 16 bytes: the algorithm, and a pointer to its allocation, which is only as large as that
/// algorithm needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meter {
    Log(Log),
    Window(Window),
    Fixed(Box<Fixed>),
    /// `fixed` with `keep`.
    FixedWithPast(Box<FixedWithPast>),
    /// `bucket` and `leaky`.
    Debt(Box<Debt>),
    /// `bucket` with `refill=interval`.
    Interval(Box<Interval>),
    /// `slots`. The key's holds count the units; this stores only the limit of the last rule.
    Slots(u32),
}

impl Meter {
    /// A meter of a rule's shape with `units` consumed at `last_us`.
    pub fn of_units(rule: &Rule, last_us: u64, units: u64) -> Self {
        match rule.algorithm() {
            Algorithm::Log => Self::Log(Log::default()),
            Algorithm::Window(WindowParams { res }) => {
                Self::Window(Window::of_units(rule, res, last_us, units))
            }
            Algorithm::Fixed(params) => {
                Self::Fixed(Box::new(Fixed::of_units(rule, params, last_us, units)))
            }
            Algorithm::Bucket(BucketParams { refill: Refill::Interval, .. }) => {
                Self::Interval(Box::new(Interval::of_units(rule, last_us, units)))
            }
            Algorithm::Bucket(BucketParams { refill: Refill::Even, .. }) | Algorithm::Leaky(_) => {
                Self::Debt(Box::new(Debt::of_units(rule, last_us, units)))
            }
            Algorithm::Slots => Self::Slots(rule.limit()),
        }
    }

    /// The first address to read, for a prefetch.
    #[inline]
    pub fn address(&self) -> *const u8 {
        match self {
            Self::Log(log) => log.address(),
            Self::Window(window) => window.address(),
            Self::Fixed(fixed) => address_of(&**fixed),
            Self::FixedWithPast(fixed) => address_of(&**fixed),
            Self::Debt(debt) => address_of(&**debt),
            Self::Interval(interval) => address_of(&**interval),
            Self::Slots(_) => std::ptr::null(),
        }
    }

    /// True if `rule` can read this without reshaping. A log fits log rules of any period, since
    /// each reads it through its own window. A named rule that neither drains nor adds units reads
    /// a meter of its kind as it is: after reshaping, nothing would say when the meter ends.
    #[inline]
    pub fn has_shape_of(&self, rule: &Rule) -> bool {
        let fits = |shape: Shape, period_us: u64| {
            let same = period_us == rule.period_us() && shape == rule.algorithm().shape();
            same || rule.never_drains() && rule.name().is_some() && self.is_of_kind(rule.kind())
        };
        match self {
            Self::Log(_) => rule.kind() == Kind::Log,
            Self::Window(window) => fits(Shape::Window { res: window.res() }, window.period_us()),
            Self::Fixed(fixed) => fits(fixed.shape(), fixed.period_us()),
            Self::FixedWithPast(past) => fits(past.fixed.shape(), past.fixed.period_us()),
            Self::Debt(debt) if debt.is_leaky() => fits(Shape::Leaky, debt.period_us()),
            Self::Debt(debt) => fits(Shape::Bucket { refill: Refill::Even }, debt.period_us()),
            Self::Interval(interval) => {
                fits(Shape::Bucket { refill: Refill::Interval }, interval.period_us())
            }
            Self::Slots(_) => rule.kind() == Kind::Slots,
        }
    }

    /// True if it was made for a rule of this kind, whatever the rule's options.
    pub fn is_of_kind(&self, kind: Kind) -> bool {
        kind == match self {
            Self::Log(_) => Kind::Log,
            Self::Window(_) => Kind::Window,
            Self::Fixed(_) | Self::FixedWithPast(_) => Kind::Fixed,
            Self::Debt(debt) if debt.is_leaky() => Kind::Leaky,
            Self::Debt(_) | Self::Interval(_) => Kind::Bucket,
            Self::Slots(_) => Kind::Slots,
        }
    }

    /// Converts the meter to the shape of a rule of its kind, with the rule's limit. A debt
    /// converts exactly; another meter converts to its units that still count, all consumed at its
    /// last time.
    pub fn reshaped(&self, rule: &Rule) -> Self {
        let mut of_units = Self::of_units(rule, self.last_us(), self.consumed(self.last_us()));
        if let (Self::Debt(debt), Self::Debt(converted)) = (self, &mut of_units) {
            **converted = Debt { limit: converted.limit, ..debt.with_period(rule.period_us()) };
        }
        of_units
    }

    /// Units that still count at `at_us >= last_us`, rounded up.
    pub fn consumed(&self, at_us: u64) -> u64 {
        match self {
            Self::Log(log) => log.consumed(at_us),
            Self::Window(window) => window.consumed(at_us),
            Self::Fixed(fixed) => fixed.count_at(at_us),
            Self::FixedWithPast(past) => past.fixed.count_at(at_us),
            Self::Debt(debt) => debt.consumed(at_us),
            Self::Interval(interval) => u64::from(interval.used_at(at_us)),
            Self::Slots(_) => 0,
        }
    }

    /// When it was last added to.
    #[inline]
    pub fn last_us(&self) -> u64 {
        match self {
            Self::Log(log) => log.last_us(),
            Self::Window(window) => window.last_us(),
            Self::Fixed(fixed) => fixed.last_us(),
            Self::FixedWithPast(past) => past.fixed.last_us(),
            Self::Debt(debt) => debt.last_us,
            Self::Interval(interval) => interval.last_us(),
            Self::Slots(_) => 0,
        }
    }

    /// The length of its window.
    #[inline]
    pub fn period_us(&self) -> u64 {
        match self {
            Self::Log(log) => log.window_us(),
            Self::Window(window) => window.period_us(),
            Self::Fixed(fixed) => fixed.period_us(),
            Self::FixedWithPast(past) => past.fixed.period_us(),
            Self::Debt(debt) => debt.period_us(),
            Self::Interval(interval) => interval.period_us(),
            Self::Slots(_) => 0,
        }
    }

    /// True if it holds nothing that could matter.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Log(log) => log.is_empty(),
            Self::Window(window) => window.is_empty(),
            Self::Fixed(fixed) => fixed.count() == 0,
            Self::FixedWithPast(past) => past.is_empty(),
            Self::Debt(debt) => debt.is_empty(),
            Self::Interval(interval) => interval.is_empty(),
            Self::Slots(_) => true,
        }
    }

    /// What a rule of its shape reads at `at_us >= last_us`.
    #[inline(always)]
    pub fn read(&self, rule: &Rule, at_us: u64, cost: u32) -> Reading {
        match self {
            Self::Log(log) => log.read(rule, at_us, cost),
            Self::Window(window) => window.read(rule, at_us, cost),
            Self::Fixed(fixed) => fixed.read(rule, at_us, cost),
            Self::FixedWithPast(past) => past.fixed.read(rule, at_us, cost),
            Self::Debt(debt) => debt.read(rule, at_us, cost),
            Self::Interval(interval) => interval.read(rule, at_us, cost),
            Self::Slots(_) => Reading::untouched(rule, at_us),
        }
    }

    /// When a rule of its shape has nothing consumed any more; 0 if it has nothing consumed at
    /// `at_us`, which may be ahead of the clock.
    #[inline(always)]
    pub fn clears(&self, rule: &Rule, at_us: u64) -> Moment {
        let clears = match self {
            Self::Log(log) => log.clears(rule),
            Self::Debt(debt) => debt.clears(rule.limit()),
            Self::Window(_)
            | Self::Fixed(_)
            | Self::FixedWithPast(_)
            | Self::Interval(_)
            | Self::Slots(_) => self.ends(),
        };
        if clears <= Moment::At(at_us) { Moment::At(0) } else { clears }
    }

    /// When it ends: when nothing in it counts any more by the rule that consumed last, as it then
    /// was, or for a log by all rules that did. From then on every rule reads it as empty.
    #[inline(always)]
    pub fn ends(&self) -> Moment {
        match self {
            Self::Log(log) => Moment::At(log.matters_until_us()),
            Self::Window(window) => window.clears(),
            Self::Fixed(fixed) => fixed.clears(),
            Self::FixedWithPast(past) => past.fixed.clears(),
            Self::Debt(debt) => debt.ends(),
            Self::Interval(interval) => interval.clears(),
            Self::Slots(_) => Moment::At(0),
        }
    }

    pub fn has_ended(&self, at_us: u64) -> bool {
        self.ends() <= Moment::At(at_us)
    }

    /// Until when a decision or a reader may need it. Past windows are kept for graphs, so they may
    /// be read after the end.
    pub fn matters_until(&self) -> Moment {
        if let Self::FixedWithPast(past) = self {
            return Moment::At(past.matters_until_us());
        }
        self.ends()
    }

    /// Consumes for a rule of its shape at `at_us >= last_us`. A log consumed from here keeps only
    /// what this rule needs, so no other rule may read it.
    #[inline(always)]
    pub fn consume(&mut self, rule: &Rule, at_us: u64, cost: u32) {
        debug_assert!(self.has_shape_of(rule), "a rule of another shape");
        match self {
            Self::Log(log) => {
                log.consume(Needs::of(slice::from_ref(rule)), at_us, cost, false, false);
            }
            Self::Window(window) => window.consume(rule, at_us, cost),
            Self::Fixed(fixed) if rule.kept_windows() == 0 => {
                fixed.consume(rule, at_us, cost);
            }
            Self::Fixed(fixed) => {
                let (fixed, past) = (**fixed, VecDeque::new());
                let mut past = FixedWithPast { fixed, keep: 0, past };
                past.consume(rule, at_us, cost);
                *self = Self::FixedWithPast(Box::new(past));
            }
            Self::FixedWithPast(past) => past.consume(rule, at_us, cost),
            Self::Debt(debt) => debt.consume(rule, at_us, cost),
            Self::Interval(interval) => interval.consume(rule, at_us, cost),
            Self::Slots(limit) => *limit = rule.limit(),
        }
    }

    /// Gives back up to `units` consumed at `stamp_us`: those that still count at `at_us >=
    /// last_us`, are still in a log, or are kept for graphs. Returns how many, and changes nothing
    /// if that is 0. `last_us` stays, unless a log loses its newest entry.
    ///
    /// A debt gets nothing back: it does not know when its units were consumed.
    pub fn give_back(&mut self, stamp_us: u64, at_us: u64, units: u64) -> u64 {
        match self {
            Self::Log(log) => log.give_back(stamp_us, units),
            Self::Window(window) => window.give_back(stamp_us, at_us, units),
            Self::Fixed(fixed) => fixed.give_back(stamp_us, at_us, units),
            Self::FixedWithPast(past) => past.give_back(stamp_us, units),
            Self::Debt(_) | Self::Slots(_) => 0,
            Self::Interval(interval) => interval.give_back(stamp_us, at_us, units),
        }
    }

    /// Gives back up to `units`, newest first, and returns how many. Changes nothing if that is 0,
    /// because a refund that gave nothing back is not propagated. A log gives back only entries
    /// within the window.
    pub fn refund(&mut self, window_us: u64, at_us: u64, units: u32) -> u64 {
        match self {
            Self::Log(log) => log.refund(at_us.checked_sub(window_us), units),
            Self::Window(window) => window.refund(at_us, units.into()),
            Self::Fixed(fixed) => fixed.refund(at_us, units.into()),
            Self::FixedWithPast(past) => past.fixed.refund(at_us, units.into()),
            Self::Debt(debt) => debt.refund(at_us, units),
            Self::Interval(interval) => interval.refund(at_us, units.into()),
            Self::Slots(_) => 0,
        }
    }

    /// Visits each heap allocation.
    pub fn visit_heap(&mut self, to: &mut impl HeapVisitor) {
        match self {
            Self::Log(log) => log.visit_heap(to),
            Self::Window(window) => window.visit_heap(to),
            Self::Fixed(fixed) => to.boxed(fixed),
            Self::FixedWithPast(past) => {
                to.boxed(past);
                to.ring(&mut past.past);
            }
            Self::Debt(debt) => to.boxed(debt),
            Self::Interval(interval) => to.boxed(interval),
            Self::Slots(_) => {}
        }
    }
}
