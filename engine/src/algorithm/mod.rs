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
pub(crate) mod slots;
pub(crate) mod state;
pub(crate) mod window;

pub(crate) use crate::exact::Uint48;
use crate::exact::millis_up;
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

/// When something happens: at a time, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Moment {
    /// Unix microseconds; in the past if it has happened.
    At(u64),
    Never,
}

impl Moment {
    /// Milliseconds from `now_us` until then, rounded up; -1: never.
    pub fn ms_after(self, now_us: u64) -> i64 {
        match self {
            Self::At(us) => i64::try_from(millis_up(us.saturating_sub(now_us))).unwrap_or(i64::MAX),
            Self::Never => -1,
        }
    }
}

/// A rule's view of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// When the state was read, see [`effective_time`].
    pub at_us: u64,
    /// Units that would be admitted now.
    pub remaining: u64,
    /// When the cost is admitted; `at_us` or earlier if it is admitted now.
    pub admits: Moment,
    /// When an admitted request may proceed if it has to queue (`leaky`), else 0.
    pub turn_us: u64,
}

impl Reading {
    /// What a rule reads from an untouched state.
    pub fn untouched(rule: &Rule, now_us: u64) -> Self {
        Self { at_us: now_us, remaining: rule.capacity(), admits: Moment::At(now_us), turn_us: 0 }
    }

    /// Corrects the reading of a state that ends at `end`, in the future. The state is empty from then
    /// on, so nothing waits longer.
    #[must_use]
    pub fn until(self, end: Moment) -> Self {
        let turn_us =
            if let Moment::At(end_us) = end { self.turn_us.min(end_us) } else { self.turn_us };
        Self { admits: self.admits.min(end), turn_us, ..self }
    }

    /// What a rule reads if `used` of `limit` units count. If the cost does not fit now, it is
    /// admitted at `later()`.
    #[inline(always)]
    pub fn of_used(
        at_us: u64,
        (used, limit): (u64, u64),
        cost: u32,
        later: impl FnOnce() -> Moment,
    ) -> Self {
        let fits = used.saturating_add(u64::from(cost)) <= limit;
        let admits = if fits { Moment::At(at_us) } else { later() };
        Self { at_us, remaining: limit.saturating_sub(used), admits, turn_us: 0 }
    }
}

/// The time of a state in which nothing is consumed. It lies ahead of no clock, so such a state is
/// read and consumed from at the clock's own time.
pub(crate) const NO_TIME_US: u64 = 0;

/// The time at which a state is read when the clock shows `now_us`: never before the state's own
/// time.
///
/// A state's time is that of its last consumption and never runs backwards; a state in which nothing
/// is consumed has [no time](NO_TIME_US). If the clock stepped
/// back by up to a window, the state is read at its own time until the clock has caught up. If it
/// stepped back by more, the rule does not wait but sees an untouched state: `None`.
pub(crate) fn effective_time(now_us: u64, last_us: u64, window_us: u64) -> Option<u64> {
    match last_us.checked_sub(now_us) {
        None | Some(0) => Some(now_us),
        Some(behind_us) if behind_us <= window_us => Some(last_us),
        Some(_) => None,
    }
}

/// The earliest time at which a pause or a hold of this length that ends at `end_us` is in effect.
///
/// A pause or hold starts one length before its end. The clock may then step back by up to one more
/// length: the pause or hold stays in effect until the clock reaches its end. After a longer step
/// back, the pause or hold is over.
pub(crate) const fn not_before_us(end_us: u64, length_us: u64) -> u64 {
    end_us.saturating_sub(length_us.saturating_mul(2))
}
