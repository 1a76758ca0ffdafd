//! What a pause does to a key.

use super::{Limiter, Pause};
use crate::rule::MAX_PERIOD_US;
use alloc::boxed::Box;

impl Limiter {
    /// The pause, even if it has ended.
    pub fn pause(&self) -> Option<&Pause> {
        self.compound()?.pause.as_deref()
    }

    /// The pause in effect at `now_us`.
    pub fn pause_at(&self, now_us: u64) -> Option<&Pause> {
        self.pause().filter(|pause| pause.in_effect(now_us))
    }

    /// Pauses the key from `now_us` on, for at most [`MAX_PERIOD_US`], unless a pause in effect lasts
    /// as long. Returns true if the key changed.
    pub fn pause_until(&mut self, until_us: u64, now_us: u64, reason: &[u8]) -> bool {
        let grows = self.pause_at(now_us).is_none_or(|pause| pause.until_us < until_us);
        if grows {
            let length_us = until_us.saturating_sub(now_us).min(MAX_PERIOD_US);
            let pause = Pause { until_us, length_us, reason: reason.into() };
            self.change(|compound| compound.pause = Some(Box::new(pause)));
        }
        grows
    }

    /// Ends the pause.
    pub fn resume(&mut self) {
        self.change(|compound| compound.pause = None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Decision;
    use crate::key::{Check, CheckOptions, HoldRequest, Standing, StandingEntry, Verdict};
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
        assert_eq!(limiter.pause(), None, "the next change forgets it");
    }

    #[test]
    fn a_longer_wait_of_a_rule_is_the_answer() {
        let mut limiter = Limiter::default();
        check(&mut limiter, "1/m", NOW_US);
        limiter.pause_until(NOW_US + 30 * SECOND_US, NOW_US, b"");
        assert_eq!(check(&mut limiter, "1/m,ban=1h", NOW_US), (1, [1, 0, 60_000, 60_000]));
        assert_eq!(limiter.standing(), None, "nobody is banned");
        assert_eq!(check(&mut limiter, "1/m,shadow", NOW_US), (1, [0, 0, 30_000, 30_000]));
        limiter.pause_until(NOW_US + 61 * SECOND_US, NOW_US, b"");
        assert_eq!(check(&mut limiter, "1/m", NOW_US), (1, [0, 0, 61_000, 61_000]));
    }

    #[test]
    fn a_block_and_an_exemption_precede_a_pause() {
        for (kind, code) in [(Standing::Block, 2), (Standing::Exempt, 0)] {
            let mut limiter = paused(NOW_US + SECOND_US);
            let (until_us, ban_us, reason) = (None, None, Box::default());
            limiter.set_standing(Some(StandingEntry { kind, until_us, ban_us, reason }));
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
    fn a_refund_ends_only_a_pause_that_has_passed() {
        let (mut limiter, rules) = (Limiter::default(), rules_of_line("10/m"));
        limiter.check(&Check::new(&rules, 3, NOW_US), &mut Vec::new());
        assert!(limiter.pause_until(NOW_US + SECOND_US, NOW_US, b""));
        for (now_us, is_paused) in [(NOW_US, true), (NOW_US + SECOND_US, false)] {
            assert_eq!(limiter.refund(1, now_us, &rules), 1);
            assert_eq!(limiter.pause().is_some(), is_paused);
        }
    }
}
