//! The honest wait, and the reset, of a key whose holds give back charges when they lapse.
//!
//! If nothing else happens, a rule that denies now will admit after its wait. But a hold with
//! `REFUND` gives back its charges when it lapses, which may be earlier:
//!
//! ```text
//!   now        lapse       lapse                    wait of the rule
//!    |-----------|-----------|--------------------------|
//!                      ^ with what came back, it admits from here on
//! ```
//!
//! Lapses only free units, and a rule that admits goes on admitting. So a bisection among the lapses
//! finds the first lapse after which the rule admits at once. Each step lets holds lapse in a copy of
//! the rule's state. The rule admits at that lapse, or between the previous lapse and that one: the
//! copy says when. The search starts with short steps, since few lapses are enough for most denials.
//!
//! A rule of `slots` knows when holds lapse without this search. A key without holds that give back
//! charges skips the search. With very many such holds, a wait is only a lower bound: see `budget`.

use super::{Decision, View};
use crate::algorithm::{Moment, Reading};
use crate::key::{Holds, LapsedCopy, Verdict};
use crate::rule::{Kind, Rule};
use core::slice;

/// Resets and `next_ms` take account of lapses only while a key has at most this number of holds,
/// because each allowed check computes a reset.
const MOST_HOLDS_AHEAD: usize = 16;

/// Each step of the search is this number of times as long as the step before.
const STEP_GROWTH: usize = 8;

impl<'a> View<'a> {
    /// The holds, if any gives its charges back when it lapses.
    #[inline]
    fn refunding_holds(self) -> Option<&'a Holds> {
        self.limiter.holds().filter(|holds| holds.any_refunds())
    }

    /// True if lapses give charges back, and the key has few enough holds for each check to look
    /// ahead.
    #[inline]
    pub fn has_few_refunding_holds(self) -> bool {
        self.refunding_holds().is_some_and(|holds| holds.len() <= MOST_HOLDS_AHEAD)
    }

    /// Shortens the wait of each rule that denies, if lapses let the rule admit earlier.
    #[inline(always)]
    pub fn shorten_waits(self, decisions: &mut [Decision]) {
        if self.refunding_holds().is_none() {
            return;
        }
        for (rule, decision) in self.check.rules.iter().zip(decisions) {
            if decision.verdict == Verdict::Limited {
                decision.wait_ms = self.admits_with_lapses(rule).ms_after(self.check.now_us);
            }
        }
    }

    /// When a rule admits its cost, given the coming lapses.
    pub fn admits_with_lapses(self, rule: &Rule) -> Moment {
        let admits = self.admits(rule);
        if admits == Moment::Never {
            return admits;
        }
        let cost = self.check.cost_of(rule);
        self.look_ahead(rule, Some(cost), admits).unwrap_or_else(|earliest| earliest)
    }

    /// Milliseconds until nothing counts any more for a rule, given the coming lapses.
    pub fn reset_ms(self, rule: &Rule) -> i64 {
        let mut clears = self.clears(rule);
        if self.has_few_refunding_holds() {
            clears = self.look_ahead(rule, None, clears).unwrap_or(clears);
        }
        clears.ms_after(self.check.now_us)
    }

    /// When a rule admits a cost, given the coming lapses; without a cost, when nothing counts any
    /// more for the rule. Without lapses, this is `latest`.
    ///
    /// # Errors
    /// A lower bound of that time, if the command has spent its budget.
    #[cold]
    fn look_ahead(self, rule: &Rule, cost: Option<u32>, latest: Moment) -> Result<Moment, Moment> {
        let Self { limiter, check, budget } = self;
        let (now_us, window_us) = (check.now_us, check.window_us_of(rule));
        let holds = self.refunding_holds().filter(|_| rule.kind() != Kind::Slots);
        let mut places = limiter.states().iter().enumerate();
        let read = places.find(|(_, state)| state.belongs_to(rule));
        let (Some(holds), Some((place, state))) = (holds, read) else { return Ok(latest) };
        let Some(mut seen) = LapsedCopy::new(place, state, holds) else { return Ok(latest) };
        let first_in = |then: &mut LapsedCopy<'_>, at_us| match cost {
            None => then.state().clears(rule, window_us, at_us),
            Some(cost) => {
                let reading = then.state().read(rule, window_us, at_us, cost);
                let reading = reading.unwrap_or_else(|| Reading::untouched(rule, at_us));
                Decision::admits(rule, reading, check)
            }
        };
        // The lapse searched for is one of `ranks`, or comes later.
        let (mut ranks, mut first, mut step) = (holds.lapses_between(now_us, latest), latest, 0);
        while !ranks.is_empty() {
            let half = ranks.len() / 2;
            let Some(at_us) = holds.end_at(ranks.start.saturating_add(step.min(half))) else {
                break;
            };
            let lapse = ranks.start..holds.count_ended(at_us);
            if !budget.may_look(slice::from_ref(state), holds, lapse.len()) {
                break;
            }
            let mut then = seen.clone();
            then.lapse(lapse.clone());
            let first_then = first_in(&mut then, at_us);
            if first_then <= Moment::At(at_us) {
                ranks.end = holds.lapses_between(now_us, Moment::At(at_us)).end;
            } else {
                (seen, first, ranks.start) = (then, first_then, lapse.end);
            }
            step = step.max(1).saturating_mul(STEP_GROWTH);
        }
        let next = holds.end_at(ranks.start).map_or(Moment::Never, Moment::At);
        let earliest = first.min(next);
        if ranks.is_empty() { Ok(earliest) } else { Err(earliest) }
    }
}
