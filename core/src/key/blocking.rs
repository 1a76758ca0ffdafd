//! Blocks, exemptions and bans of a key.

use super::{BanCount, Limiter, Standing, StandingEntry};
use alloc::boxed::Box;

impl Limiter {
    /// The block or exemption, even if it has ended.
    pub fn standing(&self) -> Option<&StandingEntry> {
        self.compound()?.standing.as_deref()
    }

    /// The block or exemption in effect at `now_us`.
    pub fn standing_at(&self, now_us: u64) -> Option<&StandingEntry> {
        self.standing().filter(|standing| standing.in_effect(now_us))
    }

    /// Sets, replaces or lifts a block or an exemption.
    pub fn set_standing(&mut self, standing: Option<StandingEntry>) {
        self.change(|compound| compound.standing = standing.map(Box::new));
    }

    /// The count of bans, even if its time has passed.
    pub fn bans(&self) -> Option<&BanCount> {
        self.compound()?.bans.as_deref()
    }

    /// The count of bans still remembered at `now_us`.
    pub fn bans_at(&self, now_us: u64) -> Option<&BanCount> {
        self.bans().filter(|count| count.is_remembered(now_us))
    }

    /// Blocks the key with a rule's ban. If `count` is `None`, the key keeps its count.
    pub fn set_ban(&mut self, ban: StandingEntry, count: Option<BanCount>) {
        self.change(|compound| {
            compound.standing = Some(Box::new(ban));
            if let Some(count) = count {
                compound.bans = Some(Box::new(count));
            }
        });
    }

    /// Shortens a ban to its length from now if the clock stepped back since the ban was set,
    /// because it would otherwise last longer by that step. Returns true if it did.
    pub fn shorten_ban(&mut self, now_us: u64) -> bool {
        let Some(compound) = self.compound_mut() else { return false };
        let shortened = compound.standing.as_mut().is_some_and(|standing| standing.shorten(now_us));
        if shortened && let Some(count) = &mut compound.bans {
            **count = count.as_of(now_us);
        }
        shortened
    }

    /// Forgets the bans whose time has passed. If the clock stepped back, the remaining ones are
    /// forgotten after their span from now.
    pub(super) fn forget_bans(&mut self, now_us: u64) {
        let Some(count) = self.bans().copied() else { return };
        let left = Some(count.as_of(now_us)).filter(|count| count.is_remembered(now_us));
        if left != Some(count) {
            self.change(|compound| compound.bans = left.map(Box::new));
        }
    }

    /// True if the key is blocked, or its bans are remembered, at `now_us`.
    pub fn can_be_pardoned(&self, now_us: u64) -> bool {
        let blocks = |standing: &StandingEntry| standing.kind == Standing::Block;
        self.standing_at(now_us).is_some_and(blocks) || self.bans_at(now_us).is_some()
    }

    /// Lifts a block or a ban, and forgets all bans.
    pub fn pardon(&mut self) {
        self.change(|compound| {
            compound.standing.take_if(|standing| standing.kind == Standing::Block);
            compound.bans = None;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Check;

    #[test]
    fn a_reset_drops_an_ended_block_and_keeps_one_in_effect() {
        let rules = crate::tests::rules_of_line("5/m");
        for (until_us, stays) in [(9, false), (10, false), (11, true)] {
            let mut limiter = Limiter::default();
            limiter.check(&Check::new(&rules, 1, 5), &mut Vec::new());
            let (kind, reason) = (Standing::Block, Box::default());
            let block = StandingEntry { kind, until_us: Some(until_us), ban_us: None, reason };
            limiter.set_standing(Some(block));
            assert!(limiter.reset(10));
            assert_eq!(!limiter.is_empty(), stays, "until {until_us}");
        }
    }
}
