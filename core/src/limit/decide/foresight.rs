//! The budget of a command for looking ahead at lapses.
//!
//! A key may have ten thousand holds of dozens of rules, and a command 64 such keys. Foreseeing all
//! that they give back would take seconds. So all looks ahead of a command, at all its keys, share
//! one budget. Its unit is a charge that is given back; copying a state costs some charges too.
//!
//! A wait that depends on later lapses ends where the command stopped looking ahead: the check
//! cannot pass before, and a retry then looks further. A reset ignores the lapses beyond.

use crate::limit::algorithm::log::Log;
use crate::limit::algorithm::state::State;
use crate::limit::holds::Holds;
use std::cell::Cell;

/// Charges in the budget of a command: about 10 ms.
pub(super) const MOST_CHARGES: usize = 100_000;

/// Copying a state costs as much as this number of lapsing charges: most states are small, but one
/// may keep hundreds of past windows.
const STATE_AS_CHARGES: usize = 16;

/// Copying this number of log entries costs as much as one lapsing charge.
const ENTRIES_AS_ONE: usize = 16;

/// Copying this number of a track's holds, or searching this number of a hold's charges, costs as
/// much as one lapsing charge.
const SMALL_AS_ONE: usize = 32;

/// What is left of a command's budget.
#[derive(Debug)]
pub struct Foresight {
    charges: Cell<usize>,
}

impl Foresight {
    /// The full budget of a command.
    #[must_use]
    pub const fn of_command() -> Self {
        Self { charges: Cell::new(MOST_CHARGES) }
    }

    #[cfg(any(test, fuzzing))]
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

    /// Spends the cost of copying these states and letting `lapses` holds lapse in one. Returns
    /// false, and spends nothing, if too little is left.
    pub(crate) fn may_look(&self, copied: &[State], holds: &Holds, lapses: usize) -> bool {
        let charges = holds.rules().checked_div(holds.len()).unwrap_or(0);
        let of_hold = (charges / SMALL_AS_ONE).saturating_add(1);
        let charges = lapses.saturating_mul(of_hold).saturating_add(holds.len() / SMALL_AS_ONE);
        self.may_copy(copied, charges)
    }
}
