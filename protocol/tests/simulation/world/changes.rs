//! The commands that change a key without a check.

use ratelimit_engine::key::{Access, AccessEntry, Check, Limiter, Settlement};
use ratelimit_engine::rule::Kind;
use ratelimit_protocol::effect::{Action, Recorded};

use super::keys::Woken;
use super::{BOUNDS, MS_US, RULES, World};
use crate::line::Ask;

impl World {
    pub(super) fn settle(&mut self) {
        let Some(Ask { key, hold: Some(id), .. }) = self.held.pop_front() else { return };
        let (id, refund) = (id.to_string(), self.rng.bool());
        let (settled, settlement) = match refund {
            true => (Settlement::Refund, Settlement::Refund),
            false => (Settlement::AsCharged, Settlement::AsCharged),
        };
        let id = id.as_bytes();
        let woken = Woken::Returned(self.primary.get(key).states_settled(id, settlement));
        self.change(key, Action::Settle { id, settled }, woken, |limiter, now_us| {
            limiter.settle(id, settlement, now_us)
        });
    }

    pub(super) fn renew(&mut self) {
        let Some(&Ask { key, hold: Some(id), .. }) = self.held.front() else { return };
        let (id, end_us) = (id.to_string(), self.wall_us + 3_000 * MS_US);
        let id = id.as_bytes();
        let woken = Woken::Returned(self.primary.get(key).states_renewed(id, end_us));
        self.change(key, Action::Renew { id, end_us }, woken, |limiter, now_us| {
            limiter.renew(id, end_us, now_us)
        });
    }

    pub(super) fn block(&mut self, key: u8) {
        let kind = if self.rng.bool() { Access::Block } else { Access::Exempt };
        let until_us = Some(self.wall_us + self.rng.u64(1..3_000) * MS_US);
        let entry = AccessEntry::new(kind, until_us, b"why");
        self.change(key, Action::set(&entry, None), Woken::All, |limiter, _| {
            limiter.set_access(Some(entry.clone()));
            true
        });
    }

    pub(super) fn pause(&mut self, key: u8) {
        let (until_us, reason) = (self.wall_us + self.rng.u64(1..3_000) * MS_US, b"429");
        self.change(key, Action::Pause { until_us, reason }, Woken::All, |limiter, now_us| {
            limiter.pause_until(until_us, now_us, reason)
        });
    }

    /// Follows what an upstream says, as `RL.SYNC` does.
    pub(super) fn sync(&mut self, key: u8) {
        let of_line = self.rng.usize(..RULES.len());
        let rule = self.rng.usize(..self.rules[of_line].0.len());
        let rule = self.rules[of_line].0[rule];
        if rule.kind() == Kind::Slots {
            return;
        }
        let remaining = self.rng.u32(..=rule.limit());
        let (mut limiter, now_us) = (self.open(key), self.wall_us);
        let left = |limiter: &Limiter| {
            let mut running = limiter.clone();
            running.set_access(None);
            running.resume();
            running.peek(&Check::new(&[rule], 0, now_us), &mut Vec::new()).summary.remaining
        };
        let had = left(&limiter);
        let synced = limiter.sync(BOUNDS, &mut rule.clone(), remaining, now_us);
        let Ok(units @ 1..) = synced else { return };
        assert_eq!(left(&limiter), had.min(remaining.into()), "what a sync leaves of {rule}");
        let action = Action::Check { recorded: Recorded::Admitted, cost: units, meta: None };
        let woken = Woken::All;
        self.store(key, limiter, action, &[rule.to_string()], &woken);
    }
}
