//! Limits the states of a key: clients choose the names of rules, and every check walks all states
//! of its key.
//!
//! Only a check that creates a state can exceed the limit. How many states it creates and drops is
//! known only once it is recorded, so it is first recorded on a copy. No copy is needed if all
//! rules have their states, or if the key has room for one more state per rule. Replicas and
//! loaders skip this test: they record what a primary did.

use super::refusal::Refusal;
use crate::limit::value::check::{Change, Check, CheckOptions};
use crate::limit::value::limiter::{Compound, Limiter};
use crate::rule::Rule;
impl Limiter {
    /// True if a check with this number of rules might exceed `max_states`.
    #[inline]
    pub(crate) fn may_exceed(&self, rules: usize, max_states: usize) -> bool {
        self.states().len().saturating_add(rules) > max_states
    }

    /// Refuses a change that would leave the key with too many states.
    #[cold]
    pub(crate) fn test_max_states(
        &self,
        check: &Check<'_>,
        change: Change,
        max_states: usize,
    ) -> Result<(), Refusal> {
        let consumes = |rule: &&Rule| check.consumes_from(rule, change);
        if check.rules.iter().filter(consumes).all(|rule| self.state_of(rule).is_some()) {
            return Ok(());
        }
        let held = self.states().len();
        let (states, holds) = (self.states().to_vec(), self.holds().cloned().map(Box::new));
        let mut copy = Self::of(Compound { states, holds, ..Compound::default() });
        let options = CheckOptions { hold: check.hold(), ..CheckOptions::default() };
        copy.record(&check.with(&options), change);
        let states = copy.states().len();
        // A key may already hold more, if it was loaded or the setting was lowered. Such a key may
        // not grow.
        if states > max_states.max(held) {
            return Err(Refusal::TooManyStates { states, max: max_states });
        }
        Ok(())
    }
}
