//! The fast path, which nearly every check takes. It decides in three cases: all rules read one state,
//! and the key stores nothing else except perhaps a plan; the key is empty; or a block or an exemption
//! answers.
//!
//! ```text
//! one rule                 | pointer -> its state |
//! log rules, any number    | pointer -> the log   |
//! any rules                | pointer -> ... a block or an exemption in effect |
//! ```
//!
//! Such a check has one key, and neither searches for states nor drops any: it reads, decides,
//! consumes and computes its reset. For any other check these functions return `None` before
//! anything is changed, and the general path decides it from the start.
//!
//! Without the fast path (`make bench-instructions`), `RL.CHECK bucket` takes 23 % more
//! instructions, `bucket, denied` 22 %, `log, 60 entries` 19 %, `four log rules` 14 %, `blocked`
//! 13 %, and `RL.PEEK bucket` 15 %.

use super::{Decision, Decisions, Outcome};
use crate::algorithm::{Algorithm, Meter, Needs, State, effective_time};
use crate::key::{Change, Check, Limiter, Verdict};
use crate::rule::{Kind, Rule};

impl Limiter {
    /// Decides as [`Limiter::check_within`] does. If the check needs the general path, returns `None`
    /// and has changed nothing but `decisions`.
    pub fn check_fast(
        &mut self,
        check: &Check<'_>,
        decisions: &mut impl Decisions,
    ) -> Option<Outcome> {
        if check.options.is_some() {
            return None;
        }
        if let Some(state) = self.only_state_mut(check.now_us) {
            return check_state(state, check, decisions);
        }
        if self.is_empty() {
            return self.check_untouched(check, decisions);
        }
        let (access, answer) = self.access_answer(check.now_us)?;
        decisions.clear();
        let ban_shortened = self.shorten_ban(check.now_us);
        Some(Outcome { ban_shortened, ..Outcome::unchanged(answer, check.cost, Some(access)) })
    }

    /// Decides a check of an empty key as if the key had an empty state.
    fn check_untouched(
        &mut self,
        check: &Check<'_>,
        decisions: &mut impl Decisions,
    ) -> Option<Outcome> {
        let (first, others) = check.rules.split_first()?;
        if first.kind() == Kind::Slots {
            return None;
        }
        if !others.is_empty() && check.rules.iter().any(|rule| rule.kind() != Kind::Log) {
            return None;
        }
        let mut state = State::new(first, check.now_us);
        let outcome = check_state(&mut state, check, decisions)?;
        if matches!(outcome.change, Change::Admitted) {
            self.add(state);
        }
        Some(outcome)
    }

    /// Decides as [`Limiter::peek`] does; `None` if the check needs the general path.
    pub(crate) fn peek_fast(
        &self,
        check: &Check<'_>,
        decisions: &mut impl Decisions,
    ) -> Option<Outcome> {
        if check.options.is_some() {
            return None;
        }
        let state = self.only_state(check.now_us)?;
        match check.rules {
            [rule] => {
                let meter = state.fits(rule).then(|| state.meter())?;
                let (at_us, decision) = decide(meter, rule, check)?;
                decisions.clear();
                decisions.push(decision);
                Some(answer(meter, rule, check, at_us, Change::Nothing, decision))
            }
            _ => {
                let (at_us, _) = decide_by_log(state, check, decisions)?;
                let (rule, decision) = check.deciding_rule(decisions)?;
                Some(answer(state.meter(), rule, check, at_us, Change::Nothing, decision))
            }
        }
    }
}

/// Checks a state that all rules read; `None` if some rule does not.
fn check_state(
    state: &mut State,
    check: &Check<'_>,
    decisions: &mut impl Decisions,
) -> Option<Outcome> {
    match check.rules {
        [rule] => check_rule(state, rule, check, decisions),
        _ => check_log(state, check, decisions),
    }
}

