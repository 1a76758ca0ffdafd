//! Sliding log: exact.
//!
//! ```text
//!              t-W                      t
//!  --x---x------(---x-----x--x-----x----]      admits c  iff
//!               |<-------- W --------->|       units with time > t-W, plus c, <= L
//! ```
//!
//! One log a key, read by every log rule through its own window, so four rules
//! cost one timestamp a request. The wait needs no search: with `c` more units
//! wanted, the unit `L-c+1` back is the one that has to leave, and it leaves
//! at its time plus `W`.
//!
//! Denied requests that were charged (`count=all`) are kept apart, as only
//! `count=all` rules count them, and as hammering must not push admitted
//! requests out of the log that other rules still need.
//!
//! The log keeps what the rules of the last consuming check could see: nothing
//! older than their longest window, and the newest units up to their largest
//! limit.

use super::blocks::Blocks;
use super::reading::{Moment, Reading};
use super::report::LogReport;
use super::rule::{Kind, MS_US, Rule};
use super::series::Series;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// Admitted requests; charged denials are its companion, and its note is
    /// the horizon: the longest window of the rules that consumed last.
    admitted: Series,
}

/// A window's length in 4 bytes: exact to the millisecond up to 24 days,
/// rounded up to a second above. It only sets the key's expiry.
#[derive(Clone, Copy, Debug)]
struct Horizon(u32);

impl Horizon {
    const SECONDS: u32 = 1 << 31;

    fn new(us: u64) -> Self {
        match u32::try_from(us.div_ceil(1_000)) {
            Ok(ms) if ms < Self::SECONDS => Self(ms),
            _ => Self(u32::try_from(us.div_ceil(1_000_000)).unwrap_or(0) | Self::SECONDS),
        }
    }

    fn micros(self) -> u64 {
        let count = u64::from(self.0 & !Self::SECONDS);
        count.saturating_mul(if self.0 & Self::SECONDS == 0 { 1_000 } else { 1_000_000 })
    }
}

/// What the log rules of one check need of the log together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The longest window, 0 if there is no log rule.
    pub window_us: u64,
    /// The largest limit.
    units: u64,
    /// The largest limit of the rules that count admitted requests only.
    admitted_units: u64,
}

impl Needs {
    pub fn of(rules: &[Rule]) -> Self {
        let mut needs = Self::default();
        for rule in rules.iter().filter(|rule| rule.kind() == Kind::Log) {
            let limit = u64::from(rule.limit());
            needs.window_us = needs.window_us.max(rule.period_us());
            needs.units = needs.units.max(limit);
            if !rule.counts_all() {
                needs.admitted_units = needs.admitted_units.max(limit);
            }
        }
        needs
    }

    /// How far the clock may step back before the state of one of the rules is
    /// forgotten. The log is one state for all its rules: the longest of their
    /// windows.
    pub fn window_us_of(self, rule: &Rule) -> u64 {
        if rule.kind() == Kind::Log { self.window_us } else { rule.period_us() }
    }
}

impl Log {
    /// The log of entries given oldest first: time, units, and whether the
    /// request was denied.
    pub fn from_entries(
        horizon_us: u64,
        entries: impl IntoIterator<Item = (u64, u32, bool)>,
    ) -> Self {
        let mut log = Self::default();
        log.set_horizon(horizon_us);
        for (time_us, units, denied) in entries {
            log.push(time_us, units, denied);
        }
        log
    }

    fn push(&mut self, time_us: u64, units: u32, denied: bool) {
        let series = if denied { self.admitted.companion_or_new() } else { &mut self.admitted };
        series.push(time_us, units);
    }

    pub fn admitted(&self) -> &Series {
        &self.admitted
    }

    /// Denied requests that were charged.
    pub fn charged(&self) -> Option<&Series> {
        self.admitted.companion()
    }

    pub fn horizon_us(&self) -> u64 {
        Horizon(self.admitted.note()).micros()
    }

    fn set_horizon(&mut self, us: u64) {
        self.admitted.set_note(Horizon::new(us).0);
    }

    /// Where it lies; see [`Series::block`].
    #[inline]
    pub fn block(&self) -> *const [u8] {
        self.admitted.block()
    }

    pub fn is_empty(&self) -> bool {
        self.admitted.is_empty() && self.charged().is_none_or(Series::is_empty)
    }

    /// The time of the newest entry.
    pub fn last_us(&self) -> u64 {
        let charged = self.charged().and_then(Series::newest_us);
        self.admitted.newest_us().max(charged).unwrap_or(0)
    }

    fn charged_for(&self, rule: &Rule) -> Option<&Series> {
        if rule.counts_all() { self.charged() } else { None }
    }

    pub fn read(&self, rule: &Rule, at_us: u64, cost: u32) -> Reading {
        let limit = u64::from(rule.limit());
        let charged = self.charged_for(rule);
        let out_us = at_us.checked_sub(rule.period_us());
        let used = self
            .admitted
            .units_after(out_us)
            .saturating_add(charged.map_or(0, |series| series.units_after(out_us)));
        let admits_us = if used.saturating_add(u64::from(cost)) <= limit {
            at_us
        } else {
            let stays = limit.saturating_sub(u64::from(cost));
            let leaves_us = newest_unit_us(&self.admitted, charged, stays.saturating_add(1));
            leaves_us.unwrap_or(at_us).saturating_add(rule.period_us())
        };
        Reading {
            at_us,
            remaining: limit.saturating_sub(used),
            admits: Moment::At(admits_us),
            turn_us: 0,
        }
    }

