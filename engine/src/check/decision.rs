//! A decision: the answer of one rule to a cost, and in the end the answer to the whole check.

use crate::algorithm::{Moment, Reading};
use crate::key::{Access, Change, Check, Verdict};
use crate::rule::Rule;
use alloc::vec::Vec;
use core::ops::DerefMut;

/// The five integers of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// From one rule, a pause, a block or an exemption.
    pub verdict: Verdict,
    /// The most units that pass at once; 0 under a block or a pause, -1 if nothing decided.
    pub limit: i64,
    /// Units that would be allowed now; -1 if nothing decided.
    pub remaining: i64,
    /// Denied: retry after this. Allowed: proceed after this. -1: never. `check/mod.rs`
    /// explains where it comes from.
    pub wait_ms: i64,
    /// Until everything consumed has come back; -1: never.
    pub reset_ms: i64,
}

/// Where a check puts the decision of each rule.
pub trait Decisions: DerefMut<Target = [Decision]> {
    /// Drops those of an earlier check.
    fn clear(&mut self);
    /// Adds a decision.
    fn push(&mut self, decision: Decision);
    /// Adds decisions to come, up to this number of all.
    fn resize(&mut self, len: usize);
}

impl Decisions for Vec<Decision> {
    #[inline]
    fn clear(&mut self) {
        self.clear();
    }

    #[inline]
    fn push(&mut self, decision: Decision) {
        self.push(decision);
    }

    #[inline]
    fn resize(&mut self, len: usize) {
        self.resize(len, Decision::UNDECIDED);
    }
}

impl Decision {
    /// Nothing decided: the key is exempt or has only shadows.
    pub const UNDECIDED: Self =
        Self { verdict: Verdict::Allowed, limit: -1, remaining: -1, wait_ms: 0, reset_ms: 0 };

    /// The answer of a block.
    pub(crate) const fn blocked(left_ms: i64) -> Self {
        let verdict = Verdict::Blocked;
        Self { verdict, limit: 0, remaining: 0, wait_ms: left_ms, reset_ms: left_ms }
    }

    /// The answer of a pause.
    pub(crate) const fn paused(left_ms: i64) -> Self {
        Self { verdict: Verdict::Limited, ..Self::blocked(left_ms) }
    }

    /// What a rule decides on its reading. The reset is left at 0: it depends on what the
    /// check consumes.
    #[inline(always)]
    pub(crate) fn of(rule: &Rule, reading: Reading, check: &Check<'_>) -> Self {
        // Under a limit of 0 only a cost of 0 passes, and at once.
        let (remaining, turn_us) =
            if rule.limit() == 0 { (0, 0) } else { (reading.remaining, reading.turn_us) };
        let (verdict, until) = match Self::admits_later(rule, reading, check) {
            None => (Verdict::Allowed, Moment::At(turn_us)),
            Some(moment) => (Verdict::Limited, moment),
        };
        Self {
            verdict,
            limit: units(rule.capacity()),
            remaining: units(remaining),
            wait_ms: until.ms_after(check.now_us),
            reset_ms: 0,
        }
    }

    /// When a rule admits its cost; if that is now, the time of the check.
    pub(crate) fn admits(rule: &Rule, reading: Reading, check: &Check<'_>) -> Moment {
        Self::admits_later(rule, reading, check).unwrap_or(Moment::At(check.now_us))
    }

    /// When a rule will admit the cost that it denies now; `None` if it admits the cost now.
    #[inline(always)]
    fn admits_later(rule: &Rule, reading: Reading, check: &Check<'_>) -> Option<Moment> {
        if !rule.can_ever_admit(check.cost_of(rule)) {
            Some(Moment::Never)
        } else if rule.limit() == 0 {
            None
        } else {
            // The state may be read at a time that the clock has yet to reach.
            Some(reading.admits).filter(|&admits| admits > Moment::At(reading.at_us))
        }
    }

    /// Allows a check that repeats a hold. The check may proceed at the turn that the hold was given.
    pub(crate) const fn allow(&mut self, turn_ms: i64) {
        (self.verdict, self.wait_ms) = (Verdict::Allowed, turn_ms);
    }

    /// True if this decision denies the check; a shadow's decision never does.
    pub fn is_denial_by(&self, rule: &Rule) -> bool {
        self.verdict == Verdict::Limited && !rule.is_shadow()
    }

    /// Subtracts a cost that was consumed.
    #[inline]
    pub(crate) fn take(&mut self, cost: u32) {
        self.remaining = self.remaining.saturating_sub(cost.into()).max(0);
    }

