//! How far a command looks ahead at lapses.
//!
//! A key may have ten thousand holds of dozens of rules, and a command 64 such keys. Foreseeing
//! what they all give back would take seconds. So one command examines [`MOST_CHARGES`] charges of
//! holds at most, over all its keys. What else takes time counts as so many charges: to copy a key,
//! and to move the entries of its log.
//!
//! A wait that depends on later lapses ends where the command stopped looking: the check cannot
//! pass before, and asking again then looks further. A reset is then the one without lapses.

use crate::limit::algorithm::log::Log;
use crate::limit::algorithm::state::State;

/// The most charges that one command examines: about 10 ms.
pub(super) const MOST_CHARGES: usize = 100_000;

/// So many charges are copied in the time that one takes to lapse.
const COPIED_AS_ONE: usize = 8;

/// So many entries of a log are copied in that time.
const ENTRIES_COPIED_AS_ONE: usize = 32;

/// So many entries of a log are moved in that time.
const ENTRIES_MOVED_AS_ONE: usize = 256;

/// A state is copied in the time that so many charges take to lapse: most are small, but one may
/// keep hundreds of past windows.
const STATE_AS_CHARGES: usize = 16;

/// What a command may still examine.
#[derive(Debug)]
pub struct Foresight {
    charges: usize,
}

impl Foresight {
    /// What one command may examine.
    #[must_use]
    pub const fn of_command() -> Self {
        Self { charges: MOST_CHARGES }
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) const fn of_charges(charges: usize) -> Self {
        Self { charges }
    }

    /// Whether so many charges may be examined, which then count.
    pub(crate) fn may_examine(&mut self, charges: usize) -> bool {
        let left = self.charges.checked_sub(charges);
        self.charges = left.unwrap_or(self.charges);
        left.is_some()
    }

    /// Whether states may be copied, and so many charges with them.
    pub(crate) fn may_copy<'a>(
        &mut self,
        states: impl Iterator<Item = &'a State>,
        charges: usize,
    ) -> bool {
        let cost = |state: &State| {
            let entries = state.log().map_or(0, Log::len);
            STATE_AS_CHARGES.saturating_add(entries / ENTRIES_COPIED_AS_ONE)
        };
        let of_states = states.map(cost).fold(0, usize::saturating_add);
        self.may_examine(of_states.saturating_add(charges / COPIED_AS_ONE))
    }

    /// Whether so many entries of a log may be moved.
    pub(crate) fn may_move(&mut self, entries: usize) -> bool {
        self.may_examine(entries / ENTRIES_MOVED_AS_ONE)
    }
}
