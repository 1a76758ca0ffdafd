//! Which rule's decision is the answer of a key, and which rule bans the key.

use super::decision::{Decision, longer};
use super::evaluation::Evaluation;
use super::outcome::Ban;
use crate::limit::algorithm::reading::Moment;
use crate::limit::series::needs::Needs;
use crate::limit::value::check::{Check, Verdict};
use crate::limit::value::limiter::Limiter;
use crate::rule::Rule;

impl<'a> Check<'a> {
    /// The deciding rule and its decision: the rule that denies longest; or else the
    /// one with the least remaining, and the longest turn of all. `None` if all rules
    /// are shadows. Once the check is denied, a rule that admits has no wait.
    #[inline]
    pub(crate) fn deciding_rule(
        &self,
        evaluation: &Evaluation,
        denied: bool,
        decisions: &mut [Decision],
    ) -> Option<(&'a Rule, Decision)> {
        let mut turn_ms = 0;
        let mut least: Option<(&Rule, Decision)> = None;
        for (rule, decision) in self.rules.iter().zip(decisions.iter_mut()) {
            if denied && decision.verdict == Verdict::Allowed {
                decision.wait_ms = 0;
            }
            if !rule.is_shadow() {
                turn_ms = longer(turn_ms, decision.wait_ms);
                if least.is_none_or(|(_, least)| decision.remaining < least.remaining) {
                    least = Some((rule, *decision));
                }
            }
        }
        match evaluation.longest_denial {
            Some(denial) => Some((self.rules.get(denial.rule)?, *decisions.get(denial.rule)?)),
            None => least.map(|(rule, least)| (rule, Decision { wait_ms: turn_ms, ..least })),
        }
    }

    /// Whether there is a time at which the cost could pass.
    pub(crate) fn can_ever_pass(&self) -> bool {
        self.rules.iter().all(|rule| rule.is_shadow() || rule.can_ever_admit(self.cost))
    }

    /// The longest ban of the rules that deny; the first of equals.
    pub(crate) fn ban(&self, decisions: &[Decision]) -> Option<Ban> {
        let mut longest: Option<Ban> = None;
        for (rule, (index, decision)) in self.rules.iter().zip(decisions.iter().enumerate()) {
            if decision.verdict != Verdict::Limited || rule.is_shadow() {
                continue;
            }
            let Some(ban_us) = rule.ban_us() else { continue };
            let until_us = self.now_us.saturating_add(ban_us);
            if longest.is_none_or(|longest| until_us > longest.until_us) {
                longest = Some(Ban { rule: index, until_us });
            }
        }
        longest
    }
}

impl Limiter {
    /// The deciding rule's decision, with its reset; `None` if all rules are shadows.
    pub(crate) fn summary(
        &self,
        check: &Check<'_>,
        evaluation: &Evaluation,
        denied: bool,
        decisions: &mut [Decision],
    ) -> Option<Decision> {
        let (rule, decision) = check.deciding_rule(evaluation, denied, decisions)?;
        let reset_ms = self.reset_ms(rule, evaluation.needs, check.now_us);
        Some(Decision { reset_ms, ..decision })
    }

    /// Fills in each rule's reset after the check. Only the reply to `FULL` shows them.
    pub fn fill_resets(&self, check: &Check<'_>, decisions: &mut [Decision]) {
        let needs = Needs::of(check.rules);
        for (rule, decision) in check.rules.iter().zip(decisions) {
            decision.reset_ms = self.reset_ms(rule, needs, check.now_us);
        }
    }

    fn reset_ms(&self, rule: &Rule, needs: Needs, now_us: u64) -> i64 {
        let clears = self
            .state_of(rule)
            .map_or(Moment::At(0), |state| state.clears(rule, needs.window_us_of(rule), now_us));
        clears.after(now_us).millis()
    }
}
