//! Why a check is refused. The reply to a refused check is an error, and nothing changes.
//!
//! Clients choose the names of rules, and every check walks all states of its key, so the number of
//! states is limited. Only a check that creates a state can exceed the limit. Only recording a check
//! shows how many states it creates and drops, so the check is first recorded on a copy. No copy is
//! needed if all rules have their states, or if the key has room for one more state per rule. Replicas
//! and loaders skip this test: they record what a primary did.

use crate::key::{Change, Check, CheckOptions, Compound, Limiter};
use crate::rule::Excerpt;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use thiserror::Error;

/// The rules of a key's holds are limited to this number times `max_holds`. A rule counts once for
/// each hold on it. So a key has room for `max_holds` holds on this number of rules each, or for
/// fewer holds on more rules. Ending, saving and loading a hold takes memory and time for each of
/// its rules.
pub const RULES_A_HOLD: usize = 4;

/// Limits on what a key may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// At least 1.
    pub max_states: usize,
    /// At least 1.
    pub max_holds: usize,
}

impl Bounds {
    /// No limits.
    pub const ANY: Self = Self { max_states: usize::MAX, max_holds: usize::MAX };
}

/// A key refused the check.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("key {key}: {why}")]
pub struct CheckError {
    /// The index of the key in the check.
    pub key: usize,
    /// The bound that the key would exceed, or the hold that had another cost.
    pub why: Refusal,
}

/// Why a key refuses a check.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The check would give the key more states than [`Bounds::max_states`].
    #[error("{states} states, expected at most {max}")]
    TooManyStates {
        /// How many states the key would have.
        states: usize,
        /// [`Bounds::max_states`].
        max: usize,
    },
    /// The key has [`Bounds::max_holds`] live holds already.
    #[error("{max} holds in the key already")]
    TooManyHolds {
        /// [`Bounds::max_holds`].
        max: usize,
    },
    /// The key's holds are on too many rules in total.
    #[error("holds on {max} rules or more in the key already")]
    TooManyRulesOfHolds {
        /// [`RULES_A_HOLD`] times [`Bounds::max_holds`].
        max: usize,
    },
    /// The check repeats a hold at another cost.
    #[error(
        "hold {id} was taken with other costs: rule '{rule}' cost {held}, given {given}{}",
        up_to.map_or_else(String::new, |up_to| format!("..{up_to}"))
    )]
    OtherCost {
        /// The id of the hold.
        id: Excerpt,
        /// The text of the first rule whose cost differs.
        rule: String,
        /// What the hold was charged on that rule, in units.
        held: u32,
        /// What the check costs that rule: the lower bound if it is a range.
        given: u32,
        /// The upper bound, if the cost was a range.
        up_to: Option<u32>,
    },
}

impl Limiter {
    /// Refuses a check that repeats a hold at another cost than the hold's. Ignores a rule that the
    /// hold was not charged for: the rules may have changed.
    pub(crate) fn test_costs_of_repeat(&self, check: &Check<'_>) -> Result<(), Refusal> {
        let Some(request) = check.hold() else { return Ok(()) };
        for rule in check.rules.iter().filter(|rule| !rule.is_shadow()) {
            let given = check.cost_of(rule);
            let up_to = check.up_to().filter(|_| rule.cost().own().is_none());
            let agrees = |held: &u32| (given..=up_to.unwrap_or(given)).contains(held);
            let held = self.charge_for(request.id, rule).map(|charge| charge.units);
            if let Some(held) = held.filter(|held| !agrees(held)) {
                let (id, rule) = (Excerpt::new(request.id), rule.to_string());
                return Err(Refusal::OtherCost { id, rule, held, given, up_to });
            }
        }
        Ok(())
    }

    /// Refuses another hold if the key has no room. Lapsed holds that are still stored do not count.
    /// They are searched for only if the key would be full with them.
    pub(crate) fn test_max_holds(&self, now_us: u64, max: usize) -> Result<(), Refusal> {
        let Some(holds) = self.holds() else { return Ok(()) };
        if holds.len() >= max && holds.alive(now_us) >= max {
            return Err(Refusal::TooManyHolds { max });
        }
        let max = max.saturating_mul(RULES_A_HOLD);
        if holds.rules() >= max && holds.live_rules(now_us) >= max {
            return Err(Refusal::TooManyRulesOfHolds { max });
        }
        Ok(())
    }

    /// Refuses a change that would leave the key with too many states.
    #[inline]
    pub(crate) fn test_max_states(
        &self,
        check: &Check<'_>,
        change: Change,
        max: usize,
    ) -> Result<(), Refusal> {
        if self.states().len().saturating_add(check.rules.len()) <= max {
            return Ok(());
        }
        self.test_max_states_after(check, change, max)
    }

    /// Tries the change on a copy.
    #[cold]
    fn test_max_states_after(
        &self,
        check: &Check<'_>,
        change: Change,
        max: usize,
    ) -> Result<(), Refusal> {
        let mut consuming = check.rules.iter().filter(|rule| check.consumes_from(rule, change));
        if consuming.all(|rule| self.state_of(rule).is_some()) {
            return Ok(());
        }
        let (states, holds) = (self.states().to_vec(), self.holds().cloned().map(Box::new));
        let mut copy = Self::of(Compound { states, holds, ..Compound::default() });
        let options = CheckOptions { hold: check.hold(), ..CheckOptions::default() };
        copy.record(&check.with(&options), change);
        let states = copy.states().len();
        // A key that was loaded may have more states, or the setting was lowered. Such a key may not
        // grow.
        if states > max.max(self.states().len()) {
            Err(Refusal::TooManyStates { states, max })
        } else {
            Ok(())
        }
    }
}
