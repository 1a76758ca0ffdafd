//! Every rule of a key reads its state and decides, before anything is consumed.

use super::decision::{Decision, length};
use crate::limit::algorithm::log::Log;
use crate::limit::algorithm::reading::{Moment, Reading, effective_time};
use crate::limit::algorithm::state::State;
use crate::limit::holds::Holds;
use crate::limit::series::needs::Needs;
use crate::limit::value::access::Access;
use crate::limit::value::check::{Check, Verdict};
use crate::limit::value::limiter::Limiter;
use crate::limit::value::slots::Slots;
use crate::rule::{Kind, Rule};

/// What the rules of a key decided together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evaluation {
    /// What the log rules need of the log together.
    pub needs: Needs,
    /// When the log is read; `None` if no log rule sees it.
    pub log_at_us: Option<u64>,
    /// The denial with the longest wait; the first of equals.
    pub longest_denial: Option<Denial>,
    /// Some rule sees an untouched state only because its state lies more than a
    /// window ahead of the clock. It will count again; see `wait`.
    pub passed_over: bool,
}

/// A rule that denies, by its index in the check.
#[derive(Clone, Copy, Debug)]
pub struct Denial {
    pub rule: usize,
    wait_ms: i64,
}

impl Evaluation {
    /// Lets each rule of a check decide, and shows each decision.
    #[inline(always)]
    pub fn of(
        states: &[State],
        holds: Option<&Holds>,
        check: &Check<'_>,
        mut show: impl FnMut(Decision),
    ) -> Self {
        let mut evaluation = Self { needs: Needs::of(check.rules), ..Self::default() };
        let log = evaluation.log_in_sight(states, check.now_us);
        evaluation.log_at_us = log.map(|(_, at_us)| at_us);
        for (index, rule) in check.rules.iter().enumerate() {
            let reading = match (rule.kind(), log) {
                (Kind::Log, None) => None,
                (Kind::Log, Some((log, at_us))) => Some(log.read(rule, at_us, check.cost_of(rule))),
                (Kind::Window | Kind::Fixed | Kind::Bucket | Kind::Leaky, _) => {
                    evaluation.read(states, rule, check)
                }
                (Kind::Slots, _) => Slots::of(rule, states, holds, check.now_us)
                    .map(|slots| slots.read(rule, check.cost_of(rule))),
            };
            let reading = reading.unwrap_or_else(|| Reading::untouched(rule, check.now_us));
            let decision = Decision::of(rule, reading, check);
            show(decision);
            evaluation.add(index, rule, decision);
        }
        evaluation
    }

    pub const fn denies(&self) -> bool {
        self.longest_denial.is_some()
    }

    /// Decides again which denial is the longest, after waits changed.
    pub fn settle_denials(&mut self, rules: &[Rule], decisions: &[Decision]) {
        self.longest_denial = None;
        for (index, (rule, decision)) in rules.iter().zip(decisions).enumerate() {
            self.add(index, rule, *decision);
        }
    }

    #[inline]
    fn add(&mut self, index: usize, rule: &Rule, decision: Decision) {
        let denies = decision.verdict == Verdict::Limited && !rule.is_shadow();
        let is_longer = |longest: Denial| length(decision.wait_ms) > length(longest.wait_ms);
        if denies && self.longest_denial.is_none_or(is_longer) {
            self.longest_denial = Some(Denial { rule: index, wait_ms: decision.wait_ms });
        }
    }

    /// The log that all log rules read, and the time it is read at; `None` if they see
    /// an untouched one.
    fn log_in_sight<'a>(&mut self, states: &'a [State], now_us: u64) -> Option<(&'a Log, u64)> {
        if self.needs.window_us == 0 {
            return None;
        }
        let log = states.iter().find_map(State::log)?;
        let last_us = log.last_us();
        let at_us = effective_time(now_us, last_us, self.needs.window_us);
        self.passed_over |= at_us.is_none() && last_us > now_us;
        Some((log, at_us?))
    }

    /// What a rule of another algorithm reads; `None` if it sees an untouched state.
    fn read(&mut self, states: &[State], rule: &Rule, check: &Check<'_>) -> Option<Reading> {
        let state = states.iter().find(|state| state.belongs_to(rule))?;
        let reading = state.read(rule, rule.period_us(), check.now_us, check.cost_of(rule));
        self.passed_over |= reading.is_none() && state.meter().last_us() > check.now_us;
        reading
    }
}

impl Limiter {
    pub(super) fn slots(&self, rule: &Rule, now_us: u64) -> Option<Slots<'_>> {
        Slots::of(rule, self.states(), self.holds(), now_us)
    }

    /// What a rule reads.
    pub(crate) fn read(&self, rule: &Rule, check: &Check<'_>) -> Reading {
        let (now_us, cost) = (check.now_us, check.cost_of(rule));
        let reading = if rule.kind() == Kind::Slots {
            self.slots(rule, now_us).map(|slots| slots.read(rule, cost))
        } else {
            let window_us = check.window_us_of(rule);
            self.state_of(rule).and_then(|state| state.read(rule, window_us, now_us, cost))
        };
        reading.unwrap_or_else(|| Reading::untouched(rule, now_us))
    }

    /// When a rule admits its cost if no hold lapses before.
    pub(crate) fn admits(&self, rule: &Rule, check: &Check<'_>) -> Moment {
        Decision::admits(rule, self.read(rule, check), check)
    }

    /// The answer of a block or an exemption, if one is in effect.
    pub(crate) fn access_answer(&self, now_us: u64) -> Option<(Access, Decision)> {
        let access = self.access_at(now_us)?;
        let answer = match access.kind {
            Access::Exempt => Decision::UNDECIDED,
            Access::Block => Decision::blocked(access.left_ms(now_us)),
        };
        Some((access.kind, answer))
    }
}
