//! The short way to an answer, for what nearly every check is: all its rules
//! look at one state, and the key holds nothing else, or nothing yet; or a block
//! or an exemption answers.
//!
//! ```text
//! one rule                 | pointer -> its state |
//! log rules, any number    | pointer -> the log   |
//! any rules                | pointer -> ... a block or an exemption in force |
//! ```
//!
//! Such a check needs no search for the state of each rule, no thought for
//! other keys, and nothing made or dropped: it reads, consumes and says when
//! all is clear, of one state. What is not as plain as this turns back before
//! anything is changed and goes the long way, in `check`, which decides from
//! the start. Both ways ask the same functions, and come to the same answer.

use super::check::Outcome;
use super::deciding::longest_denier;
use super::decision::{Decision, Verdict};
use crate::limit::algorithm::log::Log;
use crate::limit::algorithm::reading::effective_time;
use crate::limit::algorithm::state::State;
use crate::limit::series::needs::Needs;
use crate::limit::value::limiter::{Change, Check, Limiter};
use crate::rule::{Kind, Rule};

impl Limiter {
    /// As [`Limiter::check_within`]; `None`, and nothing changed but `decisions`, if it
    /// takes the long way.
    pub(crate) fn check_fast(
        &mut self,
        check: &Check<'_>,
        decisions: &mut Vec<Decision>,
    ) -> Option<Outcome> {
        if check.meta.is_some() {
            return None;
        }
        match self.only_state_mut() {
            Some(state) => decide(state, check, decisions),
            None => self.check_untouched(check, decisions),
        }
    }

    /// A block or an exemption in force answers.
    fn check_access(
        &mut self,
        check: &Check<'_>,
        decisions: &mut Vec<Decision>,
    ) -> Option<Outcome> {
        let (kind, summary) = self.access_answer(check.now_us)?;
        let ban_shortened = self.shorten_ban(check.now_us);
        decisions.clear();
        let (change, access) = (Change::Nothing, Some(kind));
        Some(Outcome { summary, change, ban: None, ban_shortened, access })
    }

    /// A key that holds nothing is as good as an empty state.
    fn check_untouched(
        &mut self,
        check: &Check<'_>,
        decisions: &mut Vec<Decision>,
    ) -> Option<Outcome> {
        if !self.is_empty() {
            return self.check_access(check, decisions);
        }
        let (first, others) = check.rules.split_first()?;
        if !others.is_empty() && check.rules.iter().any(|rule| rule.kind() != Kind::Log) {
            return None;
        }
        let mut state = State::new(first, check.now_us);
        let outcome = decide(&mut state, check, decisions)?;
        if outcome.change == Change::Admitted {
            self.add(state);
        }
        Some(outcome)
    }

    /// As [`Limiter::peek`]; `None` if it takes the long way.
    pub(crate) fn peek_fast(
        &self,
        check: &Check<'_>,
        decisions: &mut Vec<Decision>,
    ) -> Option<Outcome> {
        let state = self.only_state()?;
        let [rule] = check.rules else {
            let found = Evaluation::of(state.log()?, check, decisions)?;
            return found.conclude(state, check, Change::Nothing, decisions);
        };
        let (at_us, decision) = look(state, rule, check)?;
        decisions.clear();
        decisions.push(decision);
        Some(outcome(state, rule, check, at_us, Change::Nothing, decision))
    }
}

/// Of a state that all the rules look at, or `None`.
fn decide(state: &mut State, check: &Check<'_>, decisions: &mut Vec<Decision>) -> Option<Outcome> {
    match check.rules {
        [rule] => decide_by(rule, state, check, decisions),
        // Nobody would say what a log has to keep.
        [] => None,
        _ => decide_on_log(state, check, decisions),
    }
}

