//! What one rule has consumed, in the form its algorithm keeps it.
//!
//! A state outlives the rule it was made for: the next call may bring another
//! limit, and under a name another period, resolution or algorithm. A state of
//! another algorithm is dropped. One whose shape alone changed is carried over
//! as the units that still counted, rounded up, consumed when the last of them
//! was.

use super::debt::Debt;
use super::fixed::{self, Fixed, Kept};
use super::interval::Interval;
use super::log::Log;
use super::reading::{Moment, Reading, effective_time};
use super::window::Window;
use crate::limit::heap::HeapVisitor;
use crate::limit::series::needs::Needs;
use crate::rule::{Algorithm, Kind, MAX_NAME, Name, Refill, Rule, THROTTLE};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::{ptr, slice};

/// 16 bytes: which kind it is, and where. A block for each is no larger than
/// that kind needs, and a small one lies beside the server's own of that size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Log(Log),
    Window(Window),
    Fixed(Box<Fixed>),
    Kept(Box<Kept>),
    /// One of the name `throttle` says so itself: the buckets of `RL.THROTTLE`,
    /// which have nothing else, shall not need two blocks.
    Debt(Box<Debt>),
    Interval(Box<Interval>),
    Named(Box<Named>),
}

#[inline]
pub(crate) fn block_of<T>(block: &T) -> *const [u8] {
    ptr::slice_from_raw_parts(ptr::from_ref(block).cast(), size_of::<T>())
}

/// A state that a rule finds by its name. 48 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    name: [u8; MAX_NAME],
    /// Neither a log, which belongs to the key, nor named itself.
    pub state: State,
}

impl State {
    /// An empty state for a rule, named if the rule is: but the log is the
    /// key's, whatever the names of its rules.
    pub fn new(rule: &Rule, now_us: u64) -> Self {
        let name = rule.name().filter(|_| rule.kind() != Kind::Log);
        Self::named(name, Self::of_units(rule, now_us, 0))
    }

    /// A plain state under a name, if there is one.
    pub fn named(name: Option<&Name>, plain: Self) -> Self {
        match (name, plain) {
            (None, plain) => plain,
            (Some(name), Self::Debt(mut debt)) if name.is_throttle() && !debt.is_leaky() => {
                debt.room = debt.room.of_throttle();
                Self::Debt(debt)
            }
            (Some(name), state) => Self::Named(Box::new(Named { name: *name.padded(), state })),
        }
    }

    /// The name it was given.
    pub fn name(&self) -> Option<Name> {
        match self {
            Self::Named(named) => Name::of_padded(named.name),
            Self::Debt(debt) if debt.is_throttle() => Name::new(THROTTLE.as_bytes()),
            _ => None,
        }
    }

    fn is_named_by(&self, rule: &Rule) -> bool {
        match self {
            Self::Named(named) => rule.name().is_some_and(|name| *name.padded() == named.name),
            Self::Debt(debt) => debt.is_throttle() && rule.name().is_some_and(Name::is_throttle),
            _ => false,
        }
    }

    fn is_plain(&self) -> bool {
        match self {
            Self::Named(_) => false,
            Self::Debt(debt) => !debt.is_throttle(),
            _ => true,
        }
    }

    /// The plain state in which a rule has units consumed at a time.
    fn of_units(rule: &Rule, last_us: u64, units: u64) -> Self {
        match rule.algorithm() {
            Algorithm::Log => Self::Log(Log::default()),
            Algorithm::Window { .. } => Self::Window(Window::of_units(rule, last_us, units)),
            Algorithm::Fixed { .. } => Self::Fixed(Box::new(Fixed::of_units(rule, last_us, units))),
            Algorithm::Bucket { refill: Refill::Interval, .. } => {
                Self::Interval(Box::new(Interval::of_units(rule, last_us, units)))
            }
            Algorithm::Bucket { .. } | Algorithm::Leaky { .. } => {
                Self::Debt(Box::new(Debt::of_units(rule, last_us, units)))
            }
        }
    }

    /// Where it lies, as far as one can say without looking there.
    #[inline]
    pub fn block(&self) -> *const [u8] {
        match self {
            Self::Log(log) => log.block(),
            Self::Window(window) => window.block(),
            Self::Fixed(state) => block_of(&**state),
            Self::Kept(state) => block_of(&**state),
            Self::Debt(state) => block_of(&**state),
            Self::Interval(state) => block_of(&**state),
            Self::Named(state) => block_of(&**state),
        }
    }

