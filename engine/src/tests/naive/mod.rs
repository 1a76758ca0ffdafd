//! Naive models: the definitions, written down as plainly as possible.
//!
//! Nothing here is clever. Times and quantities are `i128`, a log is a list, and a wait
//! is the least time after which the cost fits, found by bisection. The laws compare the
//! limiter with these models.

pub mod model;

use crate::algorithm::bucket::BucketParams;
use crate::algorithm::bucket::naive::NaiveInterval;
use crate::algorithm::debt::naive::NaiveDebt;
use crate::algorithm::fixed::FixedParams;
use crate::algorithm::fixed::naive::NaiveFixed;
use crate::algorithm::leaky::LeakyParams;
use crate::algorithm::meter::Params;
use crate::algorithm::window::naive::NaiveWindow;
use crate::rule::{Kind, Name, Refill, Rule};

/// Unix microseconds, or a length in microseconds.
pub type Micros = i128;

/// How a rule finds its state: by its name, or by its shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Identity {
    Named(Name),
    Shaped(NaiveShape),
}

impl Identity {
    pub fn of(rule: &Rule) -> Self {
        rule.name().map_or_else(|| Self::Shaped(NaiveShape::of(rule)), |name| Self::Named(*name))
    }
}

/// A period, and an algorithm without its limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NaiveShape(u64, Params);

impl NaiveShape {
    pub fn of(rule: &Rule) -> Self {
        let algorithm = match rule.params() {
            Params::Bucket(bucket) => Params::Bucket(BucketParams { burst: 0, ..bucket }),
            Params::Leaky(_) => Params::Leaky(LeakyParams { queue: 0 }),
            Params::Fixed(fixed) => Params::Fixed(FixedParams { keep: 0, ..fixed }),
            Params::Log(_) | Params::Window(_) | Params::Slots(_) => rule.params(),
        };
        Self(rule.period_us(), algorithm)
    }
}

/// The most units that pass at once.
pub fn capacity(rule: &Rule) -> i128 {
    match rule.params() {
        _ if rule.limit() == 0 => 0,
        Params::Bucket(bucket) => bucket.burst.into(),
        Params::Leaky(leaky) => i128::from(leaky.queue) + 1,
        Params::Log(_) | Params::Window(_) | Params::Fixed(_) | Params::Slots(_) => {
            rule.limit().into()
        }
    }
}

/// The time at which a state is read; `None` if the rule ignores the state.
pub fn effective_time(now: Micros, last: Micros, window: Micros) -> Option<Micros> {
    if now >= last {
        Some(now)
    } else if last - now <= window {
        Some(last)
    } else {
        None
    }
}

/// What one rule consumed.
#[derive(Clone, Debug)]
pub enum NaiveMeter {
    Window(NaiveWindow),
    Fixed(NaiveFixed),
    Debt(NaiveDebt),
    Interval(NaiveInterval),
}

impl NaiveMeter {
    /// A meter with only these units, consumed at this time.
    pub fn of_units(rule: &Rule, at: Micros, units: i128) -> Self {
        match rule.params() {
            Params::Log(_) => unreachable!("the log belongs to the key"),
            Params::Slots(_) => unreachable!("slots are the key's holds"),
            Params::Window(_) => Self::Window(NaiveWindow::of_units(rule, at, units)),
            Params::Fixed(_) => Self::Fixed(NaiveFixed::of_units(rule, at, units)),
            Params::Bucket(BucketParams { refill: Refill::Interval, .. }) => {
                Self::Interval(NaiveInterval::of_units(rule, at, units))
            }
            Params::Bucket(_) | Params::Leaky(_) => Self::Debt(NaiveDebt::of_units(rule, units)),
        }
    }

    /// What was consumed, read under a rule of another shape.
    #[must_use]
    pub fn reshaped(&self, rule: &Rule, last: Micros) -> Self {
        match (self, rule.params()) {
            (
                Self::Debt(debt),
                Params::Leaky(_) | Params::Bucket(BucketParams { refill: Refill::Even, .. }),
            ) => Self::Debt(debt.taken_by(rule)),
            _ => Self::of_units(rule, last, self.whole_units(last)),
        }
    }

    /// The units that count at the time of the last consumption, rounded up.
    fn whole_units(&self, last: Micros) -> i128 {
        match self {
            Self::Window(window) => window.whole_units(last),
            Self::Fixed(fixed) => fixed.count(last),
            Self::Debt(debt) => debt.whole_units(),
            Self::Interval(interval) => interval.used(last),
        }
    }

    /// The formula of the algorithm; `last <= at`.
    pub fn fits(&self, rule: &Rule, last: Micros, at: Micros, cost: i128) -> bool {
        match self {
            Self::Window(window) => window.fits(rule, at, cost),
            Self::Fixed(fixed) => fixed.count(at) + cost <= rule.limit().into(),
            Self::Debt(debt) => debt.fits(rule, last, at, cost),
            Self::Interval(interval) => interval.used(at) + cost <= capacity(rule),
        }
    }

    /// True if nothing counts at `at`, under this limit.
    pub fn is_clear(&self, limit: i128, last: Micros, at: Micros) -> bool {
        match self {
            Self::Window(window) => window.load(at) == 0,
            Self::Fixed(fixed) => fixed.count(at) == 0,
            Self::Debt(debt) => debt.owed_at(limit, last, at) == 0,
            Self::Interval(interval) => interval.used(at) == 0,
        }
    }

