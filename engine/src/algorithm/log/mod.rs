//! Sliding log: exact.
//!
//! ```text
//!              t-W                      t
//!  --x---x------(---x-----x--x-----x----]      admits c  iff
//!               |<-------- W --------->|       units with time > t-W, plus c, <= L
//! ```
//!
//! A key has one log, which every log rule reads through its own window, so four rules take one
//! timestamp per request. The wait needs no search: `c` more units are admitted once the `L-c+1`th
//! newest unit leaves the window, `W` after its time.
//!
//! Charged denials (`count=all`) are stored apart, because only `count=all` rules count them. A client
//! that keeps retrying must not evict admitted requests that other rules need.
//!
//! The log keeps what the rules of the latest check and of earlier ones need: see `needs`. While a
//! hold may give units back, admitted requests are evicted by age only.

#[cfg(feature = "testing")]
pub mod naive;
#[cfg(feature = "saved")]
pub mod saved;
pub mod series;
mod words;

use self::series::needs::{MAX_HELD, MAX_RETAINED_UNITS, PastNeeds, Retention};
use self::series::{Series, needs};
use super::{Algorithm, Details, Excess, Moment, Needs, Params, Reading, Take, effective_time};
use crate::heap::HeapVisitor;
use crate::rule::{Kind, MAX_UNITS, MS_US, Rule};
use core::slice;
pub use words::LogParams;

#[derive(Clone, Debug, Default, Eq)]
pub struct Log {
    /// Admitted requests. Beside them, the series stores the needs of the check that consumed last,
    /// the charged denials and the needs of earlier checks.
    admitted: Series,
}

/// What an entry of a log stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumption {
    Admitted,
    /// A charged denial.
    Denied,
}

/// Which admitted requests a log evicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// Those that no rule can see any more.
    ByNeed,
    /// Only old ones, because a live hold may give units back to the log.
    ByAge,
}

impl PartialEq for Log {
    fn eq(&self, other: &Self) -> bool {
        self.admitted == other.admitted
            && self.charged() == other.charged()
            && self.admitted.needs() == other.admitted.needs()
            && self.past_needs() == other.past_needs()
    }
}

impl Log {
    /// A log of these series, each oldest first.
    #[cfg(feature = "saved")]
    pub fn of(
        mut admitted: Series,
        charged: Series,
        needs: Needs,
        past: alloc::vec::Vec<PastNeeds>,
    ) -> Self {
        admitted.set_needs(needs.pack());
        let extras = admitted.extras_or_new();
        (extras.charged, extras.past) = (Some(charged), past);
        let mut log = Self { admitted };
        log.tidy();
        log
    }

    pub fn admitted(&self) -> &Series {
        &self.admitted
    }

    /// Visits each heap allocation.
    pub fn visit_heap(&mut self, to: &mut impl HeapVisitor) {
        self.admitted.visit_heap(to);
    }

    /// Charged denials.
    pub fn charged(&self) -> Option<&Series> {
        self.admitted.extras()?.charged.as_ref()
    }

    fn charged_mut(&mut self) -> Option<&mut Series> {
        self.admitted.extras_mut()?.charged.as_mut()
    }

    /// The needs of the check that consumed last.
    pub fn needs(&self) -> Needs {
        self.admitted.needs().unpack()
    }

    /// The needs of earlier checks.
    pub fn past_needs(&self) -> &[PastNeeds] {
        self.admitted.extras().map_or(&[], |extras| &extras.past)
    }

    /// The longest window that the log keeps.
    pub fn window_us(&self) -> u64 {
        let window_us = self.needs().window_us;
        let past = self.past_needs().iter().map(|past| past.needs.unpack().window_us);
        past.fold(window_us, u64::max)
    }

    /// The number of entries, charged denials included.
    pub fn len(&self) -> usize {
        let entries = self.admitted.len().saturating_add(self.charged().map_or(0, Series::len));
        usize::try_from(entries).unwrap_or(usize::MAX)
    }

    /// The charged denials, if `rule` counts them.
    fn charged_for(&self, rule: &Rule) -> Option<&Series> {
        if rule.counts_all() { self.charged() } else { None }
    }

