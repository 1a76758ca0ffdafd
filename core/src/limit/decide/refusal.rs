//! Why a check is refused: an error, and nothing is changed.

use crate::limit::value::check::Check;
use crate::limit::value::limiter::Limiter;
use crate::rule::Excerpt;
use std::fmt;

/// On how many rules a key's holds may be for each of `max_holds`: holds on so many rules can
/// be as many as the setting says, holds on more rules only fewer. Ending, saving and loading
/// holds take memory and time for each of their rules.
const RULES_A_HOLD: usize = 4;

/// How much a key may come to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// At least 1.
    pub max_states: usize,
    /// At least 1.
    pub max_holds: usize,
}

impl Bounds {
    /// Any number.
    pub const ANY: Self = Self { max_states: usize::MAX, max_holds: usize::MAX };
}

/// A check is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckError {
    /// Which key of the check.
    pub key: usize,
    pub why: Refusal,
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {}: {}", self.key, self.why)
    }
}

impl std::error::Error for CheckError {}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    TooManyStates {
        states: usize,
        max: usize,
    },
    TooManyHolds {
        max: usize,
    },
    /// The holds are on too many rules together.
    TooManyRulesOfHolds {
        max: usize,
    },
    /// A check repeats a hold with another cost.
    OtherCost {
        id: Excerpt,
        rule: String,
        held: u32,
        given: u32,
        /// The end of the range, if a range was given.
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
    /// Tests that a check which repeats a hold costs what the hold was taken for. A rule
    /// that the hold was not charged for passes: the rules may have changed.
    pub(crate) fn test_costs_of_repeat(&self, check: &Check<'_>) -> Result<(), Refusal> {
        let Some(request) = check.hold() else { return Ok(()) };
        for rule in check.rules.iter().filter(|rule| !rule.is_shadow()) {
            let (held, given) = (self.held_units(request.id, rule), check.cost_of(rule));
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

    /// Tests whether a key has room for another hold. Lapsed ones that are still kept take none;
    /// they are looked for only if there would be no room with them.
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