    /// Units that any rule that consumed last could count at a time.
    pub fn consumed(&self, at_us: u64) -> u64 {
        self.admitted
            .units_after(at_us.checked_sub(self.horizon_us()))
            .saturating_add(self.denied(at_us))
    }

    /// Of these, the units of denied requests.
    fn denied(&self, at_us: u64) -> u64 {
        let out_us = at_us.checked_sub(self.horizon_us());
        self.charged().map_or(0, |series| series.units_after(out_us))
    }

    /// For those who look at it; at no time if it is forgotten.
    pub fn report(&self, at_us: Option<u64>) -> LogReport {
        let charged = self.charged();
        let entries = self.admitted.len().saturating_add(charged.map_or(0, Series::len));
        let oldest_us = [Some(&self.admitted), charged].into_iter().flatten();
        let oldest_us = oldest_us.filter_map(Series::oldest_us).min();
        let span_us = self.last_us().saturating_sub(oldest_us.unwrap_or(self.last_us()));
        LogReport {
            entries,
            denied: at_us.map_or(0, |at_us| self.denied(at_us)),
            span_ms: span_us / MS_US,
        }
    }

    /// Logs a request, and forgets what these rules can no longer see.
    pub fn consume(&mut self, needs: Needs, at_us: u64, cost: u32, denied: bool) {
        let out_us = at_us.checked_sub(needs.window_us);
        if self.admitted.is_full() {
            // What leaves makes room: the ring need not grow for what comes.
            self.drop_until(out_us);
        }
        self.push(at_us, cost, denied);
        self.set_horizon(needs.window_us);
        self.drop_until(out_us);
        self.keep_newest(needs);
        self.admitted.tidy();
    }

    fn drop_until(&mut self, out_us: Option<u64>) {
        if let Some(out_us) = out_us {
            self.admitted.drop_until(out_us);
            if let Some(charged) = self.admitted.companion_mut() {
                charged.drop_until(out_us);
            }
        }
    }

    fn keep_newest(&mut self, needs: Needs) {
        let Some(charged) = self.charged() else {
            return self.admitted.keep_newest(needs.units);
        };
        // The newest units of both together, and of the admitted what rules
        // need that do not count the denied.
        let Some(cut_us) = newest_unit_us(&self.admitted, Some(charged), needs.units) else {
            if needs.units == 0 {
                self.clear();
            }
            return;
        };
        let admitted_after = self.admitted.units_after(Some(cut_us));
        let charged_upto = charged.units_after(cut_us.checked_sub(1));
        let charged_kept = charged_upto.min(needs.units.saturating_sub(admitted_after));
        let admitted_kept = needs.units.saturating_sub(charged_kept).max(needs.admitted_units);
        self.admitted.keep_newest(admitted_kept);
        if let Some(charged) = self.admitted.companion_mut() {
            charged.keep_newest(charged_kept);
        }
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Gives units back, newest first, of the entries later than a time.
    pub fn refund(&mut self, out_us: Option<u64>, units: u32) -> u64 {
        let mut left = units;
        while left > 0 {
            let admitted = self.admitted.newest_us();
            let charged = self.charged().and_then(Series::newest_us);
            let newest = admitted.max(charged);
            if newest.is_none() || (out_us.is_some() && newest <= out_us) {
                break;
            }
            let series = if admitted == newest {
                Some(&mut self.admitted)
            } else {
                self.admitted.companion_mut()
            };
            let taken = series.map_or(0, |series| series.take_newest(left));
            left = left.saturating_sub(taken);
        }
        self.admitted.tidy();
        u64::from(units.saturating_sub(left))
    }

    /// When a rule sees nothing in the log any more.
    pub fn clears(&self, rule: &Rule) -> Moment {
        let charged = self.charged_for(rule).and_then(Series::newest_us);
        let newest = self.admitted.newest_us().max(charged);
        Moment::At(newest.map_or(0, |us| us.saturating_add(rule.period_us())))
    }

    pub fn show_blocks(&mut self, to: &mut impl Blocks) {
        self.admitted.show_blocks(to);
    }

    /// Until when any rule that consumed last could see an entry.
    pub fn matters_until_us(&self) -> u64 {
        self.last_us().saturating_add(self.horizon_us())
    }
}

/// The time of the `nth` newest unit of two series together, from 1.
fn newest_unit_us(first: &Series, second: Option<&Series>, nth: u64) -> Option<u64> {
    let Some(second) = second else {
        return first.entry_of_newest(nth).map(|index| first.time(index));
    };
    newest_unit_in(first, second, nth).max(newest_unit_in(second, first, nth))
}

/// The latest time in `of` such that at least `nth` units of both are not
/// earlier.
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
