//! The key's value: everything known about one identifier.
//!
//! ```text
//! Limiter, 16 bytes
//! | pointer -> one state |  or  | pointer | -> states, block or exemption, history
//! ```
//!
//! Most keys are checked by one rule, or by log rules that share one log: they
//! have one state. A limiter is then as small as what the server keeps of a
//! key (the name, the object, the type), and comes to lie beside it.

use super::access::AccessEntry;
use super::check::{Change, Check, Verdict};
use super::deadline::Deadline;
use super::history::{Entry, History};
use crate::limit::algorithm::reading::Moment;
use crate::limit::algorithm::state::State;
use crate::limit::heap::{HeapVisitor, block_of};
use crate::limit::series::needs::Needs;
use crate::rule::{Kind, Rule};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limiter {
    parts: Contents,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Contents {
    #[default]
    Nothing,
    One(State),
    /// Never what the other two could hold.
    Compound(Box<Compound>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Compound {
    /// In the order they came.
    states: Vec<State>,
    access: Option<AccessEntry>,
    history: Option<Box<History>>,
}

impl Limiter {
    /// A limiter of parts that were saved.
    pub(crate) fn from_parts(
        states: Vec<State>,
        access: Option<AccessEntry>,
        history: Option<History>,
    ) -> Self {
        let mut limiter = Self::default();
        limiter.change(|many| *many = Compound { states, access, history: history.map(Box::new) });
        limiter
    }

    /// Nothing left in it: the key can go.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self.parts, Contents::Nothing)
    }

    /// Where what a check looks at first lies; see `State::block`.
    #[must_use]
    #[inline]
    pub fn first_block(&self) -> *const [u8] {
        match &self.parts {
            Contents::Nothing => &[],
            Contents::One(state) => state.block(),
            Contents::Compound(many) => block_of(&**many),
        }
    }

    /// Every state, in the order they came.
    pub(crate) fn states(&self) -> &[State] {
        match &self.parts {
            Contents::Nothing => &[],
            Contents::One(state) => std::slice::from_ref(state),
            Contents::Compound(many) => &many.states,
        }
    }

    fn states_mut(&mut self) -> &mut [State] {
        match &mut self.parts {
            Contents::Nothing => &mut [],
            Contents::One(state) => std::slice::from_mut(state),
            Contents::Compound(many) => &mut many.states,
        }
    }

    /// The state of a limiter that holds nothing else.
    #[inline]
    pub(crate) const fn only_state(&self) -> Option<&State> {
        match &self.parts {
            Contents::One(state) => Some(state),
            _ => None,
        }
    }

    #[inline]
    pub(crate) const fn only_state_mut(&mut self) -> Option<&mut State> {
        match &mut self.parts {
            Contents::One(state) => Some(state),
            _ => None,
        }
    }

    /// The state a rule looks at.
    pub(crate) fn state_of(&self, rule: &Rule) -> Option<&State> {
        self.states().iter().find(|state| state.belongs_to(rule))
    }

    /// The state a rule looks at; a new one if the key has no such state yet.
    fn state_for(&mut self, rule: &Rule, check: &Check<'_>) -> Option<&mut State> {
        let place = self.states().iter().position(|state| state.belongs_to(rule));
        let place = place.unwrap_or_else(|| {
            self.drop_stale(check);
            self.add(State::new(rule, check.now_us));
            self.states().len().saturating_sub(1)
        });
        self.states_mut().get_mut(place)
    }

    /// Adds a state to those there are.
    pub(crate) fn add(&mut self, state: State) {
        match self.parts {
            Contents::Nothing => self.parts = Contents::One(state),
            _ => self.change(|many| many.states.push(state)),
        }
    }

    fn retain(&mut self, keep: impl Fn(&State) -> bool) {
        if !self.states().iter().all(&keep) {
            self.change(|many| many.states.retain(keep));
        }
    }

    /// Changes the parts, and brings them back to the form they fit in.
    fn change(&mut self, change: impl FnOnce(&mut Compound)) {
        let mut many = match std::mem::take(&mut self.parts) {
            Contents::Nothing => Box::default(),
            Contents::One(state) => {
                Box::new(Compound { states: vec![state], ..Compound::default() })
            }
            Contents::Compound(many) => many,
        };
        change(&mut many);
        let plain = many.access.is_none() && many.history.is_none();
        self.parts = if !plain || many.states.len() > 1 {
            Contents::Compound(many)
        } else {
            many.states.pop().map_or(Contents::Nothing, Contents::One)
        };
    }

    /// Drops states that have not mattered for two windows, so that a key
    /// checked under ever new rules does not grow. (Two: a clock that steps
    /// back by one still finds them.) Not those this check looks at: under
    /// another limit than the one they were consumed under they may matter yet.
    fn drop_stale(&mut self, check: &Check<'_>) {
        self.retain(|state| {
            let grace_us = state.meter().period_us().saturating_mul(2);
            state.meter().matters_until() > Moment::At(check.now_us.saturating_sub(grace_us))
                || check.rules.iter().any(|rule| state.belongs_to(rule))
        });
    }

    /// Records what a check did, unconditionally: deciding was done before, or
    /// on another server. The same call on equal limiters leaves them equal.
    pub fn record(&mut self, check: &Check<'_>, change: Change) {
        if change != Change::Nothing {
            self.drop_ended_access(check.now_us);
        }
        if check.cost > 0 && matches!(change, Change::Admitted | Change::Charged) {
            self.consume(check, change == Change::Charged);
        }
        if let Some(verdict) = change.verdict() {
            self.entry(check, verdict);
        }
    }

    fn consume(&mut self, check: &Check<'_>, denied: bool) {
        let consumes = |rule: &&Rule| !denied || rule.counts_all();
        let needs = Needs::of(check.rules);
        for rule in check.rules.iter().filter(consumes) {
            if rule.name().is_some() {
                self.retain(|state| !state.lost_its_name_to(rule));
            }
            if rule.kind() != Kind::Log
                && let Some(state) = self.state_for(rule, check)
            {
                state.consume(rule, check.now_us, check.cost);
            }
        }
        let log_rule = check.rules.iter().filter(consumes).find(|rule| rule.kind() == Kind::Log);
        if let Some(rule) = log_rule
            && let Some(state) = self.state_for(rule, check)
        {
            state.consume_log(needs, check.now_us, check.cost, denied);
        }
        self.drop_emptied();
    }

    /// Leaves a entry on the history, which a check with `META` starts.
    fn entry(&mut self, check: &Check<'_>, verdict: Verdict) {
        if let Some(meta) = check.meta {
            self.change(|many| many.history.get_or_insert_default().keep = meta.keep);
        }
        if let Contents::Compound(many) = &mut self.parts
            && let Some(history) = &mut many.history
        {
            let meta = check.meta.map(|meta| meta.text.into());
            let entry = Entry { time_us: check.now_us, cost: check.cost, verdict, meta };
            history.leave(entry, check.rules);
        }
    }

    /// The last checks, if a check with `META` asked to keep them.
    #[must_use]
    pub fn history(&self) -> Option<&History> {
        match &self.parts {
            Contents::Compound(many) => many.history.as_deref(),
            _ => None,
        }
    }

    fn drop_emptied(&mut self) {
        self.retain(|state| !state.meter().is_empty());
    }

    /// Gives units back, newest first, to the states of these rules, or to
    /// every state if there are none. The most units that any one state had
    /// to give.
    pub fn refund(&mut self, units: u32, now_us: u64, rules: &[Rule]) -> u64 {
        let needs = Needs::of(rules);
        let mut most = 0;
        for state in self.states_mut() {
            let rule = rules.iter().find(|rule| state.belongs_to(rule));
            let window_us = match rule {
                Some(rule) => needs.window_us_of(rule),
                None if rules.is_empty() => state.meter().period_us(),
                None => continue,
            };
            most = most.max(state.refund(rule, window_us, now_us, units));
        }
        if most > 0 {
            self.drop_ended_access(now_us);
        }
        self.drop_emptied();
        most
    }

    /// Forgets what was consumed, keeps a block or an exemption in force. Whether
    /// there was anything to forget.
    pub fn reset(&mut self, now_us: u64) -> bool {
        let any = !self.states().is_empty();
        if any {
            self.drop_ended_access(now_us);
        }
        self.retain(|_| false);
        any
    }

    /// Drops a block or an exemption that has ended, which would keep the key large
    /// and its checks slow. Called when the key changes anyway, on replicas too.
    fn drop_ended_access(&mut self, now_us: u64) {
        if self.access().is_some_and(|access| !access.in_force(now_us)) {
            self.set_access(None);
        }
    }

    /// Ends a ban after its own length from now, if the clock stepped back since
    /// it was set: otherwise it would last for the step as well. Whether it did.
    pub fn shorten_ban(&mut self, now_us: u64) -> bool {
        let Contents::Compound(many) = &mut self.parts else { return false };
        many.access.as_mut().is_some_and(|access| access.shorten(now_us))
    }

    /// The block or exemption, in force or not.
    #[must_use]
    pub fn access(&self) -> Option<&AccessEntry> {
        match &self.parts {
            Contents::Compound(many) => many.access.as_ref(),
            _ => None,
        }
    }

    /// The block or exemption in force at a time.
    #[must_use]
    pub fn access_at(&self, now_us: u64) -> Option<&AccessEntry> {
        self.access().filter(|access| access.in_force(now_us))
    }

    /// Sets, replaces or lifts a block or an exemption.
    pub fn set_access(&mut self, access: Option<AccessEntry>) {
        if access.is_some() || self.access().is_some() {
            self.change(|many| many.access = access);
        }
    }

    /// Until when the value matters.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        let of_state =
            |state: &State| Deadline::new(state.meter().matters_until(), state.meter().period_us());
        match &self.parts {
            Contents::Nothing => Deadline::PASSED,
            Contents::One(state) => of_state(state),
            Contents::Compound(many) => {
                let of_access = many.access.as_ref().map(AccessEntry::deadline);
                let of_history = many.history.as_deref().map(History::deadline);
                let of_states = many.states.iter().map(of_state);
                of_states.chain(of_access).chain(of_history).fold(Deadline::PASSED, Deadline::or)
            }
        }
    }

    /// Shows each heap block held, but for the one the limiter lies in.
    pub fn visit_heap(&mut self, to: &mut impl HeapVisitor) {
        if let Contents::Compound(many) = &mut self.parts {
            to.boxed(many);
            to.vec(&mut many.states);
            if let Some(access) = &mut many.access {
                to.slice(&mut access.reason);
            }
            if let Some(history) = &mut many.history {
                to.boxed(history);
                history.visit_heap(to);
            }
        }
        for state in self.states_mut() {
            state.visit_heap(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::algorithm::debt::Debt;
    use crate::limit::algorithm::fixed::Fixed;
    use crate::limit::algorithm::interval::Interval;
    use crate::limit::algorithm::meter::Meter;
    use crate::limit::algorithm::state::Named;
    use crate::limit::value::access::Access;

    #[test]
    fn a_limiter_with_one_state_is_two_small_blocks() {
        assert_eq!(size_of::<Limiter>(), 16);
        assert_eq!(size_of::<Meter>(), 16);
        assert_eq!(size_of::<State>(), 16);
        assert_eq!(size_of::<Debt>(), 32);
        assert_eq!(size_of::<Named>(), 48);
        assert_eq!(size_of::<Fixed>(), 32);
        assert_eq!(size_of::<Interval>(), 32);
    }

    #[test]
    fn a_reset_drops_an_ended_block_and_keeps_one_in_force() {
        let rules = crate::parse::rules_of_line("5/m");
        for (until_us, stays) in [(9, false), (10, false), (11, true)] {
            let mut limiter = Limiter::default();
            limiter.check(&Check::new(&rules, 1, 5), &mut Vec::new());
            let (kind, reason) = (Access::Block, Box::default());
            let block = AccessEntry { kind, until_us: Some(until_us), ban_us: None, reason };
            limiter.set_access(Some(block));
            assert!(limiter.reset(10));
            assert_eq!(!limiter.is_empty(), stays, "until {until_us}");
        }
    }
}