    /// Without its name.
    pub fn plain(&self) -> &Self {
        match self {
            Self::Named(named) => &named.state,
            state => state,
        }
    }

    pub fn plain_mut(&mut self) -> &mut Self {
        match self {
            Self::Named(named) => &mut named.state,
            state => state,
        }
    }

    fn kind(&self) -> Kind {
        match self.plain() {
            Self::Log(_) => Kind::Log,
            Self::Window(_) => Kind::Window,
            Self::Fixed(_) | Self::Kept(_) => Kind::Fixed,
            Self::Debt(debt) if debt.is_leaky() => Kind::Leaky,
            Self::Debt(_) | Self::Interval(_) | Self::Named(_) => Kind::Bucket,
        }
    }

    /// Whether this is the state a rule looks at.
    #[inline]
    pub fn belongs_to(&self, rule: &Rule) -> bool {
        match self {
            Self::Log(_) => rule.kind() == Kind::Log,
            state if state.is_plain() => rule.name().is_none() && state.has_shape_of(rule),
            state => rule.kind() != Kind::Log && state.is_named_by(rule),
        }
    }

    /// Whether the state's name is now a rule's of another algorithm.
    pub fn lost_its_name_to(&self, rule: &Rule) -> bool {
        self.is_named_by(rule) && rule.kind() != self.kind()
    }

    #[inline]
    fn has_shape_of(&self, rule: &Rule) -> bool {
        match (self, rule.algorithm()) {
            (Self::Log(_), Algorithm::Log) => true,
            (Self::Window(window), Algorithm::Window { res }) => {
                window.period_us() == rule.period_us() && window.res() == u64::from(res)
            }
            (Self::Fixed(fixed), Algorithm::Fixed { .. }) => fixed.has_shape_of(rule),
            (Self::Kept(kept), Algorithm::Fixed { .. }) => kept.fixed.has_shape_of(rule),
            (Self::Interval(interval), Algorithm::Bucket { refill: Refill::Interval, .. }) => {
                interval.period_us() == rule.period_us()
            }
            (Self::Debt(debt), Algorithm::Bucket { refill: Refill::Even, .. }) => {
                !debt.is_leaky() && debt.period_us() == rule.period_us()
            }
            (Self::Debt(debt), Algorithm::Leaky { .. }) => {
                debt.is_leaky() && debt.period_us() == rule.period_us()
            }
            _ => false,
        }
    }

    /// Whether a rule whose state it is sees it as it is.
    #[inline]
    fn suits(&self, rule: &Rule) -> bool {
        // Without a name, it is the rule's because it has its shape.
        debug_assert!(!self.is_plain() || self.has_shape_of(rule), "another rule's state");
        self.is_plain() || self.plain().has_shape_of(rule)
    }

    /// Whether this is the state a rule looks at, and needs no other shape.
    #[inline(always)]
    pub fn is_just_of(&self, rule: &Rule) -> bool {
        self.belongs_to(rule) && self.suits(rule)
    }

