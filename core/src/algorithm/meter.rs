//! Dispatches calls on a meter, or on a rule's parameters, to their algorithm.

use super::list::{each_meter, each_params};
use super::{Algorithm, Details, Excess, Held, Meter, Moment, Params, Reading, Words};
use crate::rule::{DisplayPeriod, Kind, Name, Rule};
use alloc::string::{String, ToString};
use core::fmt;

/// Functions that call the algorithm's own function of the same name.
macro_rules! forward {
    ($($(#[$attribute:meta])* fn $name:ident(&self $(, $arg:ident: $type:ty)*) -> $out:ty;)+) => {$(
        $(#[$attribute])*
        pub fn $name(&self $(, $arg: $type)*) -> $out {
            each_meter!(self, it => it.$name($($arg),*))
        }
    )+};
}

impl Meter {
    forward! {
        /// The first address to read, for a prefetch.
        #[inline]
        fn address(&self) -> *const u8;
        /// The parameters of the rule that consumed last.
        fn params(&self) -> Params;
        /// When units were last added; [`NO_TIME_US`](super::NO_TIME_US) if it is empty.
        #[inline(always)]
        fn last_us(&self) -> u64;
        /// The length of its window.
        #[inline]
        fn period_us(&self) -> u64;
        /// The length of a rule's window at the meter's last time. Calendar months differ in length.
        fn window_of(&self, rule: &Rule) -> u64;
        /// True if it holds nothing that could matter.
        fn is_empty(&self) -> bool;
        /// Units that still count at `at_us >= last_us`, rounded up.
        fn consumed(&self, at_us: u64) -> u64;
        /// What a rule of its shape reads at `at_us >= last_us`.
        #[inline(always)]
        fn read(&self, rule: &Rule, at_us: u64, cost: u32) -> Reading;
        /// When the meter ends: nothing in it counts any more for the rule that consumed last, as
        /// the rule was then. A log ends when this holds for every rule that consumed from it. From
        /// then on every rule reads the meter as empty.
        #[inline(always)]
        fn ends(&self) -> Moment;
        /// Until when a decision or a reader may need it. Past windows are kept for graphs, so they
        /// may be read after the end.
        #[inline]
        fn matters_until(&self) -> Moment;
        /// The size of one unit in [`level`](Self::level); `None` if each check adds its full cost, even
        /// one of a shadow rule.
        fn unit(&self) -> Option<u64>;
        /// How full it is at `at_us >= last_us`: the debt that is left after draining at `limit`, in
        /// fractions of a unit, or the tokens taken. 0 for meters without a [`unit`](Self::unit).
        fn level(&self, limit: u32, at_us: u64) -> u128;
        /// The part of a report that only this algorithm has. `at_us` is `None` if the meter's last
        /// time lies too far ahead of the clock to count.
        fn details(&self, at_us: Option<u64>) -> Option<Details>;
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

    /// When nothing counts any more for a rule of its shape; 0 if nothing counts at `at_us`, which
    /// may be ahead of the clock.
    #[inline(always)]
    pub fn clears(&self, rule: &Rule, at_us: u64) -> Moment {
        let clears = each_meter!(self, it => it.clears(rule));
        if clears <= Moment::At(at_us) { Moment::At(0) } else { clears }
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

    /// Gives back up to `units`, newest first, and returns how many. If none come back, changes nothing:
    /// a refund of 0 units is not propagated. A log gives back only entries within the
    /// window.
    pub fn refund(&mut self, window_us: u64, at_us: u64, units: u32) -> u64 {
        each_meter!(self, it => it.refund(window_us, at_us, units))
    }

    /// Lowers the level at its last time.
    pub fn take_off(&mut self, level: u128) {
        each_meter!(self, it => it.take_off(level));
    }

    /// Gives back up to `units` of those consumed at `stamp_us`, as far as it still has them, even if
    /// they do not count any more: they would count again for a clock that steps back. Returns how
    /// many came back; if none did, nothing has changed. `last_us` stays, unless a log loses its
    /// newest entry, or nothing is left.
    ///
    /// A debt gets nothing back: it does not know when its units were consumed.
    pub fn give_back(&mut self, stamp_us: u64, units: u64) -> u64 {
        each_meter!(self, it => it.give_back(stamp_us, units))
    }

    /// Consumes what a settled hold cost beyond its charge, even if that exceeds the limit.
    pub fn consume_excess(&mut self, excess: Excess, at_us: u64) {
        if excess.units > 0 {
            let at_us = at_us.max(self.last_us());
            each_meter!(self, it => it.consume_excess(excess, at_us));
        }
    }

    /// The text of the rule that consumed last, as far as the meter stores it. A log stores no limit,
    /// so its text is only the algorithm and the period.
    pub fn rule(&self, name: Option<Name>) -> String {
        let (params, period_us) = (self.params(), self.period_us());
        match each_meter!(self, it => it.limit()) {
            Some(limit) => Rule::new(params, limit, period_us).named(name).to_string(),
            None => format!("{}/{}", params.kind().name(), DisplayPeriod(period_us)),
        }
    }
}

impl Params {
    /// The algorithm, and one number for the options that shape its state. Two rules without a name
    /// share a state if their shapes and their periods are equal.
    #[inline]
    pub(crate) fn shape(self) -> (Kind, u32) {
        (self.kind(), each_params!(self, it => it.shape()))
    }

    /// The most units that a rule with this limit can ever let pass at once. The limit must not be
    /// 0.
    #[inline]
    pub(crate) fn capacity(self, limit: u32) -> u32 {
        each_params!(self, it => it.capacity(limit))
    }

    /// Writes the period and the options of the canonical text.
    pub(crate) fn write(self, rule: &Rule, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        each_params!(self, it => it.write(rule, f))
    }

    /// What a rule means, its worst burst and its memory.
    pub(crate) fn explain(self, rule: &Rule) -> String {
        each_params!(self, it => it.explain(rule))
    }

    /// The most units that can pass within one period.
    pub(crate) fn worst_in_period(self, rule: &Rule) -> u64 {
        each_params!(self, it => it.worst_in_period(rule))
    }

    /// What identifies a rule without a name, and what may change without changing its identity.
    pub(crate) fn identity(self) -> Option<(&'static str, &'static str)> {
        each_params!(self, it => it.identity())
    }
}
