//! The answer to a check, and what the check did.

use super::decision::Decision;
use crate::limit::value::access::Access;
use crate::limit::value::bans::BanCount;
use crate::limit::value::check::{Change, Check, Verdict};
use crate::rule::Ladder;

/// A block set by a rule's `ban=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ban {
    /// The index of the rule that set it, in the check.
    pub rule: usize,
    /// Its end, in Unix microseconds.
    pub until_us: u64,
}

/// The ban that a key gets when a rule with `ban=` denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewBan {
    pub ban: Ban,
    pub length_us: u64,
    /// The key's new count of bans, if it has one.
    pub count: Option<BanCount>,
}

impl<'a> Check<'a> {
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
        let denials = rules.filter(|((_, rule), decision)| decision.is_denial_by(rule));
        let banning = denials.filter_map(|((index, rule), _)| {
            let ladder = rule.ban()?;
            Some((ladder.rung_us(bans), index, ladder))
        });
        let longer = |one: (u64, usize, &'a Ladder), other: (u64, usize, &'a Ladder)| {
            if other.0 > one.0 { other } else { one }
        };
        let (length_us, rule, _) = banning.clone().reduce(longer)?;
        let ladder = banning.filter(|(_, _, ladder)| ladder.counts_bans()).reduce(longer);
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

/// The answer to a check, and what it did to one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The answer for all keys of the check.
    pub summary: Decision,
    /// This key's block or rules denied the request.
    pub denied: bool,
    /// What the check did to states, holds or history.
    pub change: Change,
    /// The denial also blocked the key.
    pub ban: Option<Ban>,
    /// The key's ban now ends earlier, because the clock stepped back.
    pub ban_shortened: bool,
    /// A block or an exemption answered, and no rule was evaluated.
    pub access: Option<Access>,
    /// The check repeated a live hold, and no rule was charged.
    pub repeated: bool,
    /// The check took a hold.
    pub held: bool,
    /// The default cost that was decided: for an allowed check of a range, what was granted.
    pub cost: u32,
}

impl Outcome {
    /// The answer of a check that left the key unchanged.
    pub const fn unchanged(summary: Decision, cost: u32, access: Option<Access>) -> Self {
        Self {
            summary,
            denied: !matches!(summary.verdict, Verdict::Allowed),
            change: Change::Nothing,
            ban: None,
            ban_shortened: false,
            access,
            repeated: false,
            held: false,
            cost,
        }
    }

    /// True if the key's value changed.
    #[must_use]
    pub fn changed(&self) -> bool {
        self.change != Change::Nothing || self.ban_changed()
    }

    /// True if the key got a ban, or its ban ends earlier.
    #[must_use]
    pub const fn ban_changed(&self) -> bool {
        self.ban.is_some() || self.ban_shortened
    }
}
