//! The honest wait, and the reset, of a key whose holds come back when they lapse.
//!
//! A denied rule admits after its wait if nothing else happens. But a hold with `REFUND`
//! gives back its charges when it lapses, which may be earlier:
//!
//! ```text
//!   now        lapse       lapse                    wait of the rule
//!    |-----------|-----------|--------------------------|
//!                      ^ with what came back, it admits from here on
//! ```
//!
//! Lapses only free units, and a rule that admits goes on admitting. So a search by bisection
//! among the lapses finds the first after which the rule admits at once: it lets holds lapse in a
//! copy of the rule's state. The rule admits then, or between the lapse before and this one, as
//! the copy says. Long steps come after short ones, since few lapses are enough for most denials.
//!
//! Slots read lapses anyway. A key without such holds pays nothing. With very many, a wait is only
//! a lower bound: see `foresight`.

use super::decision::Decision;
use super::evaluation::Evaluation;
use super::foresight::Foresight;
use crate::limit::algorithm::reading::{Moment, Reading};
use crate::limit::holds::{Foreseen, Holds};
use crate::limit::value::check::{Check, Verdict};
use crate::limit::value::limiter::Limiter;
use crate::rule::{Kind, Rule};
use std::slice;

/// A reset and `next_ms` take account of lapses only while a key has no more holds than this:
/// each allowed check asks for them.
const MOST_HOLDS_FORESEEN: usize = 16;

/// By how much each step of the search is longer than the one before.
const STEP_GROWTH: usize = 8;

impl Limiter {
    /// The holds, if any gives its charges back when it lapses.
    #[inline]
    fn refunding_holds(&self) -> Option<&Holds> {
        self.holds().filter(|holds| holds.any_refunds())
    }

    /// Shortens the waits of the rules that deny to when they admit with what lapses give
    /// back, and decides again which denial is the longest.
    pub(crate) fn foresee_waits(
        &self,
        check: &Check<'_>,
        evaluation: &mut Evaluation,
        decisions: &mut [Decision],
        foresight: &mut Foresight,
    ) {
        if self.refunding_holds().is_none() {
            return;
        }
        for (rule, decision) in check.rules.iter().zip(decisions.iter_mut()) {
            if decision.verdict == Verdict::Limited {
                let admits = self.admits_with_lapses(rule, check, foresight);
                decision.wait_ms = admits.after(check.now_us).millis();
            }
        }
        evaluation.settle_denials(check.rules, decisions);
    }

    /// When a rule admits its cost, with what lapses give back.
    pub(crate) fn admits_with_lapses(
        &self,
        rule: &Rule,
        check: &Check<'_>,
        foresight: &mut Foresight,
    ) -> Moment {
        let admits = self.admits(rule, check);
        if admits == Moment::Never {
            return admits;
        }
        let (cost, window_us) = (check.cost_of(rule), check.window_us_of(rule));
        let admits_in = |then: &mut Foreseen<'_>, at_us, guess_until: Option<u64>| {
            if let Some(until_us) = guess_until {
                let may_admit = then.may_admit(rule, cost, at_us, until_us);
                return if may_admit { Moment::At(at_us) } else { Moment::Never };
            }
            let check = Check { now_us: at_us, ..*check };
            let reading = then.state().read(rule, window_us, at_us, cost);
            let reading = reading.unwrap_or_else(|| Reading::untouched(rule, at_us));
            Decision::admits(rule, reading, &check)
        };
        let is_log = rule.kind() == Kind::Log;
        let foreseen = self.look_ahead(rule, check.now_us, admits, admits_in, is_log, foresight);
        foreseen.unwrap_or_else(|earliest| earliest)
    }

    /// Whether lapses give back charges of a key, and it has so few holds that each check can look
    /// ahead at them.
    #[inline]
    pub(crate) fn has_few_refunding_holds(&self) -> bool {
        self.refunding_holds().is_some_and(|holds| holds.len() <= MOST_HOLDS_FORESEEN)
    }

    /// When a rule has nothing consumed any more, with what lapses give back.
    pub(crate) fn clears(
        &self,
        rule: &Rule,
        check: &Check<'_>,
        foresight: &mut Foresight,
    ) -> Moment {
        let (now_us, window_us) = (check.now_us, check.window_us_of(rule));
        let clears = if rule.kind() == Kind::Slots {
            self.slots(rule, now_us).map(|slots| slots.clears())
        } else {
            self.state_of(rule).map(|state| state.clears(rule, window_us, now_us))
        };
        let clears = clears.unwrap_or(Moment::At(0));
        if !self.has_few_refunding_holds() {
            return clears;
        }
        let clears_in =
            |then: &mut Foreseen<'_>, at_us, _| then.state().clears(rule, window_us, at_us);
        self.look_ahead(rule, now_us, clears, clears_in, false, foresight).unwrap_or(clears)
    }

    /// The first time at which something holds for a rule, with what lapses give back: without
    /// them it is `latest`, and `first_in` says it for a state as of a time.
    ///
    /// Giving units back to a log copies its entries. So most looks are guesses if it `may_guess`,
    /// and the lapse that they find is looked at again. A guess is asked with the time of the next
    /// lapse: `first_in` answers at once if it might hold before that, else never.
    ///
    /// # Errors
    /// No earlier than which it is, if the command has spent its budget.
    #[cold]
    fn look_ahead(
        &self,
        rule: &Rule,
        now_us: u64,
        latest: Moment,
        first_in: impl Fn(&mut Foreseen<'_>, u64, Option<u64>) -> Moment,
        may_guess: bool,
        foresight: &mut Foresight,
    ) -> Result<Moment, Moment> {
        let holds = self.refunding_holds().filter(|_| rule.kind() != Kind::Slots);
        let mut places = self.states().iter().enumerate();
        let read = places.find(|(_, state)| state.belongs_to(rule));
        let (Some(holds), Some((place, state))) = (holds, read) else { return Ok(latest) };
        let Some(mut seen) = Foreseen::new(place, state, holds) else { return Ok(latest) };
        // The first lapse after which it holds at once is among these, or behind them. If all
        // guesses are right, it is before `guessed`, or there.
        let mut places = holds.lapses_between(now_us, latest);
        let (mut guessed, mut first, mut step) = (places.end, latest, 0);
        while !places.is_empty() {
            let half = guessed.saturating_sub(places.start) / 2;
            let Some(at_us) = holds.end_at(places.start.saturating_add(step.min(half))) else {
                break;
            };
            let lapse = places.start..holds.lapsed(at_us);
            let guesses = may_guess && guessed > places.start;
            let guess_until = holds.end_at(lapse.end).filter(|_| guesses);
            let copied = if guess_until.is_some() { &[] } else { slice::from_ref(state) };
            if !foresight.may_look(copied, holds, lapse.len()) {
                break;
            }
            let mut then = seen.clone();
            then.lapse(lapse.clone());
            let first_then = first_in(&mut then, at_us, guess_until);
            if first_then <= Moment::At(at_us) {
                guessed = holds.lapses_between(now_us, Moment::At(at_us)).end;
                if !guesses {
                    places.end = guessed;
                }
            } else {
                (seen, first, places.start) = (then, first_then, lapse.end);
                if !guesses {
                    guessed = places.end;
                }
            }
            step = step.max(1).saturating_mul(STEP_GROWTH);
        }
        let next = holds.end_at(places.start).map_or(Moment::Never, Moment::At);
        let foreseen = first.min(next);
        if places.is_empty() { Ok(foreseen) } else { Err(foreseen) }
    }
}
