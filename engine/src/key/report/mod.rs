//! A limiter as `RL.INFO` and `RL.LOG` show it: each state, in its rule's words, and the last
//! checks.

use super::{Entry, Limiter, Slots, Verdict};
use crate::algorithm::{Details, Log, Moment, State, effective_time};
use crate::rule::{Kind, MS_US};
use alloc::{boxed::Box, string::String, vec::Vec};

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
    /// The part that only some algorithms report.
    pub details: Option<Details>,
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
            rule: meter.rule(state.name()),
            consumed: at_us.map_or(0, |at_us| meter.consumed(at_us)),
            last_ms: meter.last_us() / MS_US,
            reset_ms: meter.ends().ms_after(now_us),
            details: meter.details(at_us),
        };
        let of_slots = meter.is_of_kind(Kind::Slots).then(|| self.holds()).flatten();
        if let Some(slots) = of_slots.and_then(|holds| Slots::at(place, holds, now_us)) {
            report.consumed = slots.used();
            report.reset_ms = slots.clears().ms_after(now_us);
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
    core::iter::from_fn(move || {
        let time = |entry: Option<&(u64, u32)>| entry.map(|&(time_us, _)| time_us);
        let (entry, verdict) = if time(admitted.peek()) >= time(charged.peek()) {
            (admitted.next(), Verdict::Allowed)
        } else {
            (charged.next(), Verdict::Limited)
        };
        entry.map(|(time_us, cost)| Entry { time_us, cost, verdict, meta: None })
    })
}

#[cfg(all(test, feature = "testing"))]
mod tests;
