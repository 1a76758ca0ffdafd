//! The list of algorithms, and calls of any of them. To add an algorithm, write its folder and a line
//! in each list of this file; compile errors show where.
//!
//! What every check calls is dispatched by `match`, which the compiler inlines. Anything else is called
//! through the traits: a [`Meter`] dereferences to its [`Algorithm`], and [`Params`] to their
//! [`RuleText`].

use super::{
    Algorithm, BucketParams, Debt, Fixed, FixedParams, FixedWithPast, Interval, LeakyParams, Log,
    LogParams, Moment, OptionValues, Reading, Refill, RuleText, Slots, SlotsParams, Window,
    WindowParams,
};
use crate::heap::{HeapVisitor, address_of};
use crate::rule::{DisplayPeriod, Name, OwnOption, Rule, RuleError, named};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use core::ops::{Deref, DerefMut};

named! {
    /// The algorithms, without their options.
    #[derive(Default)]
    pub enum Kind {
        #[default]
        /// Keeps the times of the requests that were admitted in the last period.
        Log = "log",
        /// A sliding window counter.
        Window = "window",
        /// Windows that follow each other, by the calendar or from the first request.
        Fixed = "fixed",
        /// A token bucket.
        Bucket = "bucket",
        /// A queue that leaks evenly.
        Leaky = "leaky",
        /// Concurrent requests, each with a hold; no period.
        Slots = "slots",
    }
}

#[cfg(feature = "testing")]
impl Kind {
    /// The algorithms whose checks need no hold.
    pub const RATES: [Self; 5] = [Self::Log, Self::Window, Self::Fixed, Self::Bucket, Self::Leaky];
}

/// Each algorithm with its parameters, and what follows from that list.
macro_rules! algorithms {
    ($($kind:ident($params:ident)),+) => {
        /// An algorithm with its options.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Params { $($kind($params)),+ }

        impl Kind {
            /// The options that only this algorithm takes, in the order of the canonical text.
            pub(crate) fn options(self) -> &'static [OwnOption] {
                match self { $(Self::$kind => $params::options()),+ }
            }
        }

        impl Params {
            /// The parameters of a rule of this kind.
            pub(crate) fn read(kind: Kind, words: &OptionValues) -> Result<Self, RuleError> {
                match kind { $(Kind::$kind => $params::read(words).map(Self::$kind)),+ }
            }

            /// The parameters for one of several programs that share a limit. `part` computes one
            /// program's part of a number.
            #[must_use]
            pub(crate) fn divided(self, part: impl Fn(u32) -> u32) -> Self {
                match self { $(Self::$kind(it) => Self::$kind(it.divided(part))),+ }
            }

            /// The algorithm without its options.
            #[inline]
            pub(crate) const fn kind(self) -> Kind {
                match self { $(Self::$kind(_) => Kind::$kind),+ }
            }

            /// The algorithm, and one number for the options that shape its state. Two rules without
            /// a name share a state if their shapes and their periods are equal.
            #[inline]
            pub(crate) fn shape(self) -> (Kind, u32) {
                (self.kind(), match self { $(Self::$kind(it) => it.shape()),+ })
            }
        }

        impl Deref for Params {
            type Target = dyn RuleText;

            #[inline]
            fn deref(&self) -> &Self::Target {
                match self { $(Self::$kind(it) => it),+ }
            }
        }
    };
}

algorithms! {
    Log(LogParams), Window(WindowParams), Fixed(FixedParams),
    Bucket(BucketParams), Leaky(LeakyParams), Slots(SlotsParams)
}

/// 16 bytes: the algorithm, and a pointer to its allocation. The size of the allocation depends on
/// the algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meter {
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

/// Runs one expression on the meter of any algorithm.
macro_rules! each_meter {
    ($meter:expr, $it:ident => $do:expr) => {
        match $meter {
            Self::Log($it) => $do,
            Self::Window($it) => $do,
            Self::Fixed($it) => $do,
            Self::FixedWithPast($it) => $do,
            Self::Debt($it) => $do,
            Self::Interval($it) => $do,
            Self::Slots($it) => $do,
        }
    };
}
impl Deref for Meter {
    type Target = dyn Algorithm;

    fn deref(&self) -> &Self::Target {
        each_meter!(self, it => it.any())
    }
}

impl DerefMut for Meter {
    fn deref_mut(&mut self) -> &mut Self::Target {
        each_meter!(self, it => it.any_mut())
    }
}

impl Meter {
    /// A meter of a rule's shape with `units` consumed at `last_us`.
    pub fn of_units(rule: &Rule, last_us: u64, units: u64) -> Self {
        match rule.params() {
            Params::Log(_) => Self::Log(Log::default()),
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
            Params::Slots(_) => Self::Slots(Slots { limit: rule.limit() }),
        }
    }

