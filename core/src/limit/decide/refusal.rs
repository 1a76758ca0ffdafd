//! Why a check is refused. It replies with an error and changes nothing.

use crate::limit::value::check::Check;
use crate::limit::value::limiter::Limiter;
use crate::rule::Excerpt;
use std::fmt;

/// The holds of a key may be on this number of rules for each of `max_holds`: a key can have
/// `max_holds` holds on up to this number of rules each, but fewer holds on more. Ending, saving
/// and loading a hold takes memory and time for each of its rules.
const RULES_A_HOLD: usize = 4;

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

/// A key of the check refused it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckError {
    /// The index of the key in the check.
    pub key: usize,
    /// The bound that the key would exceed, or the hold that had another cost.
    pub why: Refusal,
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {}: {}", self.key, self.why)
    }
}

impl std::error::Error for CheckError {}

/// Why a key refuses a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The check would give the key more states than [`Bounds::max_states`].
    TooManyStates {
        /// How many states the key would have.
        states: usize,
        /// [`Bounds::max_states`].
        max: usize,
    },
    /// The key has [`Bounds::max_holds`] live holds already.
    TooManyHolds {
        /// [`Bounds::max_holds`].
        max: usize,
    },
    /// The key's holds are on too many rules in total.
    TooManyRulesOfHolds {
        /// Four for each of [`Bounds::max_holds`].
        max: usize,
    },
    /// The check repeats a hold at another cost.
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

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyStates { states, max } => write!(
                f,
                "{states} states, expected at most {max} (ratelimit.max-states); \
                 use fewer names and periods of rules for one key, or RL.RESET it"
            ),
            Self::TooManyHolds { max } => {
                write!(f, "{max} holds in the key already (ratelimit.max-holds)")
            }
            Self::TooManyRulesOfHolds { max } => write!(
                f,
                "holds on {max} rules or more in the key already \
                 ({RULES_A_HOLD} for each of ratelimit.max-holds)"
            ),
            Self::OtherCost { id, rule, held, given, up_to } => {
                write!(
                    f,
                    "hold {id} was taken with other costs: rule '{rule}' cost {held}, given {given}"
                )?;
                up_to.map_or(Ok(()), |up_to| write!(f, "..{up_to}"))
            }
        }
    }
}

impl Limiter {
    /// Refuses a check that repeats a hold at another cost than the hold's. Ignores a rule that the
    /// hold was not charged for: the rules may have changed.
    pub(crate) fn test_costs_of_repeat(&self, check: &Check<'_>) -> Result<(), Refusal> {
        let Some(request) = check.hold() else { return Ok(()) };
        for rule in check.rules.iter().filter(|rule| !rule.is_shadow()) {
            let held = self.charge_for(request.id, rule).map(|charge| charge.units);
            let given = check.cost_of(rule);
            let agrees = |held: u32| match rule.cost().own() {
                Some(cost) => held == cost,
                None => check.accepts(held),
            };
            if let Some(held) = held.filter(|&held| !agrees(held)) {
                let (id, text) = (Excerpt::new(request.id), rule.to_string());
                let up_to = check.up_to().filter(|_| rule.cost().own().is_none());
                return Err(Refusal::OtherCost { id, rule: text, held, given, up_to });
            }
        }
        Ok(())
    }

    /// Refuses another hold if the key has no room. Lapsed holds that are still stored do not
    /// count; they are only looked for if counting them leaves no room.
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
}
