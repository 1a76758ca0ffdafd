//! A check that passes through one of several keys (`RL.MCHECK ... ANY`).
//!
//! ```text
//! each key         a peek, which changes nothing, says whether the key admits
//! some key admits  one of them is checked as a single key; the other keys stay unchanged
//! no key admits    each key denies as a single key; the denial with the least wait is the answer
//! ```

use super::keys::{commit, evaluate, plan};
use super::{Bounds, Budget, CheckError, Decision, KeyCheck, Outcome, length};
use crate::key::{Check, Limiter, Verdict};
use alloc::vec::Vec;
use core::slice;

impl Limiter {
    /// Checks as [`Self::check_within`] does if the key admits the check. If the key denies it, returns
    /// `None` and has changed nothing but `decisions`.
    ///
    /// # Errors
    /// Those of [`Self::check_within`].
    pub fn check_if_admitted(
        &mut self,
        bounds: Bounds,
        check: &Check<'_>,
        decisions: &mut Vec<Decision>,
        budget: &Budget,
    ) -> Result<Option<Outcome>, CheckError> {
        // On the fast path, only a denial by a block can change something.
        let fast = if self.access().is_none() { self.check_fast(check, decisions) } else { None };
        match fast {
            Some(outcome) => Ok(Some(outcome).filter(|outcome| !outcome.denied)),
            None if self.left_after(check, decisions, budget).is_none() => Ok(None),
            None => self.check_general(bounds, check, decisions).map(Some),
        }
    }

    /// The number of units that would remain after the check; [`i64::MAX`] if no rule decides. `None`
    /// if the key denies the check. `decisions` is overwritten.
    pub fn left_after(
        &self,
        check: &Check<'_>,
        decisions: &mut Vec<Decision>,
        budget: &Budget,
    ) -> Option<i64> {
        let outcome = self
            .peek_fast(check, decisions)
            .unwrap_or_else(|| self.peek_within(check, decisions, budget));
        if outcome.denied {
            return None;
        }
        let decided = Check { cost: outcome.cost, ..*check };
        let deciding = decided.deciding_rule(decisions);
        Some(deciding.map_or(i64::MAX, |(rule, mut decision)| {
            decision.take(decided.cost_of(rule));
            decision.remaining
        }))
    }
}

/// Denies a check on each of several different keys, as if each key were checked alone. Each denial
/// charges `count=all` rules, may ban its key, and enters the history. `decisions` is as in
/// [`check_keys`](super::check_keys). Returns the answer and the index of its key. All keys must deny
/// the check.
///
/// # Errors
/// [`CheckError`] if a key would have too many states. Nothing has changed then.
pub fn deny_each(
    keys: &mut [KeyCheck<'_>],
    bounds: Bounds,
    decisions: &mut Vec<Decision>,
) -> Result<Option<(usize, Decision)>, CheckError> {
    let budget = &Budget::of_command();
    evaluate(keys, decisions, budget)?;
    for (index, key) in keys.iter_mut().enumerate() {
        let tested = plan(slice::from_mut(key), bounds, decisions, budget);
        tested.map_err(|error| CheckError { key: index, ..error })?;
    }
    for key in keys.iter_mut() {
        commit(slice::from_mut(key), true, decisions, budget);
    }
    let answers = keys.iter().map(|key| key.outcome().summary).enumerate();
    let nearest = answers.clone().min_by_key(|(_, answer)| length(answer.wait_ms));
    let all_blocked = answers.clone().all(|(_, answer)| answer.verdict == Verdict::Blocked);
    let verdict = if all_blocked { Verdict::Blocked } else { Verdict::Limited };
    Ok(nearest.map(|(index, answer)| (index, Decision { verdict, ..answer })))
}