    /// True if nothing counts any more for the rule that consumed last; `last <= at`. From then on
    /// nothing counts for any other rule, either.
    pub fn has_ended(&self, last: Micros, at: Micros) -> bool {
        match self {
            Self::Debt(debt) => debt.has_ended(last, at),
            Self::Window(_) | Self::Fixed(_) | Self::Interval(_) => self.is_clear(0, last, at),
        }
    }

    /// True if the meter does not matter any more at `at`, not even for a graph.
    pub fn is_over(&self, last: Micros, at: Micros) -> bool {
        match self {
            Self::Fixed(fixed) => fixed.is_over(at),
            Self::Debt(_) | Self::Window(_) | Self::Interval(_) => {
                at >= last && self.has_ended(last, at)
            }
        }
    }

    /// True if the meter holds nothing.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Window(window) => window.is_empty(),
            Self::Fixed(fixed) => fixed.is_empty(),
            Self::Debt(debt) => debt.is_empty(),
            Self::Interval(interval) => interval.is_empty(),
        }
    }

    /// True if a decision reads nothing here. Past windows are only for graphs.
    pub fn counts_nothing(&self) -> bool {
        match self {
            Self::Fixed(fixed) => fixed.counts_nothing(),
            Self::Debt(_) | Self::Window(_) | Self::Interval(_) => self.is_empty(),
        }
    }

    pub fn take(&mut self, rule: &Rule, last: Micros, at: Micros, cost: i128) {
        match self {
            Self::Window(window) => window.take(at, cost),
            Self::Fixed(fixed) => fixed.take(rule, at, cost),
            Self::Debt(debt) => debt.take(rule, last, at, cost),
            Self::Interval(interval) => interval.take(rule, at, cost),
        }
    }

    /// Takes units even above the capacity.
    pub fn take_excess(&mut self, rule: &Rule, last: Micros, at: Micros, units: i128) {
        match self {
            Self::Debt(debt) => debt.take_excess(rule, last, at, units),
            Self::Window(_) | Self::Fixed(_) | Self::Interval(_) => {
                self.take(rule, last, at, units);
            }
        }
    }

    /// Gives back units, newest first, if they still count for the rule that consumed last.
    pub fn refund(&mut self, last: Micros, at: Micros, units: i128) -> i128 {
        match self {
            Self::Window(window) => window.refund(at, units),
            Self::Fixed(fixed) => fixed.refund(at, units),
            Self::Debt(debt) => debt.refund(last, at, units),
            Self::Interval(interval) => interval.refund(at, units),
        }
    }
}

/// A state that belongs to one rule.
#[derive(Clone, Debug)]
pub struct Owned {
    pub identity: Identity,
    pub kind: Kind,
    pub shape: NaiveShape,
    pub period: Micros,
    /// When the state was last consumed from.
    pub last: Micros,
    pub meter: NaiveMeter,
}

impl Owned {
    pub fn new(rule: &Rule, now: Micros) -> Self {
        Self {
            identity: Identity::of(rule),
            kind: rule.kind(),
            shape: NaiveShape::of(rule),
            period: rule.period_us().into(),
            last: now,
            meter: NaiveMeter::of_units(rule, now, 0),
        }
    }

    pub fn has_ended(&self, at: Micros) -> bool {
        self.meter.has_ended(self.last, at.max(self.last))
    }

    /// What a rule sees of the state; `None` if it sees nothing.
    pub fn seen_by(&self, rule: &Rule, at: Micros) -> Option<NaiveMeter> {
        if self.kind != rule.kind() || self.has_ended(at) {
            None
        } else if self.has_shape_of(rule) {
            Some(self.meter.clone())
        } else {
            Some(self.meter.reshaped(rule, self.last))
        }
    }

    /// True if the rule reads the state as it is. A rule that never drains reads every state of its
    /// algorithm as it is.
    pub fn has_shape_of(&self, rule: &Rule) -> bool {
        let never_drains =
            || rule.limit() == 0 && matches!(NaiveMeter::of_units(rule, 0, 0), NaiveMeter::Debt(_));
        self.kind == rule.kind() && (self.shape == NaiveShape::of(rule) || never_drains())
    }

    /// Takes the shape of a rule that consumes.
    pub fn take_shape(&mut self, rule: &Rule, now: Micros) {
        if self.has_shape_of(rule) {
            return;
        }
        if self.has_ended(now) {
            *self = Self::new(rule, now);
        } else {
            self.meter = self.meter.reshaped(rule, self.last);
            self.shape = NaiveShape::of(rule);
            self.period = rule.period_us().into();
        }
    }
}

/// The least `n >= 0` for which `holds` is true, found by bisection; `None` if `n` lies beyond 2^70.
/// `holds` must also be true for all larger `n`.
pub fn least(holds: impl Fn(i128) -> bool) -> Option<i128> {
    if holds(0) {
        return Some(0);
    }
    let mut high = 1;
    while !holds(high) {
        high *= 2;
        if high > 1 << 70 {
            return None;
        }
    }
    let mut low = high / 2;
    // holds(high), not holds(low)
    while high - low > 1 {
        let middle = i128::midpoint(low, high);
        if holds(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}

/// The first millisecond at which `holds_after_us` is true; -1 for never.
pub fn least_ms(holds_after_us: impl Fn(i128) -> bool) -> i64 {
    const LONGEST: i64 = i64::MAX - 1;
    least(|ms| holds_after_us(ms * 1_000))
        .map_or(-1, |ms| i64::try_from(ms).unwrap_or(LONGEST).min(LONGEST))
}
