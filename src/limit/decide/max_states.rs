//! How many states a key may hold: clients choose the names of rules, and every
//! check walks all states of its key.
//!
//! Only a check that makes a state can leave too many. How many states it makes and
//! drops is known only after it is recorded, so it is recorded on a copy first. No copy
//! is made if all rules have their states, or if the key has room for one more state
//! for each rule. Replicas and loaders skip this test: they record what a primary did.

use crate::limit::value::check::{Change, Check};
use crate::limit::value::limiter::Limiter;
use crate::rule::Rule;
use std::fmt;

/// A check would leave a key with too many states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyStates {
    /// Which key of the check.
    pub key: usize,
    /// How many states it would hold.
    pub states: usize,
    /// How many it may hold.
    pub max: usize,
}

impl fmt::Display for TooManyStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, max, .. } = self;
        write!(
            f,
            "{states} states, expected at most {max} (ratelimit.max-states); \
             use fewer names and periods of rules for one key, or RL.RESET it"
        )
    }
}

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
    ) -> Result<(), TooManyStates> {
        let consumes = |rule: &&Rule| match change {
            Change::Admitted => true,
            Change::Charged => rule.counts_all(),
            Change::Nothing | Change::HistoryOnly(_) => false,
        };
        if check.rules.iter().filter(consumes).all(|rule| self.state_of(rule).is_some()) {
            return Ok(());
        }
        let held = self.states().len();
        let mut copy = Self::from_parts(self.states().to_vec(), None, None);
        copy.record(&Check { meta: None, ..*check }, change);
        let states = copy.states().len();
        // A key may already hold more, if it was loaded or the setting was lowered. Such a
        // key must not grow.
        if states > max_states.max(held) {
            return Err(TooManyStates { key: 0, states, max: max_states });
        }
        Ok(())
    }
}
