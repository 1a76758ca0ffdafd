//! A check of one key: on the fast path if it can take it, else on the general one.

use super::decision::Decision;
use super::evaluation::Evaluation;
use super::foresight::Foresight;
use super::keys::{KeyCheck, check_keys};
use super::outcome::Outcome;
use super::refusal::{Bounds, CheckError};
use super::wait::{Waiting, until_all_admit};
use crate::limit::value::check::Check;
use crate::limit::value::limiter::Limiter;

impl Limiter {
    /// Decides, and consumes if the answer says so. `decisions` gets one decision a
    /// rule, or none if a block or an exemption answers; their resets are left for
    /// [`Self::fill_resets`].
    ///
    /// # Errors
    /// [`CheckError`], and nothing changed, if the key would come to hold more than it may, or
    /// if the check repeats a hold with another cost.
    #[inline]
    pub fn check_within(
        &mut self,
        bounds: Bounds,
        check: &Check<'_>,
        decisions: &mut Vec<Decision>,
    ) -> Result<Outcome, CheckError> {
        // The fast path leaves one state at most.
        match self.check_fast(check, decisions) {
            Some(outcome) => Ok(outcome),
            None => self.check_general(bounds, check, decisions),
        }
    }

    /// Does what [`Self::check_within`] does, on the general path: for callers that have tried the
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
        let mut keys = [KeyCheck::new(self, *check)];
        check_keys(&mut keys, bounds, decisions)?;
        let [key] = &keys;
        Ok(*key.outcome())
    }

    /// Checks a key that may hold any number of states.
    #[cfg(any(test, fuzzing))]
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
        self.peek_within(check, decisions, &mut Foresight::of_command())
    }

    /// Does what [`Self::peek_general`] does, as a part of a command.
    pub(crate) fn peek_within(
        &self,
        check: &Check<'_>,
        decisions: &mut Vec<Decision>,
        foresight: &mut Foresight,
    ) -> Outcome {
        decisions.clear();
        if let Some((access, answer)) = self.access_answer(check.now_us) {
            let cost = check.granted_by([].iter());
            return Outcome::unchanged(answer, cost, Some(access));
        }
        if self.lapse_matters(check.now_us) {
            return self.as_of(check.now_us).peek_within(check, decisions, foresight);
        }
        let mut evaluation =
            Evaluation::of(self.states(), self.holds(), check, |decision| decisions.push(decision));
        self.foresee_waits(check, &mut evaluation, decisions, foresight);
        let denied = evaluation.denies();
        let cost = if denied { check.cost } else { check.granted_by(decisions.iter()) };
        if cost != check.cost {
            return self.peek_within(&Check { cost, ..*check }, decisions, foresight);
        }
        let summary = self.summary(check, &evaluation, denied, decisions, foresight);
        let mut summary = summary.map_or(Decision::UNDECIDED, |deciding| deciding.decision);
        if denied && evaluation.passed_over {
            let key = Waiting { limiter: self, check: *check, repeats_until_us: None };
            summary.wait_ms = until_all_admit(std::iter::once(key), summary.wait_ms, foresight);
        }
        Outcome::unchanged(summary, cost, None)
    }
}
