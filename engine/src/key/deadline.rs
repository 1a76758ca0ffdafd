//! When a key should expire.
//!
//! A key never expires early: it lives as long as anything in it matters. It may expire a little
//! late, so that a busy key's expiry does not move at every call.

use crate::algorithm::Moment;
use crate::exact::millis_up;
use crate::rule::SECOND_US;

/// Until when a value matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    until: Moment,
    /// The longest window in the value.
    window_us: u64,
}

/// What to do with a key's expiry, which is an absolute time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// The key's present expiry is right.
    Keep,
    /// Unix milliseconds.
    At(u64),
    /// The key does not expire.
    Never,
}

impl Deadline {
    /// The deadline of a value that does not matter any more.
    pub(crate) const PASSED: Self = Self { until: Moment::At(0), window_us: 0 };

    pub(crate) const fn new(until: Moment, window_us: u64) -> Self {
        Self { until, window_us }
    }

    /// Unix microseconds; `None` if it never passes.
    pub const fn until_us(self) -> Option<u64> {
        match self.until {
            Moment::At(us) => Some(us),
            Moment::Never => None,
        }
    }

    /// The later time and the longer window of two deadlines.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { until: self.until.max(other.until), window_us: self.window_us.max(other.window_us) }
    }

    /// True if a key with this deadline may have expired.
    #[cfg(feature = "testing")]
    pub(crate) fn has_passed(self, at_us: u64) -> bool {
        self.until <= Moment::At(at_us)
    }

    /// What to do with the expiry of a key with this deadline.
    ///
    /// `decided_us` is the time of the decision, `server_us` the server's clock (they differ under
    /// `AT`), and `current_ms` the key's present expiry.
    #[inline]
    pub fn expiry(self, decided_us: u64, server_us: u64, current_ms: Option<u64>) -> Expiry {
        let Moment::At(until_us) = self.until else {
            return current_ms.map_or(Expiry::Keep, |_| Expiry::Never);
        };
        let replayed_us = server_us.saturating_sub(decided_us);
        // Never in the past: Redis 8.6 crashes if an expiry that has passed is moved again.
        let due_ms = millis_up(until_us.saturating_add(replayed_us).max(server_us));
        // The key may expire late by an eighth of the longest window, or by a second if that is
        // longer. Aim at seven eighths of this, because a log's deadline may be rounded up.
        let late_us = (self.window_us / 8).max(SECOND_US);
        let aimed_us = late_us.saturating_sub(late_us / 8);
        let aimed_ms = due_ms.saturating_add(aimed_us / 1_000);
        match current_ms {
            Some(current) if (due_ms..=aimed_ms).contains(&current) => Expiry::Keep,
            _ => Expiry::At(aimed_ms),
        }
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000_000_000;

    fn minute_from_now() -> Deadline {
        Deadline::new(Moment::At(NOW + 60 * SECOND_US), 60 * SECOND_US)
    }

    #[test]
    fn an_expiry_within_the_tolerance_stays() {
        let Expiry::At(at) = minute_from_now().expiry(NOW, NOW, None) else { panic!("not set") };
        let due = NOW / 1_000 + 60_000;
        assert!((due..=due + 7_500).contains(&at), "{at} for {due}");
        assert_eq!(minute_from_now().expiry(NOW, NOW, Some(at)), Expiry::Keep);
        assert_eq!(minute_from_now().expiry(NOW, NOW, Some(due)), Expiry::Keep);
        assert_eq!(minute_from_now().expiry(NOW, NOW, Some(due - 1)), Expiry::At(at));
        assert_eq!(minute_from_now().expiry(NOW, NOW, Some(due + 7_501)), Expiry::At(at));
    }

    #[test]
    fn an_expiry_aims_at_seven_eighths_of_the_tolerance() {
        let due_ms = NOW / 1_000 + 80_000;
        for (window_s, late_ms) in [(1, 875), (7, 875), (80, 8_750)] {
            let deadline = Deadline::new(Moment::At(NOW + 80 * SECOND_US), window_s * SECOND_US);
            assert_eq!(deadline.expiry(NOW, NOW, None), Expiry::At(due_ms + late_ms));
        }
    }

    #[test]
    fn replayed_traffic_counts_from_the_servers_clock() {
        let years = 100_000_000 * SECOND_US;
        let Expiry::At(now) = minute_from_now().expiry(NOW, NOW, None) else { panic!("not set") };
        assert_eq!(
            minute_from_now().expiry(NOW, NOW + years, None),
            Expiry::At(now + years / 1_000)
        );
        assert_eq!(minute_from_now().expiry(NOW, NOW - years, None), Expiry::At(now));
    }

    #[test]
    fn an_expiry_is_never_in_the_past() {
        let later_us = NOW + 3_600 * SECOND_US;
        let expiry = minute_from_now().expiry(later_us, later_us, Some(NOW / 1_000));
        assert_eq!(expiry, Expiry::At(later_us / 1_000 + 6_562));
    }

    #[test]
    fn no_end_means_no_expiry() {
        let deadline = minute_from_now().or(Deadline::new(Moment::Never, 0));
        assert_eq!(deadline.expiry(NOW, NOW, None), Expiry::Keep);
        assert_eq!(deadline.expiry(NOW, NOW, Some(1)), Expiry::Never);
    }
}