    /// True if the rule's window is longer than the windows of the check that consumed last. The log
    /// may then end while the rule's window still has entries.
    #[inline(always)]
    pub fn may_end_before(&self, rule: &Rule) -> bool {
        rule.period_us() > self.needs().window_us
    }

    /// What a rule reads at `at_us >= last_us`. Inlined where several rules read the log.
    #[inline(always)]
    pub fn read_inline(&self, rule: &Rule, at_us: u64, cost: u32) -> Reading {
        if self.may_end_before(rule) {
            return self.read_until_end(rule, at_us, cost);
        }
        self.read_in_window(rule, at_us, cost)
    }

    #[cold]
    fn read_until_end(&self, rule: &Rule, at_us: u64, cost: u32) -> Reading {
        let end_us = self.matters_until_us();
        if end_us <= at_us {
            return Reading::untouched(rule, at_us);
        }
        self.read_in_window(rule, at_us, cost).until(Moment::At(end_us))
    }

    #[inline(always)]
    fn read_in_window(&self, rule: &Rule, at_us: u64, cost: u32) -> Reading {
        let limit = u64::from(rule.limit());
        let charged = self.charged_for(rule);
        let out_us = at_us.checked_sub(rule.period_us());
        let used = self
            .admitted
            .units_after(out_us)
            .saturating_add(charged.map_or(0, |series| series.units_after(out_us)));
        Reading::of_used(at_us, (used, limit), cost, || {
            if cost == 0 && self.most_units() <= limit {
                return Moment::At(at_us);
            }
            let stays = limit.saturating_sub(u64::from(cost));
            let leaves_us = newest_unit_us(&self.admitted, charged, stays.saturating_add(1));
            Moment::At(leaves_us.unwrap_or(at_us).saturating_add(rule.period_us()))
        })
    }

    /// The most units that the log counts. The log may retain more for holds. A cost of 0 fits as
    /// long as the limit is at least this number, even if more units are retained.
    #[cold]
    fn most_units(&self) -> u64 {
        Retention::of(self.needs(), self.past_needs()).units
    }

    /// Units of charged denials in the longest window at `at_us`.
    fn denied(&self, at_us: u64) -> u64 {
        let out_us = at_us.checked_sub(self.window_us());
        self.charged().map_or(0, |series| series.units_after(out_us))
    }

    /// Adds an admitted request to a log on which there is no hold.
    #[inline]
    pub fn admit(&mut self, needs: Needs, at_us: u64, cost: u32) {
        self.add(needs, at_us, cost, Consumption::Admitted, Eviction::ByNeed);
    }

    /// Adds a request, and drops entries that no rule can see any more.
    #[inline]
    pub fn add(
        &mut self,
        needs: Needs,
        at_us: u64,
        cost: u32,
        consumption: Consumption,
        eviction: Eviction,
    ) {
        let kept = self.remember(needs, at_us);
        if let Some(out_us) = at_us.checked_sub(kept.window_us) {
            self.admitted.drop_until(out_us);
            if let Some(charged) = self.charged_mut() {
                charged.drop_until(out_us);
            }
        }
        let series = match consumption {
            Consumption::Admitted => &mut self.admitted,
            Consumption::Denied => self.admitted.extras_or_new().charged.get_or_insert_default(),
        };
        if eviction == Eviction::ByAge {
            let entries = kept.units.max(kept.admitted_units).saturating_add(MAX_HELD);
            series.keep_newest_entries(entries.saturating_sub(1));
            series.keep_newest(MAX_RETAINED_UNITS.saturating_sub(cost.into()));
        }
        series.push(at_us, cost);
        if eviction == Eviction::ByNeed {
            self.keep_newest(kept);
        } else if let Some(charged) = self.charged_mut() {
            // Holds never give back denials, so the denials kept are only those that rules need.
            charged.keep_newest(kept.units);
        }
        self.tidy();
    }

    /// Remembers the needs of this check, and returns how much to keep for it and for earlier
    /// checks. Drops everything if the log has ended.
    #[inline]
    fn remember(&mut self, latest: Needs, at_us: u64) -> Retention {
        let packed = latest.pack();
        if packed != self.admitted.needs() || !self.past_needs().is_empty() {
            self.remember_others(latest, at_us);
            self.admitted.set_needs(packed);
        }
        Retention::of(latest, self.past_needs())
    }

