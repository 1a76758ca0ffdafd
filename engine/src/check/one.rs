//! A check of one key: on the fast path if it can take it, else on the general one.

use super::{
    Bounds, Budget, CheckError, Decision, Decisions, KeyCheck, Outcome, Refusal, View, check_keys,
    peek_key,
};
use crate::algorithm::Moment;
use crate::key::{Access, Change, Check, Limiter, Verdict};
use crate::rule::{MAX_UNITS, Rule};
use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::slice;

impl Limiter {
    /// Decides, and consumes if the check is allowed. `decisions` gets one decision per rule, or
    /// none if a block or an exemption answers. [`Self::fill_resets`] fills in their resets.
    ///
    /// # Errors
    /// [`CheckError`] if the key would have too many states or holds, or if the check repeats a hold
    /// with another cost. Nothing has changed then.
    #[inline]
    pub fn check_within(
        &mut self,
        bounds: Bounds,
        check: &Check<'_>,
        decisions: &mut impl Decisions,
    ) -> Result<Outcome, CheckError> {
        // The fast path leaves at most one state, so it exceeds no bound.
        match self.check_fast(check, decisions) {
            Some(outcome) => Ok(outcome),
            None => self.check_general(bounds, check, decisions),
        }
    }

    /// Does what [`Self::check_within`] does, on the general path, for callers that have tried the
    /// fast one.
    ///
    /// # Errors
    /// Those of [`Self::check_within`].
    #[inline(never)]
    pub fn check_general(
        &mut self,
        bounds: Bounds,
        check: &Check<'_>,
        decisions: &mut impl Decisions,
    ) -> Result<Outcome, CheckError> {
        let mut key = KeyCheck::new(self, *check);
        check_keys(slice::from_mut(&mut key), bounds, decisions)?;
        Ok(*key.outcome())
    }

    /// Checks a key that may hold any number of states.
    #[cfg(feature = "testing")]
    #[allow(clippy::expect_used, reason = "only for tests")]
    pub fn check(&mut self, check: &Check<'_>, decisions: &mut impl Decisions) -> Outcome {
        self.check_within(Bounds::ANY, check, decisions).expect("room for any number")
    }

    /// Decides as [`Self::check_within`] does, but changes nothing.
    #[inline]
    pub fn peek(&self, check: &Check<'_>, decisions: &mut impl Decisions) -> Outcome {
        self.peek_fast(check, decisions).unwrap_or_else(|| self.peek_general(check, decisions))
    }

    /// Does what [`Self::peek`] does, on the general path.
    #[inline(never)]
    pub(crate) fn peek_general(
        &self,
        check: &Check<'_>,
        decisions: &mut impl Decisions,
    ) -> Outcome {
        self.peek_within(check, decisions, &Budget::of_command())
    }

    /// Does what [`Self::peek_general`] does, within the budget of a command.
    pub(crate) fn peek_within(
        &self,
        check: &Check<'_>,
        decisions: &mut impl Decisions,
        budget: &Budget,
    ) -> Outcome {
        let seen = self.as_of(check.now_us);
        let mut outcome = peek_key(KeyCheck::new(&*seen, *check), decisions, budget);
        let summary = &mut outcome.summary;
        if matches!(seen, Cow::Owned(_)) && summary.verdict == Verdict::Limited {
            let view = View { limiter: self, check, budget };
            summary.wait_ms = view.wait_with_holds_ahead(summary.wait_ms);
        }
        outcome
    }

    /// The answer of a block or an exemption, if one is in effect.
    pub(crate) fn access_answer(&self, now_us: u64) -> Option<(Access, Decision)> {
        let access = self.access_at(now_us)?;
        let answer = match access.kind {
            Access::Exempt => Decision::UNDECIDED,
            Access::Block => Decision::blocked(access.left_ms(now_us)),
        };
        Some((access.kind, answer))
    }
}

impl View<'_> {
    /// The wait of a denied peek of this key, which includes the holds that lie ahead of the clock.
    /// `wait_ms` is the wait if these holds never come back.
    fn wait_with_holds_ahead(self, mut wait_ms: i64) -> i64 {
        let Some(holds) = self.limiter.holds() else { return wait_ms };
        let mut back_us = holds.next_back_us(self.check.now_us);
        while let (Some(at_us), 0..) = (back_us, wait_ms) {
            let back_ms = Moment::At(at_us).ms_after(self.check.now_us);
            if back_ms > wait_ms {
                break;
            }
            let Some((limiter, check, _)) = self.later(at_us) else { return back_ms };
            let key = KeyCheck::new(&*limiter, check);
            let then = peek_key(key, &mut Vec::new(), self.budget).summary;
            wait_ms = match (then.verdict, then.wait_ms) {
                (Verdict::Allowed, _) => return back_ms,
                (Verdict::Limited | Verdict::Blocked, then_ms @ 0..) => {
                    back_ms.saturating_add(then_ms)
                }
                (Verdict::Limited | Verdict::Blocked, never) => never,
            };
            back_us = holds.next_back_us(check.now_us);
        }
        wait_ms
    }
}

