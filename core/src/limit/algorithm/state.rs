//! The state of a rule: a meter, and the name that a rule finds it by.
//!
//! A rule looks for its state by its *identity*: the name if it has one, else the
//! shape. The log is the exception: a key has one, for all log rules, whatever
//! their names.
//!
//! A state outlives the rule it was made for. The next call may bring another
//! limit, for which the state stays as it is; and under a name another period, other
//! options or another algorithm. A state of another algorithm is dropped. If only the shape
//! changed, the state is reshaped.

use super::log::Log;
use super::meter::Meter;
use super::reading::{Moment, Reading, effective_time};
use crate::limit::heap::{HeapVisitor, address_of};
use crate::rule::{Kind, MAX_NAME, Name, Rule, THROTTLE};
use std::borrow::Cow;

/// 16 bytes, as large as the meter alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Found by its shape, except a bucket that is marked as one of `RL.THROTTLE`: that is
    /// found by the name `throttle`, and needs no second block for its name.
    Plain(Meter),
    Named(Box<Named>),
    /// A state that live holds were charged on. A state made anew has no holds: what they
    /// were charged is gone with the old one.
    Held(Box<Held>),
}

/// A state with holds. 56 bytes.
#[derive(Clone, Debug, Eq)]
pub struct Held {
    /// Empty if a rule finds the state by its shape.
    name: [u8; MAX_NAME],
    meter: Meter,
    /// The number by which the charges of its holds find it.
    track: u16,
}

/// The numbers of tracks are not part of what a state is.
impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        (self.name, &self.meter) == (other.name, &other.meter)
    }
}

/// A meter that a rule finds by its name. 48 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    name: [u8; MAX_NAME],
    /// Not a log, which belongs to the key.
    meter: Meter,
}

/// The name of a state that has none.
const NO_NAME: [u8; MAX_NAME] = [0; MAX_NAME];

/// Whether `RL.THROTTLE` made a meter that has no name.
#[inline(always)]
const fn is_throttle(meter: &Meter) -> bool {
    matches!(meter, Meter::Debt(debt) if debt.is_throttle())
}

impl State {
    /// An empty state for a rule, under its name if it has one.
    pub fn new(rule: &Rule, now_us: u64) -> Self {
        Self::named(rule.name(), Meter::of_units(rule, now_us, 0))
    }

    /// A meter under a name, if there is one. A log takes no name.
    pub fn named(name: Option<&Name>, mut meter: Meter) -> Self {
        match (name, &mut meter) {
            (None, _) | (Some(_), Meter::Log(_)) => Self::Plain(meter),
            (Some(name), Meter::Debt(debt)) if name.is_throttle() && !debt.is_leaky() => {
                debt.mark_as_throttle();
                Self::Plain(meter)
            }
            (Some(name), _) => Self::Named(Box::new(Named { name: *name.padded(), meter })),
        }
    }

    #[inline(always)]
    pub fn meter(&self) -> &Meter {
        match self {
            Self::Plain(meter) => meter,
            Self::Named(named) => &named.meter,
            Self::Held(held) => &held.meter,
        }
    }

    #[inline(always)]
    pub fn meter_mut(&mut self) -> &mut Meter {
        match self {
            Self::Plain(meter) => meter,
            Self::Named(named) => &mut named.meter,
            Self::Held(held) => &mut held.meter,
        }
    }

    /// The number of its track, if it has holds.
    pub const fn track(&self) -> Option<u16> {
        match self {
            Self::Held(held) => Some(held.track),
            Self::Plain(_) | Self::Named(_) => None,
        }
    }

    /// Gives the state a track for its holds, or takes it away.
    pub fn set_track(&mut self, track: Option<u16>) {
        let (name, meter) = match std::mem::replace(self, Self::Plain(Meter::Slots(0))) {
            Self::Plain(meter) => (NO_NAME, meter),
            Self::Named(named) => (named.name, named.meter),
            Self::Held(held) => (held.name, held.meter),
        };
        *self = match track {
            Some(track) => Self::Held(Box::new(Held { name, meter, track })),
            None if name == NO_NAME => Self::Plain(meter),
            None => Self::Named(Box::new(Named { name, meter })),
        };
    }

    pub fn name(&self) -> Option<Name> {
        match self {
            Self::Named(named) => Name::of_padded(named.name),
            Self::Held(held) if held.name != NO_NAME => Name::of_padded(held.name),
            Self::Plain(_) | Self::Held(_) if is_throttle(self.meter()) => {
                Name::new(THROTTLE.as_bytes())
            }
            Self::Plain(_) | Self::Held(_) => None,
        }
    }

    /// The first address to read, for a prefetch.
    #[inline]
    pub fn address(&self) -> *const u8 {
        match self {
            Self::Plain(meter) => meter.address(),
            Self::Named(named) => address_of(&**named),
            Self::Held(held) => address_of(&**held),
        }
    }

    /// The log, if this state is the key's log.
    #[inline]
    pub fn log(&self) -> Option<&Log> {
        match self.meter() {
            Meter::Log(log) => Some(log),
            _ => None,
        }
    }

    #[inline]
    pub fn log_mut(&mut self) -> Option<&mut Log> {
        match self.meter_mut() {
            Meter::Log(log) => Some(log),
            _ => None,
        }
    }

    fn is_named(&self, name: &Name) -> bool {
        match self {
            Self::Named(named) => *name.padded() == named.name,
            Self::Held(held) if held.name != NO_NAME => *name.padded() == held.name,
            Self::Plain(_) | Self::Held(_) => is_throttle(self.meter()) && name.is_throttle(),
        }
    }

