//! Blocks, exemptions, bans, pauses and plans of a key.

use super::{Access, AccessEntry, BanCount, Limiter, Pause, PauseAndPlan, Plan};
use crate::algorithm::Moment;
use crate::rule::MAX_PERIOD_US;
use alloc::boxed::Box;

impl Limiter {
    /// The block or exemption, even if it has ended.
    pub fn access(&self) -> Option<&AccessEntry> {
        self.compound()?.access.as_deref()
    }

    /// The block or exemption in effect at `now_us`.
    pub fn access_at(&self, now_us: u64) -> Option<&AccessEntry> {
        self.access().filter(|access| access.in_effect(now_us))
    }

    /// Sets, replaces or lifts a block or an exemption.
    pub fn set_access(&mut self, access: Option<AccessEntry>) {
        self.change(|compound| compound.access = access.map(Box::new));
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
    pub fn set_ban(&mut self, ban: AccessEntry, count: Option<BanCount>) {
        self.change(|compound| {
            compound.access = Some(Box::new(ban));
            if let Some(count) = count {
                compound.bans = Some(Box::new(count));
            }
        });
    }

    /// Makes a ban end no later than `now_us` plus its length. If the clock stepped back since the
    /// ban was set, the ban would otherwise last longer by that step. Returns true if the end moved.
    pub(crate) fn shorten_ban(&mut self, now_us: u64) -> bool {
        let Some(compound) = self.compound_mut() else { return false };
        let shortened = compound.access.as_mut().is_some_and(|access| access.shorten(now_us));
        if shortened && let Some(count) = &mut compound.bans {
            **count = count.as_of(now_us);
        }
        shortened
    }

    /// Drops the count of bans if its time has passed. A remaining count is forgotten no later than
    /// `now_us` plus its span, even if the clock stepped back.
    pub(super) fn forget_bans(&mut self, now_us: u64) {
        let Some(count) = self.bans().copied() else { return };
        let left = Some(count.as_of(now_us)).filter(|count| count.is_remembered(now_us));
        if left != Some(count) {
            self.change(|compound| compound.bans = left.map(Box::new));
        }
    }

    /// True if the key is blocked, or its bans are remembered, at `now_us`.
    pub fn can_unblock(&self, now_us: u64) -> bool {
        let blocks = |access: &AccessEntry| access.kind == Access::Block;
        self.access_at(now_us).is_some_and(blocks) || self.bans_at(now_us).is_some()
    }

    /// Lifts a block or a ban, and forgets all bans.
    pub fn unblock(&mut self) {
        self.change(|compound| {
            compound.access.take_if(|access| access.kind == Access::Block);
            compound.bans = None;
        });
    }

    /// The pause, even if it has ended.
    pub fn pause(&self) -> Option<&Pause> {
        self.pause_and_plan()?.pause.as_deref()
    }

    /// The pause in effect at `now_us`.
    pub fn pause_at(&self, now_us: u64) -> Option<&Pause> {
        self.pause().filter(|pause| pause.in_effect(now_us))
    }

    /// Pauses the key from `now_us` on, for at most [`MAX_PERIOD_US`], unless a pause in effect
    /// lasts at least as long. Returns true if the key changed.
    pub fn pause_until(&mut self, until_us: u64, now_us: u64, reason: &[u8]) -> bool {
        let grows = self.pause_at(now_us).is_none_or(|pause| pause.until_us < until_us);
        if grows {
            let length_us = until_us.saturating_sub(now_us).min(MAX_PERIOD_US);
            let pause = Pause { until_us, length_us, reason: reason.into() };
            self.set_pause_and_plan(|both| both.pause = Some(Box::new(pause)));
        }
        grows
    }

    /// Ends the pause.
    pub fn resume(&mut self) {
        self.set_pause_and_plan(|both| both.pause = None);
    }

    pub(super) fn pause_and_plan(&self) -> Option<&PauseAndPlan> {
        self.compound()?.pause_and_plan.as_deref()
    }

    pub(super) fn set_pause_and_plan(&mut self, set: impl FnOnce(&mut PauseAndPlan)) {
        self.change(|compound| {
            set(compound.pause_and_plan.get_or_insert_default());
            compound.pause_and_plan.take_if(|both| **both == PauseAndPlan::default());
        });
    }

    /// The plan, even if it has ended.
    pub fn plan(&self) -> Option<&Plan> {
        self.pause_and_plan()?.plan.as_deref()
    }

    /// The plan in effect at `now_us`.
    pub fn plan_at(&self, now_us: u64) -> Option<&Plan> {
        self.plan().filter(|plan| plan.ends() > Moment::At(now_us))
    }

    /// Binds a plan, which replaces any earlier one, or unbinds it.
    pub fn set_plan(&mut self, plan: Option<Plan>) {
        self.set_pause_and_plan(|both| both.plan = plan.map(Box::new));
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::check::Decision;
    use crate::key::{Check, CheckOptions, HoldRequest, Verdict};
    use crate::rule::{MS_US, SECOND_US};
    use crate::tests::rules_of_line;

    const NOW_US: u64 = 1_700_000_000_000_000;

    fn paused(until_us: u64) -> Limiter {
        let mut limiter = Limiter::default();
        assert!(limiter.pause_until(until_us, NOW_US, b"429"));
        limiter
    }

    fn check(limiter: &mut Limiter, rules: &str, now_us: u64) -> (i64, [i64; 4]) {
        let rules = rules_of_line(rules);
        let check = Check::new(&rules, 1, now_us);
        let seen = limiter.peek(&check, &mut Vec::new()).summary;
        let Decision { verdict, limit, remaining, wait_ms, reset_ms } =
            limiter.check(&check, &mut Vec::new()).summary;
        assert_eq!((seen.verdict, seen.wait_ms), (verdict, wait_ms), "a peek");
        (verdict.code(), [limit, remaining, wait_ms, reset_ms])
    }

    #[test]
    fn a_pause_denies_until_its_end_and_charges_nothing() {
        let mut limiter = Limiter::default();
        assert_eq!(check(&mut limiter, "10/s", NOW_US), (0, [10, 9, 0, 1_000]));
        assert!(limiter.pause_until(NOW_US + 30 * SECOND_US, NOW_US, b""));
        assert_eq!(check(&mut limiter, "10/s", NOW_US), (1, [0, 0, 30_000, 30_000]));
        assert!(!limiter.pause_until(NOW_US + 5 * SECOND_US, NOW_US, b"shorter"));
        assert!(!limiter.pause_until(NOW_US + 30 * SECOND_US, NOW_US, b"as long"));
        let later_us = NOW_US + 10 * SECOND_US;
        assert_eq!(check(&mut limiter, "10/s,count=all", later_us), (1, [0, 0, 20_000, 20_000]));
        limiter.resume();
        assert_eq!(check(&mut limiter, "10/s", later_us), (0, [10, 9, 0, 1_000]));
        let mut limiter = paused(NOW_US + 1);
        assert_eq!(check(&mut limiter, "1/s", NOW_US), (1, [0, 0, 1, 1]));
        assert_eq!(check(&mut limiter, "1/s", NOW_US + 1).0, 0, "it has ended");
        assert_eq!(limiter.pause(), None, "the next change drops it");
    }

    #[test]
    fn a_longer_wait_of_a_rule_is_the_answer() {
        let mut limiter = Limiter::default();
        check(&mut limiter, "1/m", NOW_US);
        limiter.pause_until(NOW_US + 30 * SECOND_US, NOW_US, b"");
        assert_eq!(check(&mut limiter, "1/m,ban=1h", NOW_US), (1, [1, 0, 60_000, 60_000]));
        assert_eq!(limiter.access(), None, "no ban");
        assert_eq!(check(&mut limiter, "1/m,shadow", NOW_US), (1, [0, 0, 30_000, 30_000]));
        limiter.pause_until(NOW_US + 61 * SECOND_US, NOW_US, b"");
        assert_eq!(check(&mut limiter, "1/m", NOW_US), (1, [0, 0, 61_000, 61_000]));
    }

    #[test]
    fn a_block_and_an_exemption_take_precedence_over_a_pause() {
        for (kind, code) in [(Access::Block, 2), (Access::Exempt, 0)] {
            let mut limiter = paused(NOW_US + SECOND_US);
            limiter.set_access(Some(AccessEntry::new(kind, None, b"")));
            assert_eq!(check(&mut limiter, "1/s", NOW_US).0, code);
        }
    }

    #[test]
    fn a_repeat_of_a_live_hold_is_allowed() {
        let (mut limiter, rules) = (Limiter::default(), rules_of_line("slots:1"));
        let hold = |id| HoldRequest { id, end_us: NOW_US + SECOND_US, refund: false };
        let verdict_of = |id: &'static [u8], limiter: &mut Limiter| {
            let options = CheckOptions { hold: Some(hold(id)), ..CheckOptions::default() };
            let check = Check::new(&rules, 1, NOW_US).with(&options);
            limiter.check(&check, &mut Vec::new()).summary.verdict
        };
        assert_eq!(verdict_of(b"a", &mut limiter), Verdict::Allowed);
        limiter.pause_until(NOW_US + 9 * MS_US, NOW_US, b"");
        assert_eq!(verdict_of(b"a", &mut limiter), Verdict::Allowed);
        assert_eq!(verdict_of(b"b", &mut limiter), Verdict::Limited);
    }

    #[test]
    fn a_reset_keeps_a_pause_and_the_key_lives_until_its_end() {
        let mut limiter = paused(NOW_US + 5 * SECOND_US);
        check(&mut limiter, "1/s", NOW_US);
        assert!(!limiter.reset(NOW_US), "nothing was consumed");
        assert_eq!(limiter.pause_at(NOW_US).map(|pause| &*pause.reason), Some(&b"429"[..]));
        assert_eq!(limiter.pause_at(NOW_US).map(|pause| pause.left_ms(NOW_US)), Some(5_000));
        let saved = crate::key::encode(&limiter);
        assert_eq!(crate::key::decode(&saved), Ok(limiter));
    }

    #[test]
    fn a_refund_drops_a_pause_only_after_its_end() {
        let (mut limiter, rules) = (Limiter::default(), rules_of_line("10/m"));
        limiter.check(&Check::new(&rules, 3, NOW_US), &mut Vec::new());
        assert!(limiter.pause_until(NOW_US + SECOND_US, NOW_US, b""));
        for (now_us, is_paused) in [(NOW_US, true), (NOW_US + SECOND_US, false)] {
            assert_eq!(limiter.refund(1, now_us, &rules), 1);
            assert_eq!(limiter.pause().is_some(), is_paused);
        }
    }

    #[test]
    fn a_reset_drops_an_ended_block_and_keeps_one_in_effect() {
        let rules = rules_of_line("5/m");
        for (until_us, stays) in [(9, false), (10, false), (11, true)] {
            let mut limiter = Limiter::default();
            limiter.check(&Check::new(&rules, 1, 5), &mut Vec::new());
            let block = AccessEntry::new(Access::Block, Some(until_us), b"");
            limiter.set_access(Some(block));
            assert!(limiter.reset(10));
            assert_eq!(!limiter.is_empty(), stays, "until {until_us}");
        }
    }
}