/// Checks a state by the one rule of a check.
#[inline(always)]
fn check_rule(
    state: &mut State,
    rule: &Rule,
    check: &Check<'_>,
    decisions: &mut impl Decisions,
) -> Option<Outcome> {
    if !state.fits(rule) {
        return None;
    }
    let meter = state.meter_mut();
    let (at_us, mut decision) = decide(meter, rule, check)?;
    let denied = decision.verdict != Verdict::Allowed;
    if denied && rule.denial_changes_key() {
        return None;
    }
    let cost = check.cost_of(rule);
    let change = change(cost, denied);
    if matches!(change, Change::Admitted) {
        meter.consume(rule, at_us, cost);
        decision.take(cost);
    }
    decisions.clear();
    decisions.push(decision);
    Some(answer(meter, rule, check, at_us, change, decision))
}

/// Checks a log by several log rules.
fn check_log(
    state: &mut State,
    check: &Check<'_>,
    decisions: &mut impl Decisions,
) -> Option<Outcome> {
    let (at_us, needs) = decide_by_log(state, check, decisions)?;
    let denied = check.is_denied(decisions);
    if denied && check.rules.iter().any(Rule::denial_changes_key) {
        return None;
    }
    // All log rules cost the same.
    let cost = check.rules.first().map_or(0, |rule| check.cost_of(rule));
    let change = change(cost, denied);
    if matches!(change, Change::Admitted) {
        state.log_mut()?.admit(needs, at_us, cost);
        for decision in decisions.iter_mut() {
            decision.take(cost);
        }
    }
    let (rule, decision) = check.deciding_rule(decisions)?;
    Some(answer(state.meter(), rule, check, at_us, change, decision))
}

/// What a check of this cost does to a state. An admitted cost never leaves the state empty, so no
/// state has to be dropped.
const fn change(cost: u32, denied: bool) -> Change {
    if denied || cost == 0 { Change::Nothing } else { Change::Admitted }
}

/// What a rule decides, and the time at which it reads the meter. `None` if the rule is a shadow, or
/// if it sees an untouched state because the clock stepped back.
#[inline(always)]
fn decide(meter: &Meter, rule: &Rule, check: &Check<'_>) -> Option<(u64, Decision)> {
    if rule.is_shadow() {
        return None;
    }
    let at_us = effective_time(check.now_us, meter.last_us(), rule.period_us())?;
    Some((at_us, Decision::of(rule, meter.read(rule, at_us, check.cost_of(rule)), check)))
}

/// Lets several log rules decide on the log. Returns the time at which they read it, and their combined
/// needs. Returns `None` in three cases: one of the rules is a shadow or not a log rule; the rules see
/// an untouched log, because the clock stepped back; or there are no rules, so nothing says what the
/// log has to keep.
#[inline(always)]
fn decide_by_log(
    state: &State,
    check: &Check<'_>,
    decisions: &mut impl Decisions,
) -> Option<(u64, Needs)> {
    let reads_log = |rule: &Rule| rule.kind() == Kind::Log && !rule.is_shadow();
    if check.rules.is_empty() || !check.rules.iter().all(reads_log) {
        return None;
    }
    let (log, needs) = (state.log()?, Needs::of(check.rules));
    let at_us = effective_time(check.now_us, log.last_us(), needs.window_us)?;
    decisions.clear();
    for rule in check.rules {
        let reading = log.read_inline(rule, at_us, check.cost_of(rule));
        decisions.push(Decision::of(rule, reading, check));
    }
    Some((at_us, needs))
}

/// A rule's decision as the answer, with its reset.
#[inline(always)]
fn answer(
    meter: &Meter,
    rule: &Rule,
    check: &Check<'_>,
    at_us: u64,
    change: Change,
    decision: Decision,
) -> Outcome {
    debug_assert!(matches!(change, Change::Nothing) || !meter.is_empty(), "nothing was consumed");
    let reset_ms = meter.clears(rule, at_us).ms_after(check.now_us);
    Outcome { change, ..Outcome::unchanged(Decision { reset_ms, ..decision }, check.cost, None) }
}
