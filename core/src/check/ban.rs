//! The ban of a key by a rule that denies.

use super::Decision;
use crate::key::{BanCount, Check, Limiter, StandingEntry};
use crate::rule::{Ladder, Rule};

/// A block set by a rule's `ban=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ban {
    /// The index, in the check, of the rule that set it.
    pub rule: usize,
    /// Its end, in Unix microseconds.
    pub until_us: u64,
}

impl Limiter {
    /// Blocks the key with the longest ban of the rules that deny; of equal bans, the first. If
    /// some of these rules count bans, the key's count of bans rises. Of the rules that count, the
    /// one with the longest ban decides when the key forgets the count.
    pub(super) fn ban(&mut self, check: &Check<'_>, decisions: &[Decision]) -> Option<Ban> {
        let remembered = self.bans_at(check.now_us);
        let bans = remembered.map_or(0, |count| count.bans);
        let rules = check.rules.iter().enumerate().zip(decisions);
        let denials = rules.filter(|((_, rule), decision)| decision.is_denial_by(rule));
        let ladders = denials.filter_map(|((index, rule), _)| Some((index, rule, rule.ban()?)));
        // `max_by_key` takes the last of equals.
        let ladders = ladders.rev();
        let length_us = |(_, _, ladder): &(usize, &Rule, &Ladder)| ladder.rung_us(bans);
        let (index, rule, ladder) = ladders.clone().max_by_key(length_us)?;
        let counting = ladders.filter(|(_, _, ladder)| ladder.counts_bans()).max_by_key(length_us);
        let length_us = ladder.rung_us(bans);
        let count = match counting {
            Some((_, _, ladder)) => {
                let span_us = length_us.saturating_add(ladder.longest_us());
                Some(BanCount::new(bans.saturating_add(1), check.now_us, span_us))
            }
            None => remembered.map(|count| count.as_of(check.now_us)),
        };
        let until_us = check.now_us.saturating_add(length_us);
        self.set_ban(StandingEntry::ban(rule, until_us, length_us), count);
        Some(Ban { rule: index, until_us })
    }
}
