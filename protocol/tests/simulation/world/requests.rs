//! Checks: what a client asks for, how the check would be decided, and the decision.

use ratelimit_engine::key::{Change, Check, CheckOptions, Expiry, HoldRequest, Meta, Verdict};
use ratelimit_protocol::effect::Action;
use ratelimit_protocol::waiting::Denial;

use super::keys::Woken;
use super::{BOUNDS, MS_US, RULES, World};
use crate::keyspace::propagated;
use crate::line::Ask;

/// How a request would be decided.
pub(super) enum Look {
    /// Its rules admit it, at this cost.
    Passes(u32),
    /// It repeats a live hold.
    Repeats,
    Later(Denial),
    Decided,
}

impl World {
    pub(super) fn ask(&mut self, key: u8) -> Ask {
        self.requests += 1;
        let repeated = self.held.back().filter(|_| self.rng.u8(..8) == 0);
        if let Some(&repeated) = repeated {
            return repeated;
        }
        let rules = self.rng.usize(..RULES.len());
        let holds = RULES[rules].contains("slots") || self.rng.u8(..4) == 0;
        let cost = self.rng.u32(1..4).min(2);
        let up_to = (self.rng.u8(..4) == 0).then(|| cost + self.rng.u32(..3));
        Ask { key, rules, cost, up_to, hold: holds.then_some(self.requests) }
    }

    /// Calls a function with the check that a request makes now.
    fn with_check<T>(&self, number: u64, ask: Ask, body: impl FnOnce(&Check<'_>) -> T) -> T {
        let id = ask.hold.map(|id| (id.to_string(), id.is_multiple_of(2)));
        let end_us = self.wall_us + 1_500 * MS_US;
        let hold = id.as_ref().map(|(id, refund)| HoldRequest {
            id: id.as_bytes(),
            end_us,
            refund: *refund,
        });
        let meta = number.is_multiple_of(5).then_some(Meta { text: b"who", keep: 3 });
        let options = CheckOptions { up_to: ask.up_to, meta, hold, ..CheckOptions::default() };
        body(&Check::new(&self.rules[ask.rules].0, ask.cost, self.wall_us).with(&options))
    }

    pub(super) fn look(&self, number: u64, ask: Ask) -> Look {
        let limiter = self.seen(ask.key);
        self.with_check(number, ask, |check| {
            let mut decisions = Vec::new();
            let outcome = limiter.peek(check, &mut decisions);
            let seen = outcome.summary;
            let repeats = limiter.repeats_until(check);
            assert!(repeats.is_none_or(|end_us| end_us > self.wall_us), "a hold that has ended");
            match (seen.verdict, u64::try_from(seen.wait_ms)) {
                _ if repeats.is_some() => Look::Repeats,
                (Verdict::Allowed, _) => {
                    Look::Passes(Check { cost: outcome.cost, ..*check }.greatest_cost())
                }
                (Verdict::Limited, Ok(wait_ms)) => {
                    Look::Later(Denial::of(wait_ms, check, &decisions, Some(&limiter)))
                }
                _ => Look::Decided,
            }
        })
    }

    /// Decides a request, as `RL.CHECK` does.
    pub(super) fn check(&mut self, number: u64, ask: Ask) -> Verdict {
        let mut limiter = self.open(ask.key);
        let (verdict, expiry, effects, woken) = self.with_check(number, ask, |check| {
            let renewed = check.options.and_then(|options| options.hold);
            let renewed = renewed.map(|hold| limiter.states_renewed(hold.id, hold.end_us));
            let Ok(outcome) = limiter.check_within(BOUNDS, check, &mut Vec::new()) else {
                return (Verdict::Limited, Expiry::Keep, Vec::new(), Woken::All);
            };
            assert!((ask.cost..=ask.up_to.unwrap_or(ask.cost)).contains(&outcome.cost));
            let expiry = match outcome.changed() {
                true => self.primary.expiry(ask.key, &limiter, self.wall_us),
                false => Expiry::Keep,
            };
            // A renewal needs no rules.
            let rules = match outcome.change {
                Change::Renewed => &[],
                _ => &self.rules[ask.rules].1[..],
            };
            let decided = Check { cost: outcome.cost, ..*check };
            let done = Action::of_check(&decided, outcome.change);
            let ban = limiter.access().filter(|_| outcome.ban_changed());
            let of =
                |action, rules: &[String]| propagated(ask.key, self.wall_us, expiry, action, rules);
            let done = done.map(|action| of(action, rules));
            let ban = ban.map(|ban| of(Action::set(ban, limiter.bans()), &[]));
            let effects = done.into_iter().chain(ban).collect::<Vec<_>>();
            let woken = match outcome.change {
                _ if outcome.ban_changed() => Woken::All,
                Change::Renewed => Woken::Returned(renewed.unwrap_or_default()),
                _ => Woken::Consumed(ask.rules, ask.hold.filter(|_| outcome.held)),
            };
            (outcome.summary.verdict, expiry, effects, woken)
        });
        self.primary.put(ask.key, limiter, expiry);
        effects.iter().for_each(|effect| self.commit(effect, &woken));
        if verdict == Verdict::Allowed && ask.hold.is_some() {
            self.held.push_back(ask);
        }
        verdict
    }
}