impl Limiter {
    /// Consumes units until the rule has `remaining` left, as one check of that cost would. Returns
    /// the number of units consumed. If the rule's text has a cost, also sets the rule's cost to
    /// that number. Never gives units back, because checks of this key may be newer than what the
    /// upstream said.
    ///
    /// Consumes at most [`MAX_UNITS`], since no check costs more. The capacity of a `leaky` rule
    /// may be one unit larger, so call this until it returns 0.
    ///
    /// # Errors
    /// [`Refusal`] if the key would have too many states. Nothing has changed then.
    pub fn sync(
        &mut self,
        bounds: Bounds,
        rule: &mut Rule,
        remaining: u32,
        now_us: u64,
    ) -> Result<u32, Refusal> {
        let check = Check::new(slice::from_ref(rule), 0, now_us);
        let budget = &Budget::of_command();
        let left = View { limiter: self, check: &check, budget }.read(rule).remaining;
        let units = left.saturating_sub(remaining.into()).min(MAX_UNITS.into());
        let units = u32::try_from(units).unwrap_or(MAX_UNITS);
        if units == 0 {
            return Ok(0);
        }
        if rule.cost().own().is_some() {
            rule.set_named_cost(units);
        }
        let check = Check::new(slice::from_ref(rule), units, now_us);
        self.test_max_states(&check, Change::Admitted, bounds.max_states)?;
        self.record(&check, Change::Admitted);
        Ok(units)
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::key::Verdict;
    use crate::tests::rules_of_line;
    use proptest::prelude::*;

    const NOW_US: u64 = 1_700_000_000_000_000;

    fn peek(limiter: &Limiter, rule: &Rule, now_us: u64) -> i64 {
        let check = Check::new(slice::from_ref(rule), 0, now_us);
        limiter.peek(&check, &mut Vec::new()).summary.remaining
    }

    fn rule() -> impl Strategy<Value = Rule> {
        prop_oneof![
            Just("20/m"),
            Just("window:20/m"),
            Just("fixed:20/m,keep=2"),
            Just("bucket:20/m,burst=30"),
            Just("bucket:20/m,refill=interval"),
            Just("leaky:20/m,queue=9"),
            Just("20/m,cost=3,name=a"),
        ]
        .prop_map(|text| rules_of_line(text).remove(0))
    }

    proptest! {
        /// After a sync, no more remains than the upstream said. The sync changes the key as a check
        /// of the consumed units does.
        #[test]
        fn a_sync_only_lowers_what_remains(
            rule in rule(),
            before in prop::collection::vec((1..9_u32, 0..40_000_000_u64), 0..5),
            remaining in 0..40_u32,
        ) {
            let (mut limiter, mut now_us) = (Limiter::default(), NOW_US);
            let mut costly = rule;
            for (cost, after_us) in before {
                now_us += after_us;
                costly.set_named_cost(cost);
                limiter.check(&Check::new(slice::from_ref(&costly), 1, now_us), &mut Vec::new());
            }
            let (left, mut as_check, mut synced) = (peek(&limiter, &rule, now_us), limiter.clone(), rule);
            let units = limiter.sync(Bounds::ANY, &mut synced, remaining, now_us).unwrap();
            prop_assert_eq!(peek(&limiter, &rule, now_us), left.min(remaining.into()));
            prop_assert_eq!(i64::from(units), (left - i64::from(remaining)).max(0));
            if units > 0 {
                let mut costly = rule;
                costly.set_named_cost(units);
                let check = Check::new(slice::from_ref(&costly), 1, now_us);
                let answer = as_check.check(&check, &mut Vec::new()).summary;
                prop_assert_eq!(answer.verdict, Verdict::Allowed);
                prop_assert_eq!(synced.cost().or(units), units);
            }
            prop_assert_eq!(limiter, as_check);
        }
    }

    #[test]
    fn a_sync_consumes_no_more_at_once_than_a_check_can_cost() {
        let most = MAX_UNITS.to_string();
        for text in [format!("leaky:{most}/366d"), format!("leaky:1/366d,queue={most},cost=7")] {
            let (mut limiter, mut rule) = (Limiter::default(), rules_of_line(&text).remove(0));
            let mut sync = |remaining| {
                let units = limiter.sync(Bounds::ANY, &mut rule, remaining, NOW_US).unwrap();
                (units, peek(&limiter, &rule, NOW_US))
            };
            assert_eq!([sync(0), sync(0), sync(0)], [(MAX_UNITS, 1), (1, 0), (0, 0)], "{text}");
        }
    }

    #[test]
    fn a_sync_that_exceeds_max_states_is_refused() {
        let (mut limiter, mut rules) = (Limiter::default(), rules_of_line("window:5/s window:5/m"));
        let bounds = Bounds { max_states: 1, ..Bounds::ANY };
        assert_eq!(limiter.sync(bounds, &mut rules[0], 2, NOW_US), Ok(3));
        let refused = limiter.sync(bounds, &mut rules[1], 2, NOW_US);
        assert_eq!(refused, Err(Refusal::TooManyStates { states: 2, max: 1 }));
    }
}
