//! The list of algorithms: what one rule consumed, in its algorithm's form.

use super::bucket::{self, Interval};
use super::debt::{self, Debt};
use super::fixed::{self, Fixed, FixedWithPast};
use super::log::{self, Log};
use super::reading::{Moment, Reading};
use super::slots::{self, Slots};
use super::window::{self, Window};
use super::{Algorithm, Details, Excess, Held, Reported, Saved};
use crate::heap::HeapVisitor;
use crate::key::holds::TrackKind;
use crate::rule::{BucketParams, Kind, Name, Params, Refill, Rule, Shape, WindowParams};
use crate::saved::error::DecodeError;
use crate::saved::form::{UNKNOWN_KIND, put, take};

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
    Slots(Slots),
}

/// Does the same with each algorithm's meter.
macro_rules! each {
    ($meter:expr, $it:ident => $do:expr) => {
        match $meter {
            Meter::Log($it) => $do,
            Meter::Window($it) => $do,
            Meter::Fixed($it) => $do,
            Meter::FixedWithPast($it) => $do,
            Meter::Debt($it) => $do,
            Meter::Interval($it) => $do,
            Meter::Slots($it) => $do,
        }
    };
}

impl Meter {
    /// A meter of a rule's shape with `units` consumed at `last_us`.
    pub fn of_units(rule: &Rule, last_us: u64, units: u64) -> Self {
        match rule.params() {
            Params::Log => Self::Log(Log::default()),
            Params::Window(WindowParams { res }) => {
                Self::Window(Window::of_units(rule, res, last_us, units))
            }
            Params::Fixed(params) => {
                Self::Fixed(Box::new(Fixed::of_units(rule, params, last_us, units)))
            }
            Params::Bucket(BucketParams { refill: Refill::Interval, .. }) => {
                Self::Interval(Box::new(Interval::of_units(rule, last_us, units)))
            }
            Params::Bucket(BucketParams { refill: Refill::Even, .. }) | Params::Leaky(_) => {
                Self::Debt(Box::new(Debt::of_units(rule, last_us, units)))
            }
            Params::Slots => Self::Slots(Slots { limit: rule.limit() }),
        }
    }

    /// True if it was made for a rule of this kind, whatever the rule's options.
    pub fn is_of_kind(&self, kind: Kind) -> bool {
        kind == self.shape().kind()
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

    /// Writes the code of its algorithm and its fields.
    pub fn save(&self, to: &mut Vec<u8>) {
        put(to, &each!(self, it => it.code()));
        each!(self, it => it.save(to));
    }

    /// Takes the code of an algorithm and its fields.
    pub fn load(from: &mut &[u8]) -> Result<Self, DecodeError> {
        match take(from)? {
            Log::CODE => log::saved::load(from),
            Window::CODE => window::saved::load(from),
            Fixed::CODE => fixed::saved::load(from),
            Debt::CODE => debt::load(from),
            Interval::CODE => bucket::saved::load(from),
            Slots::CODE => slots::load(from),
            _ => Err(UNKNOWN_KIND),
        }
    }

    /// Visits each heap allocation.
    pub fn visit_heap(&mut self, to: &mut impl HeapVisitor) {
        match self {
            Self::Fixed(fixed) => to.boxed(fixed),
            Self::FixedWithPast(past) => to.boxed(past),
            Self::Debt(debt) => to.boxed(debt),
            Self::Interval(interval) => to.boxed(interval),
            Self::Log(_) | Self::Window(_) | Self::Slots(_) => {}
        }
        each!(self, it => it.visit_heap(to));
    }
}

/// What any of the algorithms does.
impl Meter {
    /// The first address to read, for a prefetch.
    #[inline]
    pub fn address(&self) -> *const u8 {
        each!(self, it => it.address())
    }

    /// The options that it was made for, as far as they shape it.
    pub fn shape(&self) -> Shape {
        each!(self, it => it.shape())
    }

    /// True if `rule` can read this without reshaping.
    #[inline]
    pub fn has_shape_of(&self, rule: &Rule) -> bool {
        each!(self, it => it.fits(rule))
    }

    /// When it was last added to.
    #[inline]
    pub fn last_us(&self) -> u64 {
        each!(self, it => it.last_us())
    }

    /// The length of its window.
    #[inline]
    pub fn period_us(&self) -> u64 {
        each!(self, it => it.period_us())
    }

    /// How long the window of a rule is at its last time; a month by the calendar has its own length.
    pub fn window_of(&self, rule: &Rule) -> u64 {
        each!(self, it => it.window_of(rule))
    }

