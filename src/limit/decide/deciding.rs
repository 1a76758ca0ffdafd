//! Which rule of a check decides, and which of them bans the key.

use super::decision::{Decision, Verdict, length, longer};
use crate::limit::value::limiter::Check;
use crate::rule::Rule;

/// A block set by a rule's `ban=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ban {
    /// Which of the check's rules set it.
    pub rule: usize,
    pub until_us: u64,
}

/// The rule with the longest wait of those that deny, and that wait, when one
/// more has spoken.
#[inline]
pub(crate) fn longest_denier(
    so_far: Option<(usize, i64)>,
    (index, rule, decision): (usize, &Rule, Decision),
) -> Option<(usize, i64)> {
    let denies = decision.verdict == Verdict::Limited && !rule.is_shadow();
    let longest = so_far.is_none_or(|(_, ms)| length(decision.wait_ms) > length(ms));
    if denies && longest { Some((index, decision.wait_ms)) } else { so_far }
}

impl<'a> Check<'a> {
    /// The deciding rule: the one that denies longest, else the one with the
    /// least remaining and the longest turn of all. None if all are shadows.
    #[inline]
    pub(crate) fn deciding(
        &self,
        denier: Option<(usize, i64)>,
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
        match denier {
            Some((denier, _)) => Some((self.rules.get(denier)?, *decisions.get(denier)?)),
            None => least.map(|(rule, least)| (rule, Decision { wait_ms: turn_ms, ..least })),
        }
    }

    /// Whether there is a time at which the cost could pass.
    pub(crate) fn can_ever_pass(&self) -> bool {
        self.rules.iter().all(|rule| rule.is_shadow() || rule.can_ever_admit(self.cost))
    }

    /// The longest ban of the rules that deny.
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
