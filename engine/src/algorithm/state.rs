//! The state of a rule: a meter, and the name by which the rule finds it.
//!
//! A rule finds its state by its *identity*: its name if it has one, else its shape. The log is the
//! exception: a key has one log, which all log rules read, whatever their names.
//!
//! A state outlives the rule that created it. The next call may bring another limit, which leaves
//! the state as it is. Under a name the call may also bring another period, other options or another
//! algorithm. If the shape changed, the state is reshaped; if the algorithm changed, it is dropped.
//! At a limit of 0 a debt has no end, so a `leaky` rule, or a `bucket` without `refill=interval`,
//! reshapes nothing while its limit is 0.
//!
//! A state [ends](super::Algorithm::ends) when nothing in it counts any more for the rule that consumed last,
//! as the rule was then. Until its end the state keeps the key alive; from then on every rule reads
//! the state as empty. So a wait depends only on the state and the time, not on how long the key
//! lives.
//!
//! ```text
//! bucket:1/s,name=n   consumes    |==========)            until a second later
//! bucket:1/h,name=n   is denied        |=====)            its wait is not an hour
//! bucket:1/h,name=n   consumes               |=====...    until an hour later
//! ```

use super::{Log, Meter, Moment, Reading, effective_time};
use crate::heap::{HeapVisitor, address_of};
use crate::rule::{Kind, Name, Rule, THROTTLE};
use alloc::{borrow::Cow, boxed::Box};

/// 16 bytes, the size of the meter alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Found by its shape. The exception is a bucket of `RL.THROTTLE`: it has a mark, and is found by
    /// the name `throttle`. The mark saves a second allocation for the name.
    Plain(Meter),
    Named(Box<Named>),
}

/// A meter found by its name. 48 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    name: Name,
    /// Never a log, which belongs to the key.
    meter: Meter,
}

/// True for an unnamed meter that `RL.THROTTLE` created.
#[inline(always)]
const fn is_throttle(meter: &Meter) -> bool {
    matches!(meter, Meter::Debt(debt) if debt.is_throttle())
}

impl State {
    /// An empty state for a rule, under its name if it has one.
    pub fn new(rule: &Rule, now_us: u64) -> Self {
        Self::named(rule.name(), Meter::of_units(rule, now_us, 0))
    }

    /// A state with this meter, under this name. Without a name, or for a log, the state is plain.
    pub fn named(name: Option<&Name>, mut meter: Meter) -> Self {
        match (name, &mut meter) {
            (None, _) | (Some(_), Meter::Log(_)) => Self::Plain(meter),
            (Some(name), Meter::Debt(debt)) if name.is_throttle() && !debt.is_leaky() => {
                debt.mark_as_throttle();
                Self::Plain(meter)
            }
            (Some(name), _) => Self::Named(Box::new(Named { name: *name, meter })),
        }
    }

    #[inline(always)]
    pub fn meter(&self) -> &Meter {
        match self {
            Self::Plain(meter) => meter,
            Self::Named(named) => &named.meter,
        }
    }

    #[inline(always)]
    pub fn meter_mut(&mut self) -> &mut Meter {
        match self {
            Self::Plain(meter) => meter,
            Self::Named(named) => &mut named.meter,
        }
    }

    pub fn name(&self) -> Option<Name> {
        match self {
            Self::Named(named) => Some(named.name),
            Self::Plain(meter) if is_throttle(meter) => Name::new(THROTTLE.as_bytes()),
            Self::Plain(_) => None,
        }
    }

    /// The first address to read, for a prefetch.
    #[inline]
    pub fn address(&self) -> *const u8 {
        match self {
            Self::Plain(meter) => meter.address(),
            Self::Named(named) => address_of(&**named),
        }
    }

    /// The log, if this state is the key's log.
    #[inline]
    pub fn log(&self) -> Option<&Log> {
        if let Meter::Log(log) = self.meter() { Some(log) } else { None }
    }

    #[inline]
    pub fn log_mut(&mut self) -> Option<&mut Log> {
        if let Meter::Log(log) = self.meter_mut() { Some(log) } else { None }
    }

    fn is_named(&self, name: &Name) -> bool {
        match self {
            Self::Named(named) => named.name == *name,
            Self::Plain(meter) => is_throttle(meter) && name.is_throttle(),
        }
    }

    /// True if this state and the rule have the same name, or neither has one. The log matches any
    /// name.
    #[inline(always)]
    fn has_name_of(&self, rule: &Rule) -> bool {
        match (self, rule.name()) {
            (Self::Plain(Meter::Log(_)), _) => true,
            (_, Some(name)) => self.is_named(name),
            (Self::Plain(meter), None) => !is_throttle(meter),
            (Self::Named(_), None) => false,
        }
    }