    /// Converts the meter to the shape of a rule of its kind, with the rule's limit. A debt keeps
    /// its fraction of a unit, rounded up. Any other meter is rebuilt from its units that still
    /// count, as if all had been consumed at its last time.
    pub fn reshaped(&self, rule: &Rule) -> Self {
        let mut of_units = Self::of_units(rule, self.last_us(), self.consumed(self.last_us()));
        if let (Self::Debt(debt), Self::Debt(converted)) = (self, &mut of_units) {
            **converted = debt.reshaped(rule);
        }
        of_units
    }

    /// The first address to read, for a prefetch. Slots have no allocation.
    #[inline]
    pub fn address(&self) -> *const u8 {
        match self {
            Self::Log(log) => log.admitted().address(),
            Self::Window(window) => window.address(),
            Self::Fixed(fixed) => address_of(&**fixed),
            Self::FixedWithPast(past) => address_of(&**past),
            Self::Debt(debt) => address_of(&**debt),
            Self::Interval(interval) => address_of(&**interval),
            Self::Slots(_) => core::ptr::null(),
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

    /// When units were last added; [`NO_TIME_US`](super::NO_TIME_US) if it is empty.
    #[inline(always)]
    pub fn last_us(&self) -> u64 {
        each_meter!(self, it => it.last_us())
    }

    /// The length of its window.
    #[inline]
    pub fn period_us(&self) -> u64 {
        each_meter!(self, it => it.period_us())
    }

    /// True if it was made for a rule of this kind, whatever the rule's options.
    pub fn is_of_kind(&self, kind: Kind) -> bool {
        kind == self.params().kind()
    }

    /// True if `rule` can read this without reshaping.
    #[inline]
    pub fn has_shape_of(&self, rule: &Rule) -> bool {
        each_meter!(self, it => it.fits(rule))
    }

    /// What a rule of its shape reads at `at_us >= last_us`.
    #[inline(always)]
    pub fn read(&self, rule: &Rule, at_us: u64, cost: u32) -> Reading {
        each_meter!(self, it => it.read(rule, at_us, cost))
    }

    /// When nothing counts any more for a rule of its shape; 0 if nothing counts at `at_us`, which
    /// may be ahead of the clock.
    #[inline(always)]
    pub fn clears(&self, rule: &Rule, at_us: u64) -> Moment {
        let clears = each_meter!(self, it => it.clears(rule));
        if clears <= Moment::At(at_us) { Moment::At(0) } else { clears }
    }

    /// Until when a decision or a reader may need it. Past windows are kept for graphs, so they
    /// may be read after the end.
    #[inline]
    pub fn matters_until(&self) -> Moment {
        each_meter!(self, it => it.matters_until())
    }

    pub fn has_ended(&self, at_us: u64) -> bool {
        self.ends() <= Moment::At(at_us)
    }

    /// Consumes for a rule of its shape at `at_us >= last_us`; a cost of 0 changes nothing. A log then
    /// drops what only other rules need, so call this only if no other rule reads the log.
    #[inline(always)]
    pub fn consume(&mut self, rule: &Rule, at_us: u64, cost: u32) {
        debug_assert!(self.has_shape_of(rule), "a rule of another shape");
        if cost == 0 {
            return;
        }
        if rule.kept_windows() > 0 {
            self.keep_past();
        }
        each_meter!(self, it => it.consume(rule, at_us, cost));
    }

    /// The text of the rule that consumed last, as far as the meter stores it. A log stores no limit,
    /// so its text is only the algorithm and the period.
    pub fn rule(&self, name: Option<Name>) -> String {
        let (params, period_us) = (self.params(), self.period_us());
        match self.limit() {
            Some(limit) => Rule::new(params, limit, period_us).named(name).to_string(),
            None => format!("{}/{}", params.kind().name(), DisplayPeriod(period_us)),
        }
    }
}

#[cfg(feature = "saved")]
mod saved {
    use super::{Debt, Fixed, Interval, Log, Slots, Window};
    use crate::algorithm::{Saved, bucket, debt, fixed, log, slots, window};
    use crate::saved::DecodeError;
    use crate::saved::form::{UNKNOWN_KIND, put, take};
    use alloc::vec::Vec;

    impl super::Meter {
        /// Writes the code of its algorithm and its fields.
        pub fn save(&self, to: &mut Vec<u8>) {
            put(to, &each_meter!(self, it => it.code()));
            each_meter!(self, it => it.save(to));
        }

        /// Takes the code of an algorithm and its fields.
        pub fn load(from: &mut &[u8]) -> Result<Self, DecodeError> {
            match take(from)? {
                Log::CODE => log::saved::load(from),
                Window::CODE => window::saved::load(from),
                Fixed::CODE => fixed::saved::load(from),
                Debt::CODE => debt::saved::load(from),
                Interval::CODE => bucket::saved::load(from),
                Slots::CODE => slots::saved::load(from),
                _ => Err(UNKNOWN_KIND),
            }
        }
    }
}
