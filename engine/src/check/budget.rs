//! The budget of a command for looking ahead at lapses.
//!
//! A key may have ten thousand holds on dozens of rules, and a command may have 64 such keys.
//! Foreseeing what all these holds give back would take seconds. So a command looks ahead at all its
//! keys within one budget. The unit of the budget is a charge that is given back; copying a state
//! costs some charges too.
//!
//! A wait may depend on lapses beyond the budget. Such a wait ends where the command stopped looking
//! ahead: the check cannot pass before then, and a retry looks further. A reset ignores these
//! lapses.

use crate::algorithm::{Log, State};
use crate::key::Holds;
use core::cell::Cell;

/// Charges in the budget of a command: about 10 ms.
pub(super) const MOST_CHARGES: usize = 100_000;

/// Copying a state costs as much as this number of lapsing charges. Most states are small, but a few
/// keep hundreds of past windows.
const STATE_AS_CHARGES: usize = 16;

/// Copying this number of log entries, and copying them again without what comes back, costs as much as
/// one lapsing charge.
const ENTRIES_AS_ONE: usize = 8;

/// Copying this number of a track's holds, or searching this number of a hold's charges, costs as
/// much as one lapsing charge.
const SMALL_AS_ONE: usize = 32;

/// What is left of a command's budget.
#[derive(Debug)]
pub struct Budget {
    charges: Cell<usize>,
}

impl Budget {
    /// The full budget of a command.
    #[must_use]
    pub const fn of_command() -> Self {
        Self { charges: Cell::new(MOST_CHARGES) }
    }

    #[cfg(feature = "testing")]
    pub(crate) const fn of_charges(charges: usize) -> Self {
        Self { charges: Cell::new(charges) }
    }

    /// Spends the cost of copying these states and letting `charges` lapse in them. Returns false,
    /// and spends nothing, if too little is left.
    pub(crate) fn may_copy(&self, states: &[State], charges: usize) -> bool {
        let cost = |state: &State| {
            let entries = state.log().map_or(0, Log::len);
            STATE_AS_CHARGES.saturating_add(entries / ENTRIES_AS_ONE)
        };
        let spent = states.iter().map(cost).fold(charges, usize::saturating_add);
        let left = self.charges.get().checked_sub(spent);
        left.map(|left| self.charges.set(left)).is_some()
    }

    /// Spends the cost of copying these states and letting `lapses` holds lapse in one state.
    /// Returns false, and spends nothing, if too little is left.
    pub(crate) fn may_look(&self, copied: &[State], holds: &Holds, lapses: usize) -> bool {
        let charges = holds.rules().checked_div(holds.len()).unwrap_or(0);
        let of_hold = (charges / SMALL_AS_ONE).saturating_add(1);
        let charges = lapses.saturating_mul(of_hold).saturating_add(holds.len() / SMALL_AS_ONE);
        self.may_copy(copied, charges)
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::check::Bounds;
    use crate::key::{Change, Check, CheckOptions, HoldRequest, Limiter};
    use crate::tests::rules_of_line;

    const NOW_US: u64 = 1_700_000_000_000_000;

    /// What is spent of the budget of a command.
    fn spent(spend: impl FnOnce(&Budget) -> bool) -> usize {
        let budget = Budget::of_command();
        assert!(spend(&budget));
        MOST_CHARGES - budget.charges.get()
    }

    /// A key with this number of holds on this number of rules.
    fn held(holds: u32, rules: u32) -> Limiter {
        let rules: Vec<String> = (0..rules).map(|n| format!("slots:99,name=n{n}")).collect();
        let (rules, mut limiter) = (rules_of_line(&rules.join(" ")), Limiter::default());
        for id in 0..holds {
            let id = id.to_string();
            let hold = HoldRequest { id: id.as_bytes(), end_us: NOW_US + 1, refund: true };
            let options = CheckOptions { hold: Some(hold), ..CheckOptions::default() };
            let check = Check::new(&rules, 1, NOW_US).with(&options);
            limiter.check_within(Bounds::ANY, &check, &mut Vec::new()).unwrap();
        }
        limiter
    }

    #[test]
    fn copying_larger_states_costs_more() {
        let mut limiter = Limiter::default();
        let rules = rules_of_line("9999/h window:9/h");
        for n in 0..330 {
            limiter.record(&Check::new(&rules, 1, NOW_US + n), Change::Admitted);
        }
        let states = limiter.states();
        assert_eq!(spent(|all| all.may_copy(&[], 3)), 3);
        assert_eq!(spent(|all| all.may_copy(&states[..1], 3)), 16 + 3);
        assert_eq!(spent(|all| all.may_copy(states, 3)), 16 + 16 + 41 + 3);
    }

    #[test]
    fn looking_ahead_costs_more_with_more_holds_and_rules() {
        let of = |holds, rules, lapses| {
            let limiter = held(holds, rules);
            spent(|all| all.may_look(&[], limiter.holds().unwrap(), lapses))
        };
        assert_eq!(of(31, 31, 10), 10);
        assert_eq!(of(70, 40, 10), 10 * 2 + 2);
    }

    #[test]
    fn a_budget_that_is_too_small_is_not_spent() {
        let (limiter, budget) = (held(1, 1), Budget::of_charges(9));
        let holds = limiter.holds().unwrap();
        assert!(!budget.may_copy(&[], 10) && !budget.may_look(&[], holds, 10));
        assert_eq!(budget.charges.get(), 9);
        assert!(budget.may_look(&[], holds, 9) && !budget.may_look(&[], holds, 1));
    }
}
