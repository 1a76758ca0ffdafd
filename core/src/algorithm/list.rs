//! The list of algorithms. To add an algorithm, write its folder and a line in each part of this
//! file; compile errors show where.

use super::{
    Algorithm, BucketParams, Debt, Fixed, FixedParams, FixedWithPast, Interval, LeakyParams, Log,
    LogParams, OwnWords, Refill, Slots, SlotsParams, Window, WindowParams, Words,
};
use crate::heap::HeapVisitor;
use crate::rule::{OwnOption, Rule, RuleError, named};
use alloc::boxed::Box;

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

#[cfg(any(test, feature = "testing"))]
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
            pub(crate) const fn options(self) -> &'static [OwnOption] {
                match self { $(Self::$kind => $params::OPTIONS),+ }
            }
        }

        impl Params {
            /// The parameters of a rule of this kind.
            pub(crate) fn read(kind: Kind, words: &OwnWords) -> Result<Self, RuleError> {
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
        }
    };
}

algorithms! {
    Log(LogParams), Window(WindowParams), Fixed(FixedParams),
    Bucket(BucketParams), Leaky(LeakyParams), Slots(SlotsParams)
}

/// Runs one expression on the parameters of any algorithm.
macro_rules! each_params {
    ($params:expr, $it:ident => $do:expr) => {
        match $params {
            Params::Log($it) => $do,
            Params::Window($it) => $do,
            Params::Fixed($it) => $do,
            Params::Bucket($it) => $do,
            Params::Leaky($it) => $do,
            Params::Slots($it) => $do,
        }
    };
}
pub(super) use each_params;

/// 16 bytes: the algorithm, and a pointer to its allocation. The size of the allocation depends on
/// the algorithm.
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
pub(super) use each_meter;

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

    /// Visits each heap allocation.
    pub fn visit_heap(&mut self, to: &mut impl HeapVisitor) {
        match self {
            Self::Fixed(fixed) => to.boxed(fixed),
            Self::FixedWithPast(past) => to.boxed(past),
            Self::Debt(debt) => to.boxed(debt),
            Self::Interval(interval) => to.boxed(interval),
            Self::Log(_) | Self::Window(_) | Self::Slots(_) => {}
        }
        each_meter!(self, it => it.visit_heap(to));
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
