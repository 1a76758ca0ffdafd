//! Which rule's decision is the answer of a key, and which rule bans the key.

use super::decision::{Decision, longer};
use super::evaluation::Evaluation;
use super::foresight::Foresight;
use super::outcome::{Ban, NewBan};
use crate::limit::value::access::BanCount;
use crate::limit::value::check::{Check, Verdict};
use crate::limit::value::limiter::Limiter;
use crate::rule::{Ladder, Rule};

/// A decision that may be the answer, and the cost that it was made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deciding {
    pub cost: u32,
    pub decision: Decision,
}

impl Deciding {
    /// Whether it admits its cost fewer times: compares `remaining / cost`, as fractions.
    /// A cost of 0 can be admitted any number of times.
    #[inline(always)]
    pub(crate) fn has_less_left_than(self, other: Self) -> bool {
        let (own, others) = (self.decision.remaining, other.decision.remaining);
        match (self.cost, other.cost) {
            (cost, other) if cost == other => own < others,
            (0, _) => false,
            (_, 0) => true,
            (cost, other) => {
                i128::from(own).wrapping_mul(other.into())
                    < i128::from(others).wrapping_mul(cost.into())
            }
        }
    }
}

impl<'a> Check<'a> {
    /// The deciding rule and its decision: the rule that denies longest; or else the
    /// one with the least remaining/cost, and the longest turn of all. `None` if all
    /// rules are shadows. Once the check is denied, a rule that admits has no wait.
    #[inline]
    pub(crate) fn deciding_rule(
        &self,
        evaluation: &Evaluation,
        denied: bool,
        decisions: &mut [Decision],
    ) -> Option<(&'a Rule, Decision)> {
        if denied {
            for decision in decisions.iter_mut().filter(|one| one.verdict == Verdict::Allowed) {
                decision.wait_ms = 0;
            }
        }
        if let Some(denial) = evaluation.longest_denial {
            return Some((self.rules.get(denial.rule)?, *decisions.get(denial.rule)?));
        }
        let mut turn_ms = 0;
        let mut least: Option<(&Rule, Deciding)> = None;
        for (rule, decision) in self.rules.iter().zip(decisions) {
            if !rule.is_shadow() {
                turn_ms = longer(turn_ms, decision.wait_ms);
                let own = Deciding { cost: self.cost_of(rule), decision: *decision };
                if least.is_none_or(|(_, least)| own.has_less_left_than(least)) {
                    least = Some((rule, own));
                }
            }
        }
        least.map(|(rule, least)| (rule, Decision { wait_ms: turn_ms, ..least.decision }))
    }

    /// Whether there is a time at which the check could pass.
    pub(crate) fn can_ever_pass(&self) -> bool {
        self.rules.iter().all(|rule| rule.is_shadow() || rule.can_ever_admit(self.cost_of(rule)))
    }

    /// The longest ban of the rules that deny, on a key that remembers these bans; the first of
    /// equals. If a ladder denies, the ban counts, and the ladder whose ban is the longest says
    /// when it is forgotten.
    pub(crate) fn ban(
        &self,
        decisions: &[Decision],
        remembered: Option<&BanCount>,
    ) -> Option<NewBan> {
        let bans = remembered.map_or(0, |count| count.bans);
        let rules = self.rules.iter().enumerate().zip(decisions);
        let denials = rules.filter_map(|((index, rule), decision)| {
            let denies = decision.verdict == Verdict::Limited && !rule.is_shadow();
            let ladder = rule.ban().filter(|_| denies)?;
            Some((ladder.rung_us(bans), index, ladder))
        });
        let longer = |one: (u64, usize, &'a Ladder), other: (u64, usize, &'a Ladder)| {
            if other.0 > one.0 { other } else { one }
        };
        let (length_us, rule, _) = denials.clone().reduce(longer)?;
        let ladder = denials.filter(|(_, _, ladder)| ladder.counts_bans()).reduce(longer);
        let count = match ladder {
            Some((_, _, ladder)) => {
                let span_us = length_us.saturating_add(ladder.longest_us());
                Some(BanCount::new(bans.saturating_add(1), self.now_us, span_us))
            }
            None => remembered.map(|count| count.as_of(self.now_us)),
        };
        let ban = Ban { rule, until_us: self.now_us.saturating_add(length_us) };
        Some(NewBan { ban, length_us, count })
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
        foresight: &mut Foresight,
    ) -> Option<Deciding> {
        let (rule, decision) = check.deciding_rule(evaluation, denied, decisions)?;
        let reset_ms = self.reset_ms(rule, check, foresight);
        Some(Deciding { cost: check.cost_of(rule), decision: Decision { reset_ms, ..decision } })
    }

    /// Fills in each rule's reset after the check. Only the reply to `FULL` shows them.
    pub fn fill_resets(
        &self,
        check: &Check<'_>,
        decisions: &mut [Decision],
        foresight: &mut Foresight,
    ) {
        for (rule, decision) in check.rules.iter().zip(decisions) {
            decision.reset_ms = self.reset_ms(rule, check, foresight);
        }
    }

    fn reset_ms(&self, rule: &Rule, check: &Check<'_>, foresight: &mut Foresight) -> i64 {
        self.clears(rule, check, foresight).after(check.now_us).millis()
    }
}
