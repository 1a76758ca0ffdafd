//! Which rule of a check decides, and which of them bans the key.

use super::limiter::Check;
use super::rule::Rule;
use super::ruling::{Ruling, Verdict, length, longer};

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
pub(super) fn longest_denier(
    so_far: Option<(usize, i64)>,
    (index, rule, ruling): (usize, &Rule, Ruling),
) -> Option<(usize, i64)> {
    let denies = ruling.verdict == Verdict::Limited && !rule.is_shadow();
    let longest = so_far.is_none_or(|(_, ms)| length(ruling.wait_ms) > length(ms));
    if denies && longest { Some((index, ruling.wait_ms)) } else { so_far }
}

impl<'a> Check<'a> {
    /// The deciding rule: the one that denies longest, else the one with the
    /// least remaining and the longest turn of all. None if all are shadows.
    #[inline]
    pub(super) fn deciding(
        &self,
        denier: Option<(usize, i64)>,
        denied: bool,
        rulings: &mut [Ruling],
    ) -> Option<(&'a Rule, Ruling)> {
        let mut turn_ms = 0;
        let mut least: Option<(&Rule, Ruling)> = None;
        for (rule, ruling) in self.rules.iter().zip(rulings.iter_mut()) {
            if denied && ruling.verdict == Verdict::Allowed {
                ruling.wait_ms = 0;
            }
            if !rule.is_shadow() {
                turn_ms = longer(turn_ms, ruling.wait_ms);
                if least.is_none_or(|(_, least)| ruling.remaining < least.remaining) {
                    least = Some((rule, *ruling));
                }
            }
        }
        match denier {
            Some((denier, _)) => Some((self.rules.get(denier)?, *rulings.get(denier)?)),
            None => least.map(|(rule, least)| (rule, Ruling { wait_ms: turn_ms, ..least })),
        }
    }

    /// Whether there is a time at which the cost could pass.
    pub(super) fn can_ever_pass(&self) -> bool {
        self.rules.iter().all(|rule| rule.is_shadow() || rule.can_ever_admit(self.cost))
    }

    /// The longest ban of the rules that deny.
    pub(super) fn ban(&self, rulings: &[Ruling]) -> Option<Ban> {
        let mut longest: Option<Ban> = None;
        for (rule, (index, ruling)) in self.rules.iter().zip(rulings.iter().enumerate()) {
            if ruling.verdict != Verdict::Limited || rule.is_shadow() {
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
