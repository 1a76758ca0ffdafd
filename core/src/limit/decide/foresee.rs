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
//! Lapses only free units, and a rule that admits goes on admitting. So the first time at
//! which it admits is the least of: its wait as of now, and as of each lapse, with what
//! came back until then. The states that deny are copied, and holds lapse in the copy, one
//! after the other, until the rules admit. Slots read lapses anyway. A key without such
//! holds pays nothing. With very many, a wait is only a lower bound: see `foresight`.

use super::decision::Decision;
use super::foresight::Foresight;
use crate::limit::algorithm::reading::{Moment, Reading};
use crate::limit::algorithm::state::State;
use crate::limit::holds::{Foreseen, Holds};
use crate::limit::series::Take;
use crate::limit::series::needs::Needs;
use crate::limit::value::check::{Check, Verdict};
use crate::limit::value::limiter::Limiter;
use crate::rule::{Kind, Rule};

/// A reset and `next_ms` take account of lapses only while a key has no more holds than this:
/// each allowed check asks for them.
const MOST_HOLDS_FORESEEN: usize = 16;

/// A rule that denies, and when it admits.
struct Denial<'a> {
    rule: &'a Rule,
    admits: Moment,
    /// Units that come back to the log within the rule's window, but were not given back yet.
    returned: u64,
}

impl Denial<'_> {
    fn denies_at(&self, at_us: u64) -> bool {
        self.admits > Moment::At(at_us)
    }

    /// Counts what comes back to the log at a time.
    fn count_returned(&mut self, returned: &[Take], at_us: u64) {
        let out_us = at_us.checked_sub(self.rule.period_us());
        let in_window = returned.iter().filter(|take| Some(take.time_us) > out_us);
        let units = in_window.map(|take| take.units).fold(0, u64::saturating_add);
        self.returned = self.returned.saturating_add(units);
    }

    /// Takes account of what has come back at a time.
    fn look_again(
        &mut self,
        states: &mut Foreseen<'_>,
        place: Option<usize>,
        needs: Needs,
        check: &Check<'_>,
    ) {
        let cost = check.cost_of(self.rule);
        let window_us = needs.window_us_of(self.rule);
        let state = place.and_then(|place| states.state_at(place));
        let reading = state.and_then(|state| state.read(self.rule, window_us, check.now_us, cost));
        let reading = reading.unwrap_or_else(|| Reading::untouched(self.rule, check.now_us));
        let admits = Decision::admits(self.rule, reading, check);
        self.admits = admits.max(Moment::At(check.now_us)).min(self.admits);
    }
}

