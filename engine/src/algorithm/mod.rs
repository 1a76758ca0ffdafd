//! The algorithms, a folder each, and the list of them.
//!
//! ```text
//! meter         the list, and calls of any of them
//! log           sliding log
//! window        sliding window counter
//! fixed         fixed window, by the calendar or from the first request
//! bucket        token bucket
//! leaky         leaky bucket
//! slots         requests that run at once
//! ```
//!
//! What they share:
//!
//! ```text
//! state         what a rule finds by its identity: a meter, and its name
//! reading       what a rule reads in a state at a time
//! debt          the state of `bucket` and `leaky`
//! open_window   the window now open, in `fixed` and in `bucket` with `refill=interval`
//! ```
//!
//! The state of an algorithm implements `Algorithm` and `Saved`. Its parameters implement `RuleText`.

pub(crate) mod bucket;
pub(crate) mod debt;
pub(crate) mod fixed;
pub(crate) mod leaky;
pub(crate) mod log;
pub(crate) mod meter;
pub(crate) mod open_window;
pub(crate) mod reading;
pub(crate) mod slots;
pub(crate) mod state;
pub(crate) mod window;

pub(crate) use crate::exact::Uint48;
use crate::rule::{OwnOption, Period, Rule, RuleError, bounded};
use alloc::{string::String, vec::Vec};
use core::fmt;

pub(crate) use bucket::{BucketParams, Interval, Refill};
pub(crate) use debt::Debt;
pub(crate) use fixed::{Anchor, Fixed, FixedParams, FixedWithPast};
pub(crate) use leaky::LeakyParams;
pub use log::LogReport;
pub(crate) use log::series::Take;
pub(crate) use log::series::needs::{Needs, PackedWindow};
pub(crate) use log::{Log, LogParams};
pub(crate) use meter::{Meter, Params};
pub(crate) use open_window::OpenWindow;
pub(crate) use reading::{Moment, NO_TIME_US, Reading, effective_time, not_before_us};
pub(crate) use slots::{Slots, SlotsParams};
pub(crate) use state::State;
pub use window::WindowReport;
pub(crate) use window::{Window, WindowParams};

/// The parts of a rule's text that its algorithm reads.
#[derive(Clone, Debug)]
pub(crate) struct OptionValues {
    pub limit: u32,
    /// `None` for slots.
    pub period: Option<Period>,
    /// The values of [`RuleText::options`], in their order.
    pub options: [Option<i128>; MOST_OWN],
}

/// The most options that only one algorithm takes.
pub(crate) const MOST_OWN: usize = 3;

impl OptionValues {
    /// The value of an option, or its default.
    pub fn of(&self, option: usize, default: i128) -> i128 {
        self.options.get(option).copied().flatten().unwrap_or(default)
    }

    /// The value of an option between its bounds.
    pub fn within<T: TryFrom<u64> + Into<u64>>(
        &self,
        (option, what): (usize, &OwnOption),
        default: u32,
        min: u32,
        max: T,
    ) -> Result<T, RuleError> {
        let given = u64::try_from(self.of(option, default.into())).unwrap_or(0);
        bounded(what.name, given, min, max)
    }
}

/// How an algorithm reads, writes and explains its parameters.
pub(crate) trait RuleText {
    /// The options that only this algorithm takes, in the order of the canonical text.
    fn options() -> &'static [OwnOption]
    where
        Self: Sized,
    {
        &[]
    }

    /// Reads the parameters and tests every bound.
    fn read(words: &OptionValues) -> Result<Self, RuleError>
    where
        Self: Sized;

    /// The options that shape the state, as a number.
    fn shape(&self) -> u32 {
        0
    }

    /// The most units that a rule with this limit can ever let pass at once. The limit must not be
    /// 0.
    fn capacity(&self, limit: u32) -> u32 {
        limit
    }

    /// The parameters for one of several programs that share a limit. `part` computes one program's
    /// part of a number.
    #[must_use]
    fn divided(self, _part: impl Fn(u32) -> u32) -> Self
    where
        Self: Sized,
    {
        self
    }

    /// Writes the period and the options of the canonical text.
    fn write(&self, rule: &Rule, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// What a rule means, its worst burst and its memory, in sentences.
    fn explain(&self, rule: &Rule) -> String;

    /// The most units that can pass within one period, if the limit is not 0.
    fn worst_in_period(&self, rule: &Rule) -> u64 {
        rule.limit().into()
    }

    /// What identifies a rule without a name, and what may change without changing its identity;
    /// `None` if all rules of a key read one state.
    fn identity(&self) -> Option<(&'static str, &'static str)>;
}

/// The state of an algorithm: what its rules consumed. A rule can read the state and consume from it
/// if both have the same shape and period.
pub(crate) trait Algorithm: 'static {
    /// The state, for calls whose algorithm is found at run time.
    fn any(&self) -> &dyn Algorithm
    where
        Self: Sized,
    {
        self
    }