    #[cold]
    fn remember_others(&mut self, latest: Needs, at_us: u64) {
        if self.matters_until_us() <= at_us {
            self.clear();
        } else if !self.is_empty() {
            let needs = self.admitted.needs();
            let previous = PastNeeds { needs, until_us: self.latest_until_us() };
            needs::remember(&mut self.admitted.extras_or_new().past, previous, latest, at_us);
        }
    }

    /// Called before a check consumes if the clock stepped back by more than `window_us`, the
    /// check's longest window. If another check or a live hold (`held_us`) still needs the entries
    /// for a longer window, they move back to a time just outside this check's window, and that time
    /// is returned. Otherwise the log drops them.
    pub fn step_back(&mut self, window_us: u64, held_us: u64, now_us: u64) -> Option<u64> {
        let longest_us = self.window_us().max(held_us);
        let needed = effective_time(now_us, self.last_us(), longest_us).is_some();
        let latest_us = now_us.checked_sub(window_us).filter(|_| needed);
        match latest_us {
            Some(latest_us) => self.pull_back(latest_us),
            None => self.clear(),
        }
        latest_us
    }

    /// Moves entries later than `latest_us` to that time.
    fn pull_back(&mut self, latest_us: u64) {
        self.admitted.pull_back(latest_us);
        let Some(extras) = self.admitted.extras_mut() else { return };
        if let Some(charged) = &mut extras.charged {
            charged.pull_back(latest_us);
        }
        for past in &mut extras.past {
            let window_us = past.needs.unpack().window_us;
            past.until_us = past.until_us.min(latest_us.saturating_add(window_us));
        }
    }

    #[inline(always)]
    fn keep_newest(&mut self, kept: Retention) {
        let Some(charged) = self.charged() else {
            return self.admitted.keep_newest(kept.units);
        };
        // Keep the newest units of both series together, and enough admitted ones for rules that
        // count no denials.
        let Some(cut_us) = newest_unit_us(&self.admitted, Some(charged), kept.units) else {
            if kept.units == 0 {
                self.clear();
            }
            return;
        };
        let admitted_after = self.admitted.units_after(Some(cut_us));
        let charged_upto = charged.units_after(cut_us.checked_sub(1));
        let charged_kept = charged_upto.min(kept.units.saturating_sub(admitted_after));
        let admitted_kept = kept.units.saturating_sub(charged_kept).max(kept.admitted_units);
        self.admitted.keep_newest(admitted_kept);
        if let Some(charged) = self.charged_mut() {
            charged.keep_newest(charged_kept);
        }
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Called after entries were dropped or taken out. A log without entries forgets what checks need:
    /// it would last until the end of their windows.
    #[inline]
    fn tidy(&mut self) {
        if self.is_empty() {
            self.clear();
        } else {
            self.admitted.tidy();
        }
    }

    /// Gives back, in one pass, units that were admitted at many times.
    pub fn give_back_each(&mut self, returned: &mut [Take]) {
        self.admitted.take_each(returned);
        self.tidy();
    }

    /// When the newest entry leaves the longest window of the check that consumed last.
    fn latest_until_us(&self) -> u64 {
        self.last_us().saturating_add(self.needs().window_us)
    }

    /// When no rule that consumed can see an entry any more.
    pub fn matters_until_us(&self) -> u64 {
        let latest_us = self.latest_until_us();
        self.past_needs().iter().fold(latest_us, |until_us, past| until_us.max(past.until_us))
    }
}

impl Algorithm for Log {
    fn params(&self) -> Params {
        Params::Log(LogParams)
    }

    fn limit(&self) -> Option<u32> {
        None
    }

    /// The longest window that it keeps.
    fn period_us(&self) -> u64 {
        self.window_us()
    }

    /// Log rules of any period read it, each through its own window.
    #[inline]
    fn fits(&self, rule: &Rule) -> bool {
        rule.kind() == Kind::Log
    }

    fn is_empty(&self) -> bool {
        self.admitted.is_empty() && self.charged().is_none_or(Series::is_empty)
    }

    #[inline(always)]
    fn last_us(&self) -> u64 {
        let last_us = self.admitted.last_us();
        self.charged().map_or(last_us, |charged| charged.last_us().max(last_us))
    }