/// Rules that still deny may admit from a time on at which nobody looks any more.
fn stop_at(us: u64, denials: &mut [Denial<'_>]) {
    for denial in denials {
        denial.admits = denial.admits.min(Moment::At(us));
    }
}

impl Limiter {
    /// The holds, if any gives its charges back when it lapses.
    #[inline]
    fn refunding_holds(&self) -> Option<&Holds> {
        self.holds().filter(|holds| holds.any_refunds())
    }

    /// Shortens the waits of the rules that deny to when they admit with what lapses give
    /// back. Returns whether a wait became shorter.
    #[inline]
    pub(crate) fn foresee_waits(
        &self,
        check: &Check<'_>,
        decisions: &mut [Decision],
        foresight: &mut Foresight,
    ) -> bool {
        let decisions = check.rules.iter().zip(decisions);
        self.foresee_waits_of(decisions, Needs::of(check.rules), check, foresight)
    }

    /// Does what [`Self::foresee_waits`] does, for some rules of a check and what they decided.
    pub(crate) fn foresee_waits_of<'a>(
        &self,
        decisions: impl Iterator<Item = (&'a Rule, &'a mut Decision)>,
        needs: Needs,
        check: &Check<'_>,
        foresight: &mut Foresight,
    ) -> bool {
        self.refunding_holds()
            .is_some_and(|holds| self.foresee(holds, decisions, needs, check, foresight))
    }

    #[cold]
    fn foresee<'a>(
        &self,
        holds: &Holds,
        decisions: impl Iterator<Item = (&'a Rule, &'a mut Decision)>,
        needs: Needs,
        check: &Check<'_>,
        foresight: &mut Foresight,
    ) -> bool {
        let denies =
            |decision: &Decision| decision.verdict == Verdict::Limited && decision.wait_ms > 0;
        let (mut denials, waits): (Vec<Denial<'_>>, Vec<&mut i64>) = decisions
            .filter(|(rule, decision)| rule.kind() != Kind::Slots && denies(decision))
            .map(|(rule, decision)| (self.denial(rule, needs, check), &mut decision.wait_ms))
            .unzip();
        self.admit_earlier(holds, &mut denials, needs, check, foresight);
        let mut shorter = false;
        for (Denial { admits, .. }, wait) in denials.iter().zip(waits) {
            let wait_ms = admits.after(check.now_us).millis();
            shorter |= wait_ms != *wait;
            *wait = wait_ms;
        }
        shorter
    }

    /// When a rule that denies its cost now admits it, without lapses.
    fn denial<'a>(&self, rule: &'a Rule, needs: Needs, check: &Check<'_>) -> Denial<'a> {
        let admits = self.admits(rule, needs, check).max(Moment::At(check.now_us));
        Denial { rule, admits, returned: 0 }
    }

    /// Lets holds lapse in a copy, one after the other, until all rules admit or the command
    /// has examined what it may.
    fn admit_earlier(
        &self,
        holds: &Holds,
        denials: &mut [Denial<'_>],
        needs: Needs,
        check: &Check<'_>,
        foresight: &mut Foresight,
    ) {
        let Some(latest) = denials.iter().map(|denial| denial.admits).max() else { return };
        let mut lapses = holds.refunds_between(check.now_us, latest).peekable();
        let Some(&(_, first_us)) = lapses.peek() else { return };
        let is_read = |state: &State| denials.iter().any(|denial| state.belongs_to(denial.rule));
        let read = self.states().iter().filter(|state| is_read(state));
        if !foresight.may_copy(read, holds.charges()) {
            return stop_at(first_us, denials);
        }
        let mut states = Foreseen::new(self.states(), holds, is_read);
        let places: Vec<_> = denials.iter().map(|denial| states.place_of(denial.rule)).collect();
        while let Some((row, end_us)) = lapses.next() {
            if !foresight.may_examine(holds.charges_of(row).saturating_add(denials.len())) {
                return stop_at(end_us, denials);
            }
            let returned = states.lapse(row);
            for denial in denials.iter_mut().filter(|denial| denial.rule.kind() == Kind::Log) {
                denial.count_returned(returned, end_us);
            }
            // Of holds that lapse at once, all come back before the rules look again.
            let next_us = lapses.peek().map(|&(_, next_us)| next_us);
            if next_us == Some(end_us) {
                continue;
            }
            let check = Check { now_us: end_us, ..*check };
            for (denial, &place) in denials.iter_mut().zip(&places) {
                if !denial.denies_at(end_us) {
                    continue;
                }
                let (rule, cost) = (denial.rule, check.cost_of(denial.rule));
                let may_admit =
                    |next_us| states.may_admit(rule, place, cost, next_us, denial.returned);
                if next_us.is_none_or(may_admit) {
                    if !foresight.may_move(states.entries_to_move()) {
                        return stop_at(end_us, denials);
                    }
                    denial.look_again(&mut states, place, needs, &check);
                }
            }
            if states.log_has_all() {
                denials.iter_mut().for_each(|denial| denial.returned = 0);
            }
            if !denials.iter().any(|denial| denial.denies_at(end_us)) {
                break;
            }
        }
    }

    /// The holds, if any gives its charges back when it lapses and they are so few that each
    /// check can ask for it.
    fn few_refunding_holds(&self) -> Option<&Holds> {
        self.refunding_holds().filter(|holds| holds.len() <= MOST_HOLDS_FORESEEN)
    }

    /// When a rule that denies its cost now admits it, with what lapses give back.
    pub(crate) fn admits_with_lapses(
        &self,
        rule: &Rule,
        needs: Needs,
        check: &Check<'_>,
        foresight: &mut Foresight,
    ) -> Moment {
        let mut denial = self.denial(rule, needs, check);
        if let Some(holds) = self.few_refunding_holds().filter(|_| rule.kind() != Kind::Slots) {
            self.admit_earlier(holds, std::slice::from_mut(&mut denial), needs, check, foresight);
        }
        denial.admits
    }

    /// When a rule has nothing consumed any more, with what lapses give back.
    pub(crate) fn clears(
        &self,
        rule: &Rule,
        needs: Needs,
        now_us: u64,
        foresight: &mut Foresight,
    ) -> Moment {
        let clears = self.clears_without_lapses(rule, needs, now_us);
        let holds = self.few_refunding_holds().filter(|_| rule.kind() != Kind::Slots);
        let earlier =
            |holds| self.clears_with_lapses(holds, rule, needs, now_us, clears, foresight);
        holds.and_then(earlier).unwrap_or(clears)
    }

    /// When a rule has nothing consumed any more, if that is before a time; `None` if the
    /// command has examined what it may.
    #[cold]
    fn clears_with_lapses(
        &self,
        holds: &Holds,
        rule: &Rule,
        needs: Needs,
        now_us: u64,
        mut clears: Moment,
        foresight: &mut Foresight,
    ) -> Option<Moment> {
        let mut states: Option<Foreseen<'_>> = None;
        let reads = |state: &State| state.belongs_to(rule);
        for (row, end_us) in holds.refunds_between(now_us, clears) {
            if Moment::At(end_us) >= clears {
                break;
            }
            if states.is_none() {
                let read = self.states().iter().filter(|state| reads(state));
                if !foresight.may_copy(read, holds.charges()) {
                    return None;
                }
            }
            let states = states.get_or_insert_with(|| Foreseen::new(self.states(), holds, reads));
            states.lapse(row);
            if !foresight.may_examine(holds.charges_of(row))
                || !foresight.may_move(states.entries_to_move())
            {
                return None;
            }
            let place = states.place_of(rule);
            let state = place.and_then(|place| states.state_at(place));
            let window_us = needs.window_us_of(rule);
            let clears_then =
                state.map_or(Moment::At(0), |state| state.clears(rule, window_us, end_us));
            clears = clears.min(clears_then.max(Moment::At(end_us)));
        }
        Some(clears)
    }
}
