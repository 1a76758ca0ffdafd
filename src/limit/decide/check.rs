//! A check of one key: on the fast path if it can take it, else on the general one.

use super::decision::Decision;
use super::evaluation::Evaluation;
use super::keys::{KeyCheck, check_keys};
use super::max_states::TooManyStates;
use super::outcome::{Conclusion, Outcome};
use super::wait::until_all_admit;
use crate::limit::value::check::Check;
use crate::limit::value::limiter::Limiter;

impl Limiter {
    /// Decides, and consumes if the answer says so. `decisions` gets one decision a
    /// rule, or none if a block or an exemption answers; their resets are left for
    /// [`Self::fill_resets`].
    ///
    /// # Errors
    /// [`TooManyStates`], and nothing changed, if the key would come to hold more than
    /// `max_states`, which is 1 or more.
    #[inline]
    pub fn check_within(
        &mut self,
        max_states: usize,
        check: &Check<'_>,
        decisions: &mut Vec<Decision>,
    ) -> Result<Outcome, TooManyStates> {
        // The fast path leaves one state at most.
        match self.check_fast(check, decisions) {
            Some(outcome) => Ok(outcome),
            None => self.check_general(max_states, check, decisions),
        }
    }

    /// Does what [`Self::check_within`] does, on the general path.
    #[inline(never)]
    pub(crate) fn check_general(
        &mut self,
        max_states: usize,
        check: &Check<'_>,
        decisions: &mut Vec<Decision>,
    ) -> Result<Outcome, TooManyStates> {
        let mut keys = [KeyCheck::new(self, *check)];
        let Conclusion { summary, .. } = check_keys(&mut keys, max_states, decisions)?;
        let [key] = &keys;
        Ok(Outcome {
            summary,
            change: key.change(),
            ban: key.ban(),
            ban_shortened: key.ban_shortened(),
            access: key.access(),
        })
    }

    /// Checks a key that may hold any number of states.
    #[cfg(test)]
    pub fn check(&mut self, check: &Check<'_>, decisions: &mut Vec<Decision>) -> Outcome {
        self.check_within(usize::MAX, check, decisions).expect("room for any number")
    }

    /// Decides as [`Self::check_within`] does, but changes nothing.
    #[inline]
    pub fn peek(&self, check: &Check<'_>, decisions: &mut Vec<Decision>) -> Outcome {
        self.peek_fast(check, decisions).unwrap_or_else(|| self.peek_general(check, decisions))
    }

    /// Does what [`Self::peek`] does, on the general path.
    #[inline(never)]
    pub(crate) fn peek_general(&self, check: &Check<'_>, decisions: &mut Vec<Decision>) -> Outcome {
        decisions.clear();
        if let Some((access, answer)) = self.access_answer(check.now_us) {
            return Outcome::unchanged(answer, Some(access));
        }
        let evaluation = Evaluation::of(self.states(), check, |decision| decisions.push(decision));
        let denied = evaluation.denies();
        let summary = self.summary(check, &evaluation, denied, decisions);
        let mut summary = summary.unwrap_or(Decision::UNDECIDED);
        if denied && evaluation.passed_over {
            summary.wait_ms = until_all_admit(std::iter::once((self, *check)), summary.wait_ms);
        }
        Outcome::unchanged(summary, None)
    }
}
