//! What a decided check does to a key's value, on this server and on every replica.

use super::{Change, Check, Entry, Limiter, Verdict};
use crate::algorithm::log::{Consumption, Eviction};
use crate::algorithm::{Moment, Needs, State, effective_time};
use crate::rule::{Kind, Rule};
use alloc::vec::Vec;

impl Limiter {
    /// Records what a check did, unconditionally: the check was decided before, or on another
    /// server. Equal calls on equal limiters leave them equal.
    pub fn record(&mut self, check: &Check<'_>, change: Change) {
        let verdict = match change {
            Change::Nothing => return,
            Change::Renewed => {
                if let Some(hold) = check.hold() {
                    self.renew(hold.id, hold.end_us, check.now_us);
                }
                return;
            }
            Change::Admitted => Verdict::Allowed,
            Change::Charged => Verdict::Limited,
            Change::HistoryOnly(verdict) => verdict,
        };
        self.drop_ended(check.now_us);
        if matches!(change, Change::Admitted | Change::Charged) {
            self.consume(check, change);
        }
        self.add_to_history(check, verdict);
    }

    fn consume(&mut self, check: &Check<'_>, change: Change) {
        let consumption =
            if change == Change::Charged { Consumption::Denied } else { Consumption::Admitted };
        let hold = check.hold().filter(|_| consumption == Consumption::Admitted);
        let mut levels: Vec<(&Rule, u128)> = Vec::new();
        if hold.is_some() {
            levels.reserve_exact(check.rules.len());
        }
        let consumes = |rule: &&Rule| check.consumes_from(rule, change);
        for rule in check.rules.iter().filter(consumes) {
            self.take_over_name(rule, check.now_us);
        }
        for rule in check.rules.iter().filter(consumes) {
            if rule.kind() != Kind::Log {
                let before = self.consume_by(rule, check, consumption);
                if hold.is_some() {
                    levels.push((rule, before));
                }
            }
        }
        // A hold has one charge on the log, for one of the log rules. Prefer a rule that is not a
        // shadow, and among these a rule that takes the default cost.
        let logs = check.rules.iter().filter(consumes).filter(|rule| rule.kind() == Kind::Log);
        let log_rule = logs.min_by_key(|rule| (rule.is_shadow(), rule.cost().own().is_some()));
        if let Some(rule) = log_rule {
            self.consume_log(rule, check, consumption);
            if hold.is_some() {
                levels.push((rule, 0));
            }
        }
        if let Some(hold) = hold {
            self.take_hold(hold, check, &levels);
        }
        self.drop_emptied();
    }

    /// Consumes for a rule other than a log rule. Returns the level before that.
    fn consume_by(&mut self, rule: &Rule, check: &Check<'_>, consumption: Consumption) -> u128 {
        let index = self.index_for(rule, check);
        let before = self.level_before(index, rule, check);
        let cost = check.cost_of(rule);
        let (states, holds) = self.states_and_holds();
        if cost > 0
            && let Some(state) = states.get_mut(index)
        {
            let replaced = state.consume(rule, check.now_us, cost);
            match holds {
                Some(holds) if replaced => holds.replace_state(index),
                Some(holds) => holds.note_consumption(index, before, consumption),
                None => {}
            }
        }
        before
    }

    /// Consumes for a check's log rules, which share the log and have the same cost.
    fn consume_log(&mut self, rule: &Rule, check: &Check<'_>, consumption: Consumption) {
        let (index, cost) = (self.index_for(rule, check), check.cost_of(rule));
        if cost == 0 {
            return;
        }
        let needs = Needs::of(check.rules);
        let takes_hold = consumption == Consumption::Admitted && check.hold().is_some();
        let held = self.holds().is_some_and(|holds| holds.track_of(index).is_some());
        let eviction = if takes_hold || held { Eviction::ByAge } else { Eviction::ByNeed };
        let last_us = self.states().get(index).map_or(0, |log| log.meter().last_us());
        let at_us = effective_time(check.now_us, last_us, needs.window_us).unwrap_or_else(|| {
            self.step_log_back(index, needs.window_us, check.now_us);
            check.now_us
        });
        if let Some(log) = self.states_mut().get_mut(index).and_then(State::log_mut) {
            log.add(needs, at_us, cost, consumption, eviction);
        }
    }

    /// Reshapes the state that has a rule's name to fit the rule, or drops the state if it is of
    /// another algorithm. Holds that were charged on the state then lose it.
    fn take_over_name(&mut self, rule: &Rule, now_us: u64) {
        let (states, holds) = self.states_and_holds();
        let mut places = states.iter_mut().enumerate();
        let taken = places.find(|(_, state)| state.is_taken_over_by(rule));
        let Some((place, state)) = taken else { return };
        if state.take_over(rule, now_us) {
            if let Some(holds) = holds {
                holds.replace_state(place);
            }
        } else {
            self.retain(|state, _| !state.is_taken_over_by(rule));
        }
    }

    /// The index of the state that a rule reads, created if missing.
    fn index_for(&mut self, rule: &Rule, check: &Check<'_>) -> usize {
        let index = self.states().iter().position(|state| state.belongs_to(rule));
        index.unwrap_or_else(|| {
            self.drop_stale(check);
            self.add(State::new(rule, check.now_us));
            self.states().len().saturating_sub(1)
        })
    }

    /// Drops states that have not mattered for two windows. Without this, a key would grow when it is
    /// checked under new rules again and again. One window would be too short: a clock that then
    /// steps back by a window makes the state matter again. Keeps the states of this check's rules:
    /// the check may take a hold on them.
    fn drop_stale(&mut self, check: &Check<'_>) {
        self.retain(|state, held| {
            let grace_us = state.meter().period_us().saturating_mul(2);
            held || state.meter().matters_until()
                > Moment::At(check.now_us.saturating_sub(grace_us))
                || check.rules.iter().any(|rule| state.belongs_to(rule))
        });
    }

    /// Adds the check to the history, which only a check with `META` starts.
    fn add_to_history(&mut self, check: &Check<'_>, verdict: Verdict) {
        if let Some(meta) = check.meta() {
            self.change(|compound| compound.history.get_or_insert_default().keep = meta.keep);
        }
        if let Some(history) = self.compound_mut().and_then(|compound| compound.history.as_mut()) {
            let meta = check.meta().map(|meta| meta.text.into());
            let entry = Entry { time_us: check.now_us, cost: check.cost, verdict, meta };
            history.add(entry, check.rules);
        }
    }
}