    /// True if it holds nothing that could matter.
    pub fn is_empty(&self) -> bool {
        each!(self, it => it.is_empty())
    }

    /// Units that still count at `at_us >= last_us`, rounded up.
    pub fn consumed(&self, at_us: u64) -> u64 {
        each!(self, it => it.consumed(at_us))
    }

    /// What a rule of its shape reads at `at_us >= last_us`.
    #[inline(always)]
    pub fn read(&self, rule: &Rule, at_us: u64, cost: u32) -> Reading {
        each!(self, it => it.read(rule, at_us, cost))
    }

    /// When a rule of its shape has nothing consumed any more; 0 if it has nothing consumed at
    /// `at_us`, which may be ahead of the clock.
    #[inline(always)]
    pub fn clears(&self, rule: &Rule, at_us: u64) -> Moment {
        let clears = each!(self, it => it.clears(rule));
        if clears <= Moment::At(at_us) { Moment::At(0) } else { clears }
    }

    /// When it ends: when nothing in it counts any more by the rule that consumed last, as it then
    /// was, or for a log by all rules that did. From then on every rule reads it as empty.
    #[inline(always)]
    pub fn ends(&self) -> Moment {
        each!(self, it => it.ends())
    }

    pub fn has_ended(&self, at_us: u64) -> bool {
        self.ends() <= Moment::At(at_us)
    }

    /// Until when a decision or a reader may need it. Past windows are kept for graphs, so they may
    /// be read after the end.
    #[inline]
    pub fn matters_until(&self) -> Moment {
        each!(self, it => it.matters_until())
    }

    /// Consumes for a rule of its shape at `at_us >= last_us`. A log consumed from here keeps only
    /// what this rule needs, so no other rule may read it.
    #[inline(always)]
    pub fn consume(&mut self, rule: &Rule, at_us: u64, cost: u32) {
        debug_assert!(self.has_shape_of(rule), "a rule of another shape");
        if rule.kept_windows() > 0 {
            self.keep_past();
        }
        each!(self, it => it.consume(rule, at_us, cost));
    }

    /// Gives back up to `units`, newest first, and returns how many. Changes nothing if that is 0,
    /// because a refund that gave nothing back is not propagated. A log gives back only entries
    /// within the window.
    pub fn refund(&mut self, window_us: u64, at_us: u64, units: u32) -> u64 {
        each!(self, it => it.refund(window_us, at_us, units))
    }

    /// What the holds on it have in common.
    pub fn track(&self) -> TrackKind {
        each!(self, it => it.track())
    }

    /// What one unit is in its [`level`](Self::level); `None` if each check takes its full cost.
    pub fn unit(&self) -> Option<u64> {
        each!(self, it => it.unit())
    }

    /// How full it is at `at_us >= last_us`: the debt drained at `limit`, in fractions of a unit, or
    /// the tokens taken. Other meters always take the full cost, so theirs is 0.
    pub fn level(&self, limit: u32, at_us: u64) -> u128 {
        each!(self, it => it.level(limit, at_us))
    }

    /// Lowers the level at its last time.
    pub fn take_off(&mut self, level: u128) {
        each!(self, it => it.take_off(level));
    }

    /// Gives back up to `units` consumed at `stamp_us`: those that still count at `at_us >=
    /// last_us`, are still in a log, or are kept for graphs. Returns how many, and changes nothing
    /// if that is 0. `last_us` stays, unless a log loses its newest entry.
    ///
    /// A debt gets nothing back: it does not know when its units were consumed.
    pub fn give_back(&mut self, stamp_us: u64, at_us: u64, units: u64) -> u64 {
        each!(self, it => it.give_back(stamp_us, at_us, units))
    }

    /// Consumes what a settled hold cost beyond its charge, beyond any limit.
    pub fn consume_excess(&mut self, excess: Excess, at_us: u64) {
        if excess.units > 0 {
            let at_us = at_us.max(self.last_us());
            each!(self, it => it.consume_excess(excess, at_us));
        }
    }

    /// The text of the rule that consumed last, as far as it is stored here.
    pub fn rule(&self, name: Option<Name>) -> String {
        each!(self, it => it.rule(name))
    }

    /// The part of a report that only this algorithm has; `at_us` is `None` if it lies too far ahead
    /// of the clock to count.
    pub fn details(&self, at_us: Option<u64>) -> Option<Details> {
        each!(self, it => it.details(at_us))
    }
}
