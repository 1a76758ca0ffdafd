//! What the rules of a check read in a key, and what they decide.

use super::{Budget, Decision};
use crate::algorithm::{Moment, Needs, Reading};
use crate::key::{Check, Limiter, Slots};
use crate::rule::{Kind, Rule};

/// A key at the time of a check, and the budget of the command for looking ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub limiter: &'a Limiter,
    pub check: &'a Check<'a>,
    pub budget: &'a Budget,
}

impl<'a> View<'a> {
    /// Lets each rule decide. There must be one decision per rule.
    #[inline(always)]
    pub fn decide(self, decisions: &mut [Decision]) {
        let log_window_us = Needs::of(self.check.rules).window_us;
        for (rule, decision) in self.check.rules.iter().zip(decisions) {
            let is_log = rule.kind() == Kind::Log;
            let window_us = if is_log { log_window_us } else { rule.period_us() };
            *decision = Decision::of(rule, self.read_within(window_us, rule), self.check);
        }
    }

    /// What a rule reads.
    pub fn read(self, rule: &Rule) -> Reading {
        self.read_within(self.check.window_us_of(rule), rule)
    }

    /// What a rule reads, unless the clock stepped back by more than `window_us`.
    #[inline(always)]
    fn read_within(self, window_us: u64, rule: &Rule) -> Reading {
        let (now_us, cost) = (self.check.now_us, self.check.cost_of(rule));
        let reading = if rule.kind() == Kind::Slots {
            self.slots(rule).map(|slots| slots.read(rule, cost))
        } else {
            let state = self.limiter.state_of(rule);
            state.and_then(|state| state.read(rule, window_us, now_us, cost))
        };
        reading.unwrap_or_else(|| Reading::untouched(rule, now_us))
    }

    /// The slots of a rule; `None` if no live hold is on them.
    fn slots(self, rule: &Rule) -> Option<Slots<'a>> {
        let Self { limiter, check: &Check { now_us, .. }, .. } = self;
        let place = limiter.states().iter().position(|state| state.fits(rule))?;
        Slots::at(place, limiter.holds().filter(|holds| holds.last_end_us() > now_us)?, now_us)
    }

    /// When a rule admits its cost if no hold lapses before then.
    pub fn admits(self, rule: &Rule) -> Moment {
        Decision::admits(rule, self.read(rule), self.check)
    }

    /// When nothing counts any more for a rule, if no hold lapses before then.
    pub fn clears(self, rule: &Rule) -> Moment {
        let Self { limiter, check, .. } = self;
        let clears = if rule.kind() == Kind::Slots {
            self.slots(rule).map(|slots| slots.clears())
        } else {
            let window_us = check.window_us_of(rule);
            limiter.state_of(rule).map(|state| state.clears(rule, window_us, check.now_us))
        };
        clears.unwrap_or(Moment::At(0))
    }
}