    /// The state, for changes whose algorithm is found at run time.
    fn any_mut(&mut self) -> &mut dyn Algorithm
    where
        Self: Sized,
    {
        self
    }

    /// The parameters of the rule that consumed last.
    fn params(&self) -> Params;

    /// The limit of the rule that consumed last; a log stores none.
    fn limit(&self) -> Option<u32>;

    /// The length of its window.
    fn period_us(&self) -> u64;

    /// When units were last added; [`NO_TIME_US`] if nothing counts in it.
    fn last_us(&self) -> u64;

    /// True if a rule can read the state as it is: both have the same shape and period. A named rule
    /// with limit 0 reads any debt of its algorithm, even of another period. Such a rule does not reshape the state, because a reshaped state would no longer know when it
    /// ends.
    #[inline]
    fn fits(&self, rule: &Rule) -> bool {
        let params = self.params();
        let same = rule.period_us() == self.period_us() && rule.params().shape() == params.shape();
        same || rule.never_drains() && rule.name().is_some() && rule.kind() == params.kind()
    }

    /// True if it holds nothing that could matter.
    fn is_empty(&self) -> bool;

    /// Units that still count at `at_us >= last_us`, rounded up.
    fn consumed(&self, at_us: u64) -> u64;

    /// What a rule of its shape reads at `at_us >= last_us`.
    fn read(&self, rule: &Rule, at_us: u64, cost: u32) -> Reading;

    /// Consumes for a rule of its shape at `at_us >= last_us`.
    fn consume(&mut self, rule: &Rule, at_us: u64, cost: u32);

    /// When the state ends: nothing in it counts any more for the rule that consumed last, as the
    /// rule was then. A log ends when this holds for every rule that consumed from it. From then on
    /// every rule reads the state as empty.
    fn ends(&self) -> Moment;

    /// When nothing counts any more for a rule of its shape.
    fn clears(&self, _rule: &Rule) -> Moment {
        self.ends()
    }

    /// Until when a decision or a reader may need it.
    fn matters_until(&self) -> Moment {
        self.ends()
    }

    /// Gives back up to `units`, newest first, and returns how many. If none come back, changes nothing:
    /// a refund of 0 units is not propagated. A log gives back only entries of the last
    /// `window_us`.
    fn refund(&mut self, window_us: u64, at_us: u64, units: u32) -> u64;

    /// The part of a report that only this algorithm has. `at_us` is `None` if the state's last time
    /// lies too far ahead of the clock to count.
    fn details(&self, _at_us: Option<u64>) -> Option<Details> {
        None
    }

    // How holds correct what an algorithm counts. Overcharged units are given back *as if the check
    // had cost less*, except those that have come back by themselves.

    /// The size of one unit in [`level`](Self::level); `None` if a check always takes its full cost.
    fn unit(&self) -> Option<u64> {
        None
    }

    /// How full it is at `at_us >= last_us`, drained at `limit`.
    fn level(&self, _limit: u32, _at_us: u64) -> u128 {
        0
    }

    /// Lowers the level at its last time.
    fn take_off(&mut self, _level: u128) {}

    /// Gives back up to `units` of those consumed at `stamp_us`, as far as the state still has them,
    /// even if they do not count any more: they would count again for a clock that steps back.
    /// Returns how many came back; if none did, nothing has changed. `last_us` stays, unless a log
    /// loses its newest entry, or nothing is left.
    fn give_back(&mut self, _stamp_us: u64, _units: u64) -> u64 {
        0
    }

    /// Consumes at `at_us >= last_us` what a settled hold cost beyond its charge, even if that
    /// exceeds the limit.
    fn consume_excess(&mut self, excess: Excess, at_us: u64);
}

/// What a settled hold cost beyond its charge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Excess {
    pub units: u32,
    /// The limit of the rule that was charged.
    pub limit: u32,
    /// True if that rule was a shadow, which consumes nothing beyond the capacity.
    pub shadow: bool,
    /// What the log rules of the hold need.
    pub needs: Needs,
}

impl Excess {
    /// The most units that may count after the excess: a shadow stops at this capacity.
    pub fn most(&self, capacity: u64) -> u64 {
        match (self.shadow, self.limit) {
            (false, _) => u64::MAX,
            (true, 0) => 0,
            (true, _) => capacity,
        }
    }
}

/// Saves the fields of a state. A function `load` beside each implementation reads them back and
/// tests every bound.
#[cfg(feature = "saved")]
pub(crate) trait Saved {
    /// The algorithm's code in the saved form.
    const CODE: u32;

    fn code(&self) -> u32 {
        Self::CODE
    }

    fn save(&self, to: &mut Vec<u8>);
}

/// The part of a report that only some algorithms have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Details {
    /// The entries of a log.
    Log(LogReport),
    /// The counts of a sliding window counter.
    Window(WindowReport),
    /// The windows that `keep=` keeps and the present one, oldest first: each window's start, in
    /// Unix milliseconds, and its count.
    Windows(Vec<(i64, u64)>),
}