    /// True if this decision takes precedence over another as the answer. A longer denial comes
    /// first. If neither denies, the decision that admits its own cost fewer times comes first: this
    /// compares `remaining / cost` as fractions. A cost of 0 can be admitted any number of times.
    #[inline(always)]
    pub(crate) fn precedes(&self, cost: u32, other: &Self, other_cost: u32) -> bool {
        let denies = |decision: &Self| decision.verdict != Verdict::Allowed;
        if denies(self) || denies(other) {
            let longer = length(self.wait_ms) > length(other.wait_ms);
            return denies(self) && (longer || !denies(other));
        }
        match (cost, other_cost) {
            (cost, other_cost) if cost == other_cost => self.remaining < other.remaining,
            (0, _) => false,
            (_, 0) => true,
            (cost, other_cost) => {
                i128::from(self.remaining).wrapping_mul(other_cost.into())
                    < i128::from(other.remaining).wrapping_mul(cost.into())
            }
        }
    }
}

impl<'a> Check<'a> {
    /// The shadows that would have denied the check.
    pub fn shadowed<'d>(
        &self,
        decisions: &'d [Decision],
    ) -> impl Iterator<Item = &'a Rule> + Clone + use<'a, 'd> {
        let limited = |(rule, decision): &(&'a Rule, &'d Decision)| {
            rule.is_shadow() && decision.verdict == Verdict::Limited
        };
        self.rules.iter().zip(decisions).filter(limited).map(|(rule, _)| rule)
    }

    /// Takes the turns back that rules gave to a check which is denied.
    pub(crate) fn take_turns_back(decisions: &mut [Decision]) {
        let allows = |decision: &&mut Decision| decision.verdict == Verdict::Allowed;
        decisions.iter_mut().filter(allows).for_each(|decision| decision.wait_ms = 0);
    }

    /// True if a rule denies.
    pub(crate) fn is_denied(&self, decisions: &[Decision]) -> bool {
        self.denials(decisions).next().is_some()
    }

    /// The rules that deny, with their decisions.
    pub fn denials<'d>(
        &self,
        decisions: &'d [Decision],
    ) -> impl Iterator<Item = (&'a Rule, &'d Decision)> {
        self.rules.iter().zip(decisions).filter(|(rule, decision)| decision.is_denial_by(rule))
    }

    /// The deciding rule and its decision; of equal rules the first, `None` if all are shadows. If a
    /// rule denies, the rule that denies longest decides. Otherwise the rule with the least
    /// remaining/cost decides, and its wait is the longest turn of all rules.
    #[inline]
    pub fn deciding_rule(&self, decisions: &[Decision]) -> Option<(&'a Rule, Decision)> {
        let (mut turn_ms, mut deciding) = (0, None::<(&Rule, Decision)>);
        for (rule, decision) in self.rules.iter().zip(decisions) {
            if rule.is_shadow() {
                continue;
            }
            turn_ms = longer(turn_ms, decision.wait_ms);
            let cost = self.cost_of(rule);
            if deciding.is_none_or(|(of, one)| decision.precedes(cost, &one, self.cost_of(of))) {
                deciding = Some((rule, *decision));
            }
        }
        deciding.map(|(rule, decision)| match decision.verdict {
            Verdict::Allowed => (rule, Decision { wait_ms: turn_ms, ..decision }),
            Verdict::Limited | Verdict::Blocked => (rule, decision),
        })
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

/// A block set by a rule's `ban=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ban {
    /// The index, in the check, of the rule that set it.
    pub rule: usize,
    /// Its end, in Unix microseconds.
    pub until_us: u64,
}

/// The answer to a check, and what it did to one key.
#[expect(clippy::struct_excessive_bools, reason = "each is an independent answer")]
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
        !matches!(self.change, Change::Nothing) || self.ban_changed()
    }

    /// True if the key got a ban, or its ban ends earlier.
    #[must_use]
    pub const fn ban_changed(&self) -> bool {
        self.ban.is_some() || self.ban_shortened
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;

    #[test]
    fn a_change_or_a_ban_changes_the_key() {
        let none = Outcome::unchanged(Decision::UNDECIDED, 1, None);
        let ban = Some(Ban { rule: 0, until_us: 9 });
        for (outcome, changed) in [
            (none, (false, false)),
            (Outcome { change: Change::Renewed, ..none }, (true, false)),
            (Outcome { ban, ..none }, (true, true)),
            (Outcome { ban_shortened: true, ..none }, (true, true)),
        ] {
            assert_eq!((outcome.changed(), outcome.ban_changed()), changed, "{outcome:?}");
        }
    }
}