/// By the one rule of a check.
#[inline(always)]
fn decide_by(
    rule: &Rule,
    state: &mut State,
    check: &Check<'_>,
    decisions: &mut Vec<Decision>,
) -> Option<Outcome> {
    let (at_us, mut decision) = look(state, rule, check)?;
    let denied = decision.verdict != Verdict::Allowed;
    if denied && does_more(rule) {
        return None;
    }
    let change = change(check, denied);
    if change == Change::Admitted {
        state.meter_mut().consume(rule, at_us, check.cost);
        decision.take(check.cost);
    }
    decisions.clear();
    decisions.push(decision);
    Some(outcome(state, rule, check, at_us, change, decision))
}

/// By several log rules.
fn decide_on_log(
    state: &mut State,
    check: &Check<'_>,
    decisions: &mut Vec<Decision>,
) -> Option<Outcome> {
    let log = state.log_mut()?;
    let found = Evaluation::of(log, check, decisions)?;
    let denied = found.denier.is_some();
    if denied && check.rules.iter().any(does_more) {
        return None;
    }
    let change = change(check, denied);
    if change == Change::Admitted {
        log.consume(found.needs, found.at_us, check.cost, false);
        for decision in decisions.iter_mut() {
            decision.take(check.cost);
        }
    }
    found.conclude(state, check, change, decisions)
}

/// What a check does to a state. What was admitted leaves it with something in
/// it: there is no emptied one to drop.
const fn change(check: &Check<'_>, denied: bool) -> Change {
    if denied || check.cost == 0 { Change::Nothing } else { Change::Admitted }
}

/// Whether a denial by this rule also blocks the key, or is charged.
fn does_more(rule: &Rule) -> bool {
    rule.counts_all() || rule.ban_us().is_some()
}

/// What a rule says of a state, and the time the state lives in. `None` if the
/// rule is on trial, looks elsewhere or needs another shape, or if the state is
/// forgotten.
#[inline(always)]
fn look(state: &State, rule: &Rule, check: &Check<'_>) -> Option<(u64, Decision)> {
    if rule.is_shadow() || !state.fits(rule) {
        return None;
    }
    let meter = state.meter();
    let at_us = effective_time(check.now_us, meter.last_us(), rule.period_us())?;
    let reading = meter.read(rule, at_us, check.cost);
    Some((at_us, Decision::of(rule, reading, check)))
}

/// What log rules saw in the log.
#[derive(Clone, Copy, Debug)]
struct Evaluation {
    needs: Needs,
    /// The time the log lives in.
    at_us: u64,
    /// The rule with the longest wait of those that deny, and that wait.
    denier: Option<(usize, i64)>,
}

impl Evaluation {
    /// `None` if a rule is on trial or no log rule, or if the log is forgotten.
    #[inline(always)]
    fn of(log: &Log, check: &Check<'_>, decisions: &mut Vec<Decision>) -> Option<Self> {
        let needs = Needs::of(check.rules);
        let at_us = effective_time(check.now_us, log.last_us(), needs.window_us)?;
        let mut denier = None;
        decisions.clear();
        for (index, rule) in check.rules.iter().enumerate() {
            if rule.is_shadow() || rule.kind() != Kind::Log {
                return None;
            }
            let decision = Decision::of(rule, log.read(rule, at_us, check.cost), check);
            denier = longest_denier(denier, (index, rule, decision));
            decisions.push(decision);
        }
        Some(Self { needs, at_us, denier })
    }

    /// The answer of the deciding rule.
    fn conclude(
        self,
        state: &State,
        check: &Check<'_>,
        change: Change,
        decisions: &mut [Decision],
    ) -> Option<Outcome> {
        let (rule, decision) = check.deciding(self.denier, self.denier.is_some(), decisions)?;
        Some(outcome(state, rule, check, self.at_us, change, decision))
    }
}

/// The answer of a rule, with its reset.
#[inline(always)]
fn outcome(
    state: &State,
    rule: &Rule,
    check: &Check<'_>,
    at_us: u64,
    change: Change,
    decision: Decision,
) -> Outcome {
    debug_assert!(change == Change::Nothing || !state.meter().is_empty(), "nothing was consumed");
    let clears = state.meter().clears(rule, at_us);
    let summary = Decision { reset_ms: clears.after(check.now_us).millis(), ..decision };
    Outcome { summary, change, ban: None, ban_shortened: false, access: None }
}