    /// True if the rule reads this state, perhaps reshaped. A name finds a state of any shape, but a
    /// log rule reads only the log.
    #[inline]
    pub fn belongs_to(&self, rule: &Rule) -> bool {
        let by_name = rule.name().is_some() && rule.kind() != Kind::Log && self.log().is_none();
        self.has_name_of(rule) && (by_name || self.meter().has_shape_of(rule))
    }

    /// True if the rule reads this state as it is.
    #[inline(always)]
    pub fn fits(&self, rule: &Rule) -> bool {
        self.has_name_of(rule) && self.meter().has_shape_of(rule)
    }

    /// True if the rule has this state's name but another algorithm or shape.
    pub fn is_taken_over_by(&self, rule: &Rule) -> bool {
        rule.name().is_some_and(|name| self.is_named(name)) && !self.meter().has_shape_of(rule)
    }

    /// Reshapes the state for a rule that takes over its name, or empties it if it has ended.
    /// Returns `false` if the rule is of another algorithm: the caller must then drop the state.
    pub fn take_over(&mut self, rule: &Rule, now_us: u64) -> bool {
        let fits = self.meter().is_of_kind(rule.kind());
        if fits {
            *self = match self.seen_by(rule, now_us) {
                Some(meter) => Self::named(rule.name(), meter.into_owned()),
                None => Self::new(rule, now_us),
            };
        }
        fits
    }

    /// The meter, reshaped for a rule that this state belongs to. `None` if the meter is of another
    /// algorithm or has ended: the rule then sees nothing.
    pub fn seen_by(&self, rule: &Rule, at_us: u64) -> Option<Cow<'_, Meter>> {
        let meter = self.meter();
        // A rule without a name reads only states of its shape.
        if rule.name().is_none() || meter.has_shape_of(rule) {
            Some(Cow::Borrowed(meter))
        } else if meter.is_of_kind(rule.kind()) && !meter.has_ended(at_us) {
            Some(Cow::Owned(meter.reshaped(rule)))
        } else {
            None
        }
    }

    /// What the rule reads here; `None` if it sees an untouched state. `window_us` is how far the
    /// clock may have stepped back.
    pub fn read(&self, rule: &Rule, window_us: u64, now_us: u64, cost: u32) -> Option<Reading> {
        let at_us = effective_time(now_us, self.meter().last_us(), window_us)?;
        Some(match self.seen_by(rule, at_us)? {
            Cow::Borrowed(meter) => meter.read(rule, at_us, cost),
            Cow::Owned(meter) => meter.read(rule, at_us, cost).until(self.meter().ends()),
        })
    }

    /// When nothing here counts any more for the rule.
    #[inline]
    pub fn clears(&self, rule: &Rule, window_us: u64, now_us: u64) -> Moment {
        let at_us = effective_time(now_us, self.meter().last_us(), window_us);
        let seen = at_us.and_then(|at_us| Some((at_us, self.seen_by(rule, at_us)?)));
        match seen {
            Some((at_us, Cow::Borrowed(meter))) => meter.clears(rule, at_us),
            Some((at_us, Cow::Owned(meter))) => meter.clears(rule, at_us).min(self.meter().ends()),
            None => Moment::At(0),
        }
    }

    /// Consumes for a rule that reads this state as it is, and is not a log rule. Returns true if a
    /// new state replaced this one because the clock stepped back.
    #[inline]
    pub fn consume(&mut self, rule: &Rule, now_us: u64, cost: u32) -> bool {
        let at_us = effective_time(now_us, self.meter().last_us(), rule.period_us());
        if at_us.is_none() {
            *self = Self::new(rule, now_us);
        }
        self.meter_mut().consume(rule, at_us.unwrap_or(now_us), cost);
        at_us.is_none()
    }

    /// Gives back up to `units`, newest first, if they still count for the rule that consumed
    /// last. Returns how many. `window_us` says how far the clock may have stepped back, and the
    /// age up to which a log gives units back.
    pub fn refund(&mut self, window_us: u64, now_us: u64, units: u32) -> u64 {
        let at_us = effective_time(now_us, self.meter().last_us(), window_us);
        let Some(at_us) = at_us.filter(|&at_us| !self.meter().has_ended(at_us)) else { return 0 };
        self.meter_mut().refund(window_us, at_us, units)
    }

    /// Visits each heap allocation.
    pub fn visit_heap(&mut self, to: &mut impl HeapVisitor) {
        match self {
            Self::Plain(_) => {}
            Self::Named(named) => to.boxed(named),
        }
        self.meter_mut().visit_heap(to);
    }
}