    /// The state as a rule sees it whose state it is.
    fn seen_by(&self, rule: &Rule) -> Option<Cow<'_, Self>> {
        let plain = self.plain();
        if self.suits(rule) {
            Some(Cow::Borrowed(plain))
        } else if plain.kind() == rule.kind() {
            Some(Cow::Owned(plain.reshaped(rule)))
        } else {
            None
        }
    }

    fn reshaped(&self, rule: &Rule) -> Self {
        match (self, rule.algorithm()) {
            (
                Self::Debt(debt),
                Algorithm::Bucket { refill: Refill::Even, .. } | Algorithm::Leaky { .. },
            ) => Self::Debt(Box::new(debt.with_period(rule.period_us()))),
            _ => Self::of_units(rule, self.last_us(), self.consumed(self.last_us())),
        }
    }

    /// Units that still count at a time not before `last_us`, rounded up.
    pub fn consumed(&self, at_us: u64) -> u64 {
        match self.plain() {
            Self::Log(log) => log.consumed(at_us),
            Self::Window(window) => window.consumed(at_us),
            Self::Fixed(fixed) => fixed.count_at(at_us),
            Self::Kept(kept) => kept.fixed.count_at(at_us),
            Self::Debt(debt) => debt.consumed(at_us),
            Self::Interval(interval) => u64::from(interval.used_at(at_us)),
            Self::Named(_) => 0,
        }
    }

    /// The log, if it is one.
    pub fn log_part(&self) -> Option<&Log> {
        match self {
            Self::Log(log) => Some(log),
            _ => None,
        }
    }

    pub fn log_part_mut(&mut self) -> Option<&mut Log> {
        match self {
            Self::Log(log) => Some(log),
            _ => None,
        }
    }

    /// When it was last added to.
    #[inline]
    pub fn last_us(&self) -> u64 {
        match self.plain() {
            Self::Log(log) => log.last_us(),
            Self::Window(window) => window.last_us(),
            Self::Fixed(fixed) => fixed.last_us(),
            Self::Kept(kept) => kept.fixed.last_us(),
            Self::Debt(debt) => debt.last_us,
            Self::Interval(interval) => interval.last_us(),
            Self::Named(_) => 0,
        }
    }

    /// Nothing in it any more that could matter.
    pub fn is_empty(&self) -> bool {
        match self.plain() {
            Self::Log(log) => log.is_empty(),
            Self::Window(window) => window.is_empty(),
            Self::Fixed(fixed) => fixed.count() == 0,
            Self::Kept(kept) => kept.fixed.count() == 0 && kept.past.is_empty(),
            Self::Debt(debt) => debt.is_empty(),
            Self::Interval(interval) => interval.is_empty(),
            Self::Named(_) => true,
        }
    }

    /// What a rule reads here; `None` if it sees an untouched state. The
    /// window is how far the clock may have stepped back.
    pub fn read(&self, rule: &Rule, window_us: u64, now_us: u64, cost: u32) -> Option<Reading> {
        let at_us = effective_time(now_us, self.last_us(), window_us)?;
        self.seen_by(rule)?.read_at(rule, at_us, cost)
    }

    /// The same of a plain state that has the rule's shape, at the time it
    /// lives in.
    #[inline(always)]
    pub fn read_at(&self, rule: &Rule, at_us: u64, cost: u32) -> Option<Reading> {
        let reading = match self {
            Self::Log(log) => log.read(rule, at_us, cost),
            Self::Window(window) => window.read(rule, at_us, cost),
            Self::Fixed(fixed) => fixed.read(rule, at_us, cost),
            Self::Kept(kept) => kept.fixed.read(rule, at_us, cost),
            Self::Debt(debt) => debt.read(rule, at_us, cost),
            Self::Interval(interval) => interval.read(rule, at_us, cost),
            Self::Named(_) => return None,
        };
        Some(reading)
    }

    /// When a rule has nothing consumed here any more.
    pub fn clears(&self, rule: &Rule, window_us: u64, now_us: u64) -> Moment {
        let standing = effective_time(now_us, self.last_us(), window_us);
        let (Some(at_us), Some(state)) = (standing, self.seen_by(rule)) else {
            return Moment::At(0);
        };
        state.clears_at(rule, at_us)
    }

    /// The same of a plain state that has the rule's shape, at the time it
    /// lives in.
    #[inline(always)]
    pub fn clears_at(&self, rule: &Rule, at_us: u64) -> Moment {
        let clears = match self {
            Self::Log(log) => log.clears(rule),
            Self::Debt(debt) => debt.clears(rule.limit()),
            state => state.clears_by_itself(),
        };
        // What is over in a state that stands still, is over now.
        if clears <= Moment::At(at_us) { Moment::At(0) } else { clears }
    }

    /// When it clears at the limit it was consumed under.
    pub fn clears_by_itself(&self) -> Moment {
        match self.plain() {
            Self::Log(log) => Moment::At(log.matters_until_us()),
            Self::Window(window) => window.clears(),
            Self::Fixed(fixed) => fixed.clears(),
            Self::Kept(kept) => kept.fixed.clears(),
            Self::Debt(debt) => debt.clears(debt.limit),
            Self::Interval(interval) => interval.clears(),
            Self::Named(_) => Moment::At(0),
        }
    }

    /// Until when it matters, to a decision or to a reader.
    pub fn matters_until(&self) -> Moment {
        match self.plain() {
            Self::Kept(kept) => Moment::At(kept.matters_until_us()),
            state => state.clears_by_itself(),
        }
    }

    /// The length of its window.
    pub fn period_us(&self) -> u64 {
        match self.plain() {
            Self::Log(log) => log.window_us(),
            Self::Window(window) => window.period_us(),
            Self::Fixed(fixed) => fixed.period_us(),
            Self::Kept(kept) => kept.fixed.period_us(),
            Self::Debt(debt) => debt.period_us(),
            Self::Interval(interval) => interval.period_us(),
            Self::Named(_) => 0,
        }
    }

    /// Consumes for the rule whose state this is, unless that is a log rule.
    pub fn consume(&mut self, rule: &Rule, now_us: u64, cost: u32) {
        let at_us = match effective_time(now_us, self.last_us(), rule.period_us()) {
            Some(at_us) if self.kind() == rule.kind() => at_us,
            _ => {
                *self = Self::new(rule, now_us);
                now_us
            }
        };
        if !self.plain().has_shape_of(rule) {
            *self = Self::named(rule.name(), self.plain().reshaped(rule));
        }
        self.plain_mut().consume_at(rule, at_us, cost);
    }

    /// The same of a plain state that has the rule's shape, at the time it
    /// lives in; also of a log that no other rule reads.
    #[inline(always)]
    pub fn consume_at(&mut self, rule: &Rule, at_us: u64, cost: u32) {
        match self {
            Self::Window(window) => window.consume(rule, at_us, cost),
            Self::Fixed(fixed) if fixed::keep(rule) > 0 => {
                let mut kept = Kept { fixed: **fixed, keep: 0, past: VecDeque::new() };
                kept.consume(rule, at_us, cost);
                *self = Self::Kept(Box::new(kept));
            }
            Self::Fixed(fixed) => {
                fixed.consume(rule, at_us, cost);
            }
            Self::Kept(kept) => kept.consume(rule, at_us, cost),
            Self::Debt(debt) => debt.consume(rule, at_us, cost),
            Self::Interval(interval) => interval.consume(rule, at_us, cost),
            Self::Log(log) => log.consume(Needs::of(slice::from_ref(rule)), at_us, cost, false),
            Self::Named(_) => {}
        }
    }

    /// Logs a request for the log rules of a check.
    pub fn log(&mut self, needs: Needs, now_us: u64, cost: u32, denied: bool) {
        let Some(log) = self.log_part_mut() else { return };
        let at_us = effective_time(now_us, log.last_us(), needs.window_us).unwrap_or_else(|| {
            log.step_back(needs.window_us, now_us);
            now_us
        });
        log.consume(needs, at_us, cost, denied);
    }

    /// Gives units back, newest first; how many there were. Without a rule, as
    /// the rule that consumed last would see it. The window is how far the
    /// clock may have stepped back, and a log is looked at.
    pub fn refund(&mut self, rule: Option<&Rule>, window_us: u64, now_us: u64, units: u32) -> u64 {
        let Some(at_us) = effective_time(now_us, self.last_us(), window_us) else { return 0 };
        if let Some(rule) = rule
            && !self.plain().has_shape_of(rule)
        {
            if self.kind() != rule.kind() {
                return 0;
            }
            let mut reshaped = self.plain().reshaped(rule);
            let given = reshaped.give_back(Some(rule), window_us, at_us, units);
            if given > 0 {
                *self = Self::named(rule.name(), reshaped);
            }
            return given;
        }
        self.plain_mut().give_back(rule, window_us, at_us, units)
    }

    /// Nothing changes if nothing is given back: a refund is replicated by what it gave.
    fn give_back(&mut self, rule: Option<&Rule>, window_us: u64, at_us: u64, units: u32) -> u64 {
        match self {
            Self::Log(log) => log.refund(at_us.checked_sub(window_us), units),
            Self::Window(window) => window.refund(at_us, units),
            Self::Fixed(fixed) => fixed.refund(at_us, units),
            Self::Kept(kept) => kept.fixed.refund(at_us, units),
            Self::Debt(debt) => debt.refund(rule.map_or(debt.limit, Rule::limit), at_us, units),
            Self::Interval(interval) => interval.refund(at_us, units),
            Self::Named(_) => 0,
        }
    }

    /// Shows each heap block held.
    pub fn visit_heap(&mut self, to: &mut impl HeapVisitor) {
        match self {
            Self::Log(log) => log.visit_heap(to),
            Self::Window(window) => window.visit_heap(to),
            Self::Fixed(fixed) => to.boxed(fixed),
            Self::Kept(kept) => {
                to.boxed(kept);
                to.ring(&mut kept.past);
            }
            Self::Debt(debt) => to.boxed(debt),
            Self::Interval(interval) => to.boxed(interval),
            Self::Named(named) => {
                to.boxed(named);
                named.state.visit_heap(to);
            }
        }
    }
}