    /// Whether this state and a rule have the same name or none. The log passes for
    /// any name.
    #[inline(always)]
    fn has_name_of(&self, rule: &Rule) -> bool {
        match (self, rule.name()) {
            (Self::Plain(Meter::Log(_)), _) => true,
            (Self::Held(held), _) if matches!(held.meter, Meter::Log(_)) => true,
            (_, Some(name)) => self.is_named(name),
            (Self::Plain(meter), None) => !is_throttle(meter),
            (Self::Named(_), None) => false,
            (Self::Held(held), None) => held.name == NO_NAME && !is_throttle(&held.meter),
        }
    }

    /// Whether a rule reads this state, if need be in another shape. A name finds a
    /// state of any shape, but a log rule reads only the log.
    #[inline]
    pub fn belongs_to(&self, rule: &Rule) -> bool {
        let by_name = rule.name().is_some() && rule.kind() != Kind::Log && self.log().is_none();
        self.has_name_of(rule) && (by_name || self.meter().has_shape_of(rule))
    }

    /// Whether a rule reads this state just as it is.
    #[inline(always)]
    pub fn fits(&self, rule: &Rule) -> bool {
        self.has_name_of(rule) && self.meter().has_shape_of(rule)
    }

    /// The meter of a state that a rule reads just as it is.
    #[inline(always)]
    pub fn fitting(&self, rule: &Rule) -> Option<&Meter> {
        self.fits(rule).then(|| self.meter())
    }

    /// The meter, to consume from, of a state that a rule reads just as it is.
    #[inline(always)]
    pub fn fitting_mut(&mut self, rule: &Rule) -> Option<&mut Meter> {
        if self.fits(rule) { Some(self.meter_mut()) } else { None }
    }

    /// Whether a rule that this state belongs to reads it as it is. Without a name, the
    /// state belongs to the rule because it has the rule's shape.
    #[inline]
    fn suits(&self, rule: &Rule) -> bool {
        rule.name().is_none() || self.meter().has_shape_of(rule)
    }

    /// Whether a rule takes over this state's name, and is of another algorithm or shape.
    pub fn is_taken_over_by(&self, rule: &Rule) -> bool {
        rule.name().is_some_and(|name| self.is_named(name)) && !self.meter().has_shape_of(rule)
    }

    /// Gives the state the shape of a rule that takes over its name. Returns `false` if the
    /// rule is of another algorithm, and the state has to be dropped.
    pub fn take_over(&mut self, rule: &Rule) -> bool {
        let fits = self.meter().is_of_kind(rule.kind());
        if fits {
            *self = Self::named(rule.name(), self.meter().reshaped(rule));
        }
        fits
    }

    /// The meter as a rule that this state belongs to sees it; `None` if it is of
    /// another algorithm.
    pub fn seen_by(&self, rule: &Rule) -> Option<Cow<'_, Meter>> {
        let meter = self.meter();
        if self.suits(rule) {
            Some(Cow::Borrowed(meter))
        } else if meter.is_of_kind(rule.kind()) {
            Some(Cow::Owned(meter.reshaped(rule)))
        } else {
            None
        }
    }

    /// What a rule reads here; `None` if it sees an untouched state. The window is
    /// how far the clock may have stepped back.
    pub fn read(&self, rule: &Rule, window_us: u64, now_us: u64, cost: u32) -> Option<Reading> {
        let at_us = effective_time(now_us, self.meter().last_us(), window_us)?;
        Some(self.seen_by(rule)?.read(rule, at_us, cost))
    }

    /// When a rule has nothing consumed here any more.
    #[inline]
    pub fn clears(&self, rule: &Rule, window_us: u64, now_us: u64) -> Moment {
        let at_us = effective_time(now_us, self.meter().last_us(), window_us);
        match (at_us, self.seen_by(rule)) {
            (Some(at_us), Some(meter)) => meter.clears(rule, at_us),
            (None, _) | (_, None) => Moment::At(0),
        }
    }

    /// Consumes for a rule that this state fits, unless that is a log rule.
    #[inline]
    pub fn consume(&mut self, rule: &Rule, now_us: u64, cost: u32) {
        let at_us = effective_time(now_us, self.meter().last_us(), rule.period_us());
        let at_us = at_us.unwrap_or_else(|| {
            *self = Self::new(rule, now_us);
            now_us
        });
        self.meter_mut().consume(rule, at_us, cost);
    }

    /// Gives units back, newest first, and returns how many. Without a rule, it does so as
    /// the rule that consumed last would. The window is how far the clock may have stepped
    /// back, and how far back a log gives units.
    pub fn refund(&mut self, rule: Option<&Rule>, window_us: u64, now_us: u64, units: u32) -> u64 {
        let last_us = self.meter().last_us();
        let Some(at_us) = effective_time(now_us, last_us, window_us) else { return 0 };
        if let Some(rule) = rule
            && !self.suits(rule)
        {
            if !self.meter().is_of_kind(rule.kind()) {
                return 0;
            }
            let mut reshaped = self.meter().reshaped(rule);
            let given = reshaped.refund(Some(rule), window_us, at_us, units);
            if given > 0 {
                *self = Self::named(rule.name(), reshaped);
            }
            return given;
        }
        self.meter_mut().refund(rule, window_us, at_us, units)
    }

    /// Shows each heap block held.
    pub fn visit_heap(&mut self, to: &mut impl HeapVisitor) {
        match self {
            Self::Plain(_) => {}
            Self::Named(named) => to.boxed(named),
            Self::Held(held) => to.boxed(held),
        }
        self.meter_mut().visit_heap(to);
    }
}
