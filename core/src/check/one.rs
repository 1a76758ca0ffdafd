//! A check of one key: on the fast path if it can take it, else on the general one.

use super::{Bounds, Budget, CheckError, Decision, KeyCheck, Outcome, View, check_keys, peek_key};
use crate::algorithm::Moment;
use crate::key::{Check, Limiter, Standing, Verdict};
use alloc::{borrow::Cow, vec::Vec};
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
        decisions: &mut Vec<Decision>,
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
        decisions: &mut Vec<Decision>,
    ) -> Result<Outcome, CheckError> {
        let mut key = KeyCheck::new(self, *check);
        check_keys(slice::from_mut(&mut key), bounds, decisions)?;
        Ok(*key.outcome())
    }

    /// Checks a key that may hold any number of states.
    #[cfg(any(test, feature = "testing"))]
    #[allow(clippy::expect_used, reason = "only for tests")]
    pub fn check(&mut self, check: &Check<'_>, decisions: &mut Vec<Decision>) -> Outcome {
        self.check_within(Bounds::ANY, check, decisions).expect("room for any number")
    }

    /// Decides as [`Self::check_within`] does, but changes nothing.
    #[inline]
    pub fn peek(&self, check: &Check<'_>, decisions: &mut Vec<Decision>) -> Outcome {
        self.peek_fast(check, decisions).unwrap_or_else(|| self.peek_general(check, decisions))
    }

    /// Does what [`Self::peek`] does, on the general path.
    #[inline(never)]
    pub(crate) fn peek_general(&self, check: &Check<'_>, decisions: &mut Vec<Decision>) -> Outcome {
        self.peek_within(check, decisions, &Budget::of_command())
    }

    /// Does what [`Self::peek_general`] does, within the budget of a command.
    pub(crate) fn peek_within(
        &self,
        check: &Check<'_>,
        decisions: &mut Vec<Decision>,
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
    pub(crate) fn standing_answer(&self, now_us: u64) -> Option<(Standing, Decision)> {
        let standing = self.standing_at(now_us)?;
        let answer = match standing.kind {
            Standing::Exempt => Decision::UNDECIDED,
            Standing::Block => Decision::blocked(standing.left_ms(now_us)),
        };
        Some((standing.kind, answer))
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
