//! A decision: how one rule answers a cost, and in the end how the whole check does.

use crate::limit::algorithm::reading::{Moment, Reading, Span};
use crate::limit::value::check::{Check, Verdict};
use crate::rule::Rule;

/// The five integers of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// From one rule, or from a block or an exemption.
    pub verdict: Verdict,
    /// The most units that pass at once; -1 if no rule decided.
    pub limit: i64,
    /// Units that would be allowed now; -1 if no rule decided.
    pub remaining: i64,
    /// Denied: retry after this. Allowed: proceed after this. -1: never. `decide/mod.rs`
    /// explains where it comes from.
    pub wait_ms: i64,
    /// Until nothing is consumed any more; -1: never.
    pub reset_ms: i64,
}

impl Decision {
    /// No rule decided: the key is exempt or has only shadows.
    pub(crate) const UNDECIDED: Self =
        Self { verdict: Verdict::Allowed, limit: -1, remaining: -1, wait_ms: 0, reset_ms: 0 };

    /// The answer of a block.
    pub(crate) const fn blocked(left_ms: i64) -> Self {
        let verdict = Verdict::Blocked;
        Self { verdict, limit: 0, remaining: 0, wait_ms: left_ms, reset_ms: left_ms }
    }

    /// What a rule decides on its reading. The reset is left at 0: it depends on what the
    /// check consumes.
    #[inline(always)]
    pub(crate) fn of(rule: &Rule, reading: Reading, check: &Check<'_>) -> Self {
        let wait = match Self::admits_later(rule, reading, check) {
            None => Span::Micros(0),
            Some(moment) => moment.after(check.now_us),
        };
        // Under a limit of 0 only a cost of 0 passes, and at once.
        let turn_us = if rule.limit() == 0 { 0 } else { reading.turn_us };
        let (verdict, wait) = match wait {
            Span::Micros(0) => (Verdict::Allowed, Moment::At(turn_us).after(check.now_us)),
            wait => (Verdict::Limited, wait),
        };
        Self {
            verdict,
            limit: units(rule.capacity()),
            remaining: units(if rule.limit() == 0 { 0 } else { reading.remaining }),
            wait_ms: wait.millis(),
            reset_ms: 0,
        }
    }

    /// When a rule admits its cost; at the time of the check if it does so now.
    pub(crate) fn admits(rule: &Rule, reading: Reading, check: &Check<'_>) -> Moment {
        Self::admits_later(rule, reading, check).unwrap_or(Moment::At(check.now_us))
    }

    /// When a rule admits its cost; `None` if it does so now.
    #[inline(always)]
    fn admits_later(rule: &Rule, reading: Reading, check: &Check<'_>) -> Option<Moment> {
        let admits = if !rule.can_ever_admit(check.cost_of(rule)) {
            Moment::Never
        } else if rule.limit() == 0 {
            Moment::At(check.now_us)
        } else {
            reading.admits
        };
        match admits {
            // The state may be read at a time that the clock has yet to reach.
            Moment::At(us) if us <= reading.at_us => None,
            moment => Some(moment),
        }
    }

    /// Allows the check, which repeats a hold, to proceed after a turn that it was given.
    pub(crate) const fn allow(&mut self, turn_ms: i64) {
        self.verdict = Verdict::Allowed;
        self.wait_ms = turn_ms;
    }

    /// Subtracts a cost that was consumed.
    #[inline]
    pub(crate) fn take(&mut self, cost: u32) {
        self.remaining = self.remaining.saturating_sub(cost.into()).max(0);
    }
}

/// A wait as a length to compare: -1, which is never, is the longest.
pub(crate) const fn length(wait_ms: i64) -> i64 {
    if wait_ms < 0 { i64::MAX } else { wait_ms }
}

pub(crate) fn longer(a_ms: i64, b_ms: i64) -> i64 {
    if length(a_ms) >= length(b_ms) { a_ms } else { b_ms }
}

fn units(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
