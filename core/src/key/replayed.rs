//! When a key should expire after a command that takes no `AT`.
//!
//! A replay checks its keys with `AT`, often at times that lie years back. The server keeps the keys
//! as long as it would have kept them then. A block or a pause takes no `AT`. By the server's clock,
//! all that the checks left in the key is long over, but the replay still needs it:
//!
//! ```text
//! clock of the replay   | check, 1/h ============|            it reads the state for an hour
//! server's clock        |                        | expiry     years later
//!                              | RL.BLOCK                     by its clock the state is over
//! ```
//!
//! So a command without `AT` moves the expiry to an earlier time only if the key's remaining time
//! exceeds the longest time for which a check's traces in it can matter (`lasts_us`). In that case, an
//! earlier block or pause set the expiry.

use super::holds::Holds;
use super::{Deadline, Hold, Limiter};
use crate::algorithm::{Moment, NO_TIME_US, State};
use crate::rule::MS_US;
use core::num::NonZeroU64;

impl Limiter {
    /// Until when the value matters after a command at `now_us` that takes no `AT`. `expires_ms` is
    /// the key's expiry before it.
    #[must_use]
    pub fn deadline_without_at(&self, now_us: u64, expires_ms: Option<u64>) -> Deadline {
        let needed_us = now_us.saturating_add(self.lasts_us());
        let expires_us = expires_ms.map_or(u64::MAX, |ms| ms.saturating_mul(MS_US));
        self.deadline().or(Deadline::new(Moment::At(needed_us.min(expires_us)), 0))
    }

    /// How long after a check its traces in this key may matter, in microseconds.
    fn lasts_us(&self) -> u64 {
        let of_state = |state: &State| match state.meter().matters_until() {
            Moment::At(us) => us.saturating_sub(state.meter().last_us()),
            Moment::Never => u64::MAX,
        };
        let of_hold = |hold: &Hold| {
            let stamps = hold.charges().iter().map(|charge| charge.stamp_us);
            let taken_us = stamps.filter(|&stamp_us| stamp_us != NO_TIME_US).min();
            taken_us.map_or(0, |taken_us| hold.end_us().saturating_sub(taken_us))
        };
        let holds = self.holds().into_iter().flat_map(Holds::in_order_of_ids);
        let newest = self.history().and_then(|history| Some((history, history.entries.back()?)));
        let others = [
            self.standing().and_then(|standing| standing.ban_us).map_or(0, NonZeroU64::get),
            self.bans().map_or(0, |bans| bans.span_us),
            newest.map_or(0, |(history, entry)| history.until_us.saturating_sub(entry.time_us)),
        ];
        let states = self.states().iter().map(of_state);
        states.chain(holds.map(of_hold)).chain(others).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Check, CheckOptions, Expiry, HoldRequest, Meta, Standing, StandingEntry};
    use crate::rule::{DAY_US, HOUR_US, MINUTE_US, SECOND_US};
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

    fn block(until_us: Option<u64>) -> StandingEntry {
        StandingEntry::new(Standing::Block, until_us, b"")
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
        limiter.set_standing(Some(block(None)));
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