    fn read(&self, rule: &Rule, at_us: u64, cost: u32) -> Reading {
        self.read_inline(rule, at_us, cost)
    }

    fn consumed(&self, at_us: u64) -> u64 {
        let out_us = at_us.checked_sub(self.window_us());
        self.admitted.units_after(out_us).saturating_add(self.denied(at_us))
    }

    fn clears(&self, rule: &Rule) -> Moment {
        let charged = self.charged_for(rule).and_then(Series::newest_us);
        let newest = self.admitted.newest_us().max(charged);
        let leaves_us = newest.map_or(0, |us| us.saturating_add(rule.period_us()));
        let ends_before = self.may_end_before(rule);
        Moment::At(if ends_before { leaves_us.min(self.matters_until_us()) } else { leaves_us })
    }

    fn details(&self, at_us: Option<u64>) -> Option<Details> {
        let all = [Some(&self.admitted), self.charged()].into_iter().flatten();
        let oldest_us = all.filter_map(Series::oldest_us).min().unwrap_or(self.last_us());
        Some(Details::Log(LogReport {
            entries: self.len() as u64,
            denied: at_us.map_or(0, |at_us| self.denied(at_us)),
            span_ms: self.last_us().saturating_sub(oldest_us) / MS_US,
        }))
    }

    fn ends(&self) -> Moment {
        Moment::At(self.matters_until_us())
    }

    /// Keeps only what this rule needs, so no other rule may read the log afterwards.
    #[inline(always)]
    fn consume(&mut self, rule: &Rule, at_us: u64, cost: u32) {
        self.admit(Needs::of(slice::from_ref(rule)), at_us, cost);
    }

    fn refund(&mut self, window_us: u64, at_us: u64, units: u32) -> u64 {
        let out_us = at_us.checked_sub(window_us);
        let mut given = 0;
        while given < u64::from(units) {
            let admitted = self.admitted.newest_us();
            let newest = admitted.max(self.charged().and_then(Series::newest_us));
            let Some(newest_us) = newest.filter(|&us| Some(us) > out_us) else { break };
            let series =
                if admitted == newest { Some(&mut self.admitted) } else { self.charged_mut() };
            let left = u64::from(units).saturating_sub(given);
            let taken = series.map_or(0, |series| series.take_at(newest_us, left));
            if taken == 0 {
                break;
            }
            given = taken.saturating_add(given);
        }
        self.tidy();
        given
    }

    // The log finds a hold's units by the time at which they were taken.
    fn give_back(&mut self, stamp_us: u64, units: u64) -> u64 {
        let given = self.admitted.take_at(stamp_us, units);
        self.tidy();
        given
    }

    /// Evicts only by age. The excess goes beyond the limit of the hold's rules, so it raises the
    /// number of units to keep.
    fn consume_excess(&mut self, Excess { units, needs, .. }: Excess, at_us: u64) {
        let most = needs.units.saturating_add(units).min(MAX_UNITS);
        let needs = Needs { units: most, ..needs };
        self.add(needs, at_us, units, Consumption::Admitted, Eviction::ByAge);
    }
}

/// The part of `RL.INFO` that only sliding logs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogReport {
    /// Requests in the log, charged denials included.
    pub entries: u64,
    /// Units of charged denials, included in the consumed units.
    pub denied: u64,
    /// From the oldest to the newest entry, milliseconds.
    pub span_ms: u64,
}

/// The time of the `nth` newest unit of two series together, counted from 1.
fn newest_unit_us(first: &Series, second: Option<&Series>, nth: u64) -> Option<u64> {
    let Some(second) = second else {
        return first.entry_of_newest(nth).map(|index| first.time(index));
    };
    newest_unit_in(first, second, nth).max(newest_unit_in(second, first, nth))
}

/// The time of the latest entry of `of` such that, from that time on, both series together have at
/// least `nth` units.
fn newest_unit_in(of: &Series, with: &Series, nth: u64) -> Option<u64> {
    if nth == 0 {
        return None;
    }
    let since = |series: &Series, time: u64| series.units_after(time.checked_sub(1));
    let fewer = |index: u32| {
        let time = of.time(index);
        since(of, time).saturating_add(since(with, time)) < nth
    };
    of.first_where(0, fewer).checked_sub(1).map(|index| of.time(index))
}
