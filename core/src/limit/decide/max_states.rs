//! How many states a key may hold: clients choose the names of rules, and every
//! check walks all states of its key.
//!
//! Only a check that makes a state can leave too many. How many states it makes and
//! drops is known only after it is recorded, so it is recorded on a copy first. No copy
//! is made if all rules have their states, or if the key has room for one more state
//! for each rule. Replicas and loaders skip this test: they record what a primary did.

use super::refusal::Refusal;
use crate::limit::value::check::{Change, Check, CheckOptions};
use crate::limit::value::limiter::Limiter;
use crate::rule::Rule;
impl Limiter {
    /// Whether a check with this number of rules might leave too many states.
    #[inline]
    pub(crate) fn may_exceed(&self, rules: usize, max_states: usize) -> bool {
        self.states().len().saturating_add(rules) > max_states
    }

    /// Tests whether a change would leave the key with too many states.
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
        let mut copy =
            Self::from_parts(self.states().to_vec(), None, None, None, self.holds().cloned());
        let options = CheckOptions { hold: check.hold(), ..CheckOptions::default() };
        copy.record(&check.with(&options), change);
        let states = copy.states().len();
        // A key may already hold more, if it was loaded or the setting was lowered. Such a
        // key must not grow.
        if states > max_states.max(held) {
            return Err(Refusal::TooManyStates { states, max: max_states });
        }
        Ok(())
    }
}
