//! How far a command looks ahead at lapses.
//!
//! A key may have ten thousand holds of dozens of rules, and a command 64 such keys. Foreseeing
//! what they all give back would take seconds. So all looks of a command, at all its keys, share
//! one budget, counted in charges that come back. Copied states count as charges too.
//!
//! A wait that depends on later lapses ends where the command stopped looking: the check cannot
//! pass before, and asking again then looks further. A reset is then the one without lapses.

use crate::limit::algorithm::log::Log;
use crate::limit::algorithm::state::State;
use crate::limit::holds::Holds;

/// The budget of a command: about 10 ms.
pub(super) const MOST_CHARGES: usize = 100_000;

/// A state is copied in the time that so many charges take to lapse: most are small, but one may
/// keep hundreds of past windows.
const STATE_AS_CHARGES: usize = 16;

/// So many entries of a log are copied in the time that a charge takes to lapse.
const ENTRIES_AS_ONE: usize = 16;

/// So many holds of a track are copied, or charges of a hold searched, in that time.
const SMALL_AS_ONE: usize = 32;

/// What a command may still spend on looks.
#[derive(Debug)]
pub struct Foresight {
    charges: usize,
}

impl Foresight {
    /// The budget of one command.
    #[must_use]
    pub const fn of_command() -> Self {
        Self::of_charges(MOST_CHARGES)
    }

    pub(crate) const fn of_charges(charges: usize) -> Self {
        Self { charges }
    }

    /// Whether a look may copy these states, and let this number of charges lapse in them.
    pub(crate) fn may_copy(&mut self, states: &[State], charges: usize) -> bool {
        let cost = |state: &State| {
            let entries = state.log().map_or(0, Log::len);
            STATE_AS_CHARGES.saturating_add(entries / ENTRIES_AS_ONE)
        };
        let spent = states.iter().map(cost).fold(charges, usize::saturating_add);
        let left = self.charges.checked_sub(spent);
        self.charges = left.unwrap_or(self.charges);
        left.is_some()
    }

    /// Whether a look may copy these states, and let this number of holds lapse in one.
    pub(crate) fn may_look(&mut self, copied: &[State], holds: &Holds, lapses: usize) -> bool {
        let charges = holds.rules().checked_div(holds.len()).unwrap_or(0);
        let of_hold = (charges / SMALL_AS_ONE).saturating_add(1);
        let charges = lapses.saturating_mul(of_hold).saturating_add(holds.len() / SMALL_AS_ONE);
        self.may_copy(copied, charges)
    }
}