#[cfg(all(test, feature = "testing"))]
mod replayed_tests {
    use super::*;
    use crate::key::{Access, AccessEntry, Check, CheckOptions, HoldRequest, Limiter, Meta};
    use crate::rule::{DAY_US, HOUR_US, MINUTE_US, MS_US};
    use crate::tests::rules_of_line;

    const AT_US: u64 = 1_500_000_000_000_000;
    /// Years later.
    const NOW_US: u64 = 1_700_000_000_000_000;

    fn moved(expiry: Expiry, before_ms: u64) -> u64 {
        match expiry {
            Expiry::Keep => before_ms,
            Expiry::At(at_ms) => at_ms,
            Expiry::Never => u64::MAX,
        }
    }

    fn block(until_us: Option<u64>) -> AccessEntry {
        AccessEntry::new(Access::Block, until_us, b"")
    }

    /// What a replayed check leaves, and the key's expiry.
    fn replayed(rules: &str, options: CheckOptions<'_>) -> (Limiter, u64) {
        let (mut limiter, rules) = (Limiter::default(), rules_of_line(rules));
        limiter.check(&Check::new(&rules, 1, AT_US).with(&options), &mut Vec::new());
        let expires_ms = moved(limiter.deadline().expiry(AT_US, NOW_US, None), 0);
        (limiter, expires_ms)
    }

    /// The key's expiry after a command without `AT`.
    fn after(limiter: &Limiter, now_us: u64, expires_ms: Option<u64>) -> u64 {
        let deadline = limiter.deadline_without_at(now_us, expires_ms);
        moved(deadline.expiry(now_us, now_us, expires_ms), expires_ms.unwrap_or(u64::MAX))
    }

    #[test]
    fn a_command_without_at_keeps_what_a_replay_needs() {
        let hold = HoldRequest { id: b"a", end_us: AT_US + HOUR_US, refund: false };
        let meta = Meta { text: b"who", keep: 3 };
        for (rules, options) in [
            ("log:5/h", CheckOptions::default()),
            ("window:5/h bucket:5/m,name=n", CheckOptions::default()),
            ("slots:1", CheckOptions { hold: Some(hold), ..CheckOptions::default() }),
            ("5/s", CheckOptions { meta: Some(meta), ..CheckOptions::default() }),
        ] {
            let (mut limiter, expires_ms) = replayed(rules, options);
            for after_us in [0, MINUTE_US, 59 * MINUTE_US] {
                let now_us = NOW_US + after_us;
                limiter.pause_until(now_us + SECOND_US, now_us, b"");
                assert_eq!(after(&limiter, now_us, Some(expires_ms)), expires_ms);
                limiter.resume();
                assert_eq!(after(&limiter, now_us, Some(expires_ms)), expires_ms);
            }
        }
    }

    #[test]
    fn after_a_long_block_a_key_lives_as_long_as_its_states() {
        let (mut limiter, _) = replayed("log:5/h", CheckOptions::default());
        limiter.set_access(Some(block(None)));
        assert_eq!(after(&limiter, NOW_US, Some(9)), u64::MAX);
        limiter.unblock();
        let later_us = NOW_US + DAY_US;
        let lasts_ms = (later_us + HOUR_US) / MS_US..(later_us + HOUR_US + HOUR_US / 8) / MS_US;
        for expires_ms in [None, Some((NOW_US + 9 * DAY_US) / MS_US)] {
            assert!(lasts_ms.contains(&after(&limiter, later_us, expires_ms)));
        }
    }

    #[test]
    fn after_a_check_by_the_servers_clock_a_command_without_at_keeps_the_expiry() {
        let (limiter, rules) = (&mut Limiter::default(), rules_of_line("bucket:1/h"));
        limiter.check(&Check::new(&rules, 1, NOW_US), &mut Vec::new());
        let expires_ms = moved(limiter.deadline().expiry(NOW_US, NOW_US, None), 0);
        let now_us = NOW_US + MINUTE_US;
        assert_eq!(after(limiter, now_us, Some(expires_ms)), expires_ms);
        let mended_ms = after(limiter, now_us, Some(now_us / MS_US + 1));
        assert_eq!(mended_ms, expires_ms, "a user shortened the expiry");
    }
}
