//! A limiter as `RL.INFO` and `RL.LOG` show it: each state, in its rule's words, and the last
//! checks.

use super::history::Entry;
use super::limiter::Limiter;
use crate::algorithm::fixed::{Fixed, FixedWithPast};
use crate::algorithm::log::{Log, LogReport};
use crate::algorithm::meter::Meter;
use crate::algorithm::reading::{Moment, effective_time};
use crate::algorithm::state::State;
use crate::algorithm::window::WindowReport;
use crate::key::check::Verdict;
use crate::key::slots::Slots;
use crate::rule::{
    Algorithm, BucketParams, DisplayPeriod, FixedParams, LeakyParams, MS_US, Refill, Rule,
    WindowParams,
};

/// One state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateReport {
    /// The canonical text of the rule that consumed last. A log has no limit: its text is `log/`
    /// and the longest window that it keeps.
    pub rule: String,
    /// Units that still count.
    pub consumed: u64,
    /// When it last consumed, Unix milliseconds.
    pub last_ms: u64,
    /// Milliseconds until no unit counts any more, at the limit of the rule that consumed last; -1:
    /// never.
    pub reset_ms: i64,
    /// The entries, for a log only.
    pub log: Option<LogReport>,
    /// The counts, for a window only.
    pub window: Option<WindowReport>,
    /// The windows that `keep=` keeps and the present one, oldest first: each window's start, in
    /// Unix milliseconds, and its count.
    pub windows: Option<Vec<(i64, u64)>>,
}

/// A live hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldReport {
    /// 1 ..= [`MAX_ID`](crate::key::MAX_ID) bytes.
    pub id: Box<[u8]>,
    /// Milliseconds until it lapses, rounded up.
    pub ttl_ms: i64,
    /// The largest charge on any state, in units.
    pub units: u64,
    /// True if its charges are given back when it lapses.
    pub refund: bool,
}

impl Limiter {
    /// Up to `most` live holds, the next to lapse first.
    pub fn next_holds(&self, now_us: u64, most: usize) -> Vec<HoldReport> {
        let live = self.holds().into_iter().flat_map(|holds| holds.live(now_us));
        live.take(most)
            .map(|hold| HoldReport {
                id: hold.id().into(),
                ttl_ms: Moment::At(hold.end_us()).ms_after(now_us),
                units: hold.units().into(),
                refund: hold.refunds(),
            })
            .collect()
    }

    /// Each state at `now_us`, ordered by first consumption.
    pub fn report(&self, now_us: u64) -> Vec<StateReport> {
        let states = self.states().iter().enumerate();
        states.map(|(place, state)| self.report_of(place, state, now_us)).collect()
    }

    fn report_of(&self, place: usize, state: &State, now_us: u64) -> StateReport {
        let meter = state.meter();
        let at_us = effective_time(now_us, meter.last_us(), meter.period_us());
        let at_us = at_us.filter(|&at_us| !meter.has_ended(at_us));
        let mut report = StateReport {
            rule: last_rule(state),
            consumed: at_us.map_or(0, |at_us| meter.consumed(at_us)),
            last_ms: meter.last_us() / MS_US,
            reset_ms: meter.ends().ms_after(now_us),
            log: None,
            window: None,
            windows: None,
        };
        match meter {
            Meter::Log(log) => report.log = Some(log.report(at_us)),
            Meter::Window(window) => {
                report.window = Some(at_us.map(|us| window.report(us)).unwrap_or_default());
            }
            Meter::FixedWithPast(fixed) => report.windows = Some(windows_of(fixed)),
            Meter::Slots(_) => {
                if let Some(slots) = self.holds().and_then(|holds| Slots::at(place, holds, now_us))
                {
                    report.consumed = slots.used();
                    report.reset_ms = slots.clears().ms_after(now_us);
                }
            }
            Meter::Fixed(_) | Meter::Debt(_) | Meter::Interval(_) => {}
        }
        report
    }

    /// The last checks, newest first, from the history or, without one, from the sliding log.
    pub fn last_checks(&self) -> impl Iterator<Item = Entry> + '_ {
        let remembered = self.history().map(|history| history.entries.iter().rev().cloned());
        let log = self.states().iter().find_map(State::log);
        let entries = log.filter(|_| remembered.is_none()).map(newest_first);
        remembered.into_iter().flatten().chain(entries.into_iter().flatten())
    }
}

/// Merges the admitted and charged entries of a log, newest first.
fn newest_first(log: &Log) -> impl Iterator<Item = Entry> + '_ {
    let mut admitted = log.admitted().iter().rev().peekable();
    let mut charged = log.charged().into_iter().flat_map(|series| series.iter().rev()).peekable();
    std::iter::from_fn(move || {
        let time = |entry: Option<&(u64, u32)>| entry.map(|&(time_us, _)| time_us);
        let (entry, verdict) = if time(admitted.peek()) >= time(charged.peek()) {
            (admitted.next(), Verdict::Allowed)
        } else {
            (charged.next(), Verdict::Limited)
        };
        entry.map(|(time_us, cost)| Entry { time_us, cost, verdict, meta: None })
    })
}

/// The text of the rule that consumed last, as far as the state stores it.
fn last_rule(state: &State) -> String {
    let meter = state.meter();
    let fixed = |fixed: &Fixed, keep| {
        let (calendar, tz_min) = (fixed.anchor.calendar(), fixed.anchor.tz_min());
        (Algorithm::Fixed(FixedParams { calendar, tz_min, keep }), fixed.limit)
    };
    let bucket = |burst, refill| Algorithm::Bucket(BucketParams { burst, refill });
    let (algorithm, limit) = match meter {
        Meter::Log(_) => return format!("log/{}", DisplayPeriod(meter.period_us())),
        Meter::Window(window) => {
            (Algorithm::Window(WindowParams { res: window.res() }), window.limit())
        }
        Meter::Fixed(window) => fixed(window, 0),
        Meter::FixedWithPast(kept) => fixed(&kept.fixed, kept.keep),
        Meter::Debt(debt) if debt.is_leaky() => {
            (Algorithm::Leaky(LeakyParams { queue: debt.burst_or_queue.units() }), debt.limit)
        }
        Meter::Debt(debt) => (bucket(debt.burst_or_queue.units(), Refill::Even), debt.limit),
        Meter::Interval(interval) => (bucket(interval.burst, Refill::Interval), interval.limit),
        Meter::Slots(limit) => (Algorithm::Slots, *limit),
    };
    Rule::new(algorithm, limit, meter.period_us()).named(state.name()).to_string()
}

/// The counts of past windows, and the present one's.
fn windows_of(state: &FixedWithPast) -> Vec<(i64, u64)> {
    let past = state.past.iter().map(|past| (past.start_us, past.count));
    let present = (state.fixed.start_us(), state.fixed.count());
    let in_ms = |(start_us, count): (i64, u64)| (start_us.div_euclid(MS_US.cast_signed()), count);
    past.chain([present]).map(in_ms).collect()
}

#[cfg(test)]
mod tests;
