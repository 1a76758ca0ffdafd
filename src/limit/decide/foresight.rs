//! How far a command looks ahead at lapses.
//!
//! A key may have ten thousand holds of dozens of rules, and a command 64 such keys. Foreseeing
//! what they all give back would take seconds. So one command examines [`MOST_CHARGES`] charges of
//! holds at most, over all its keys. A wait that depends on later ones ends where the command
//! stopped looking: the check cannot pass before, and asking again then looks further.

/// The most charges that one command examines: about 10 ms.
pub(super) const MOST_CHARGES: usize = 100_000;

/// So many charges are copied in the time that one takes to lapse.
const COPIED_AS_ONE: usize = 8;

/// What a command may still examine.
#[derive(Debug)]
pub(crate) struct Foresight {
    charges: usize,
}

impl Foresight {
    /// What one command may examine.
    pub const fn of_command() -> Self {
        Self { charges: MOST_CHARGES }
    }

    #[cfg(any(test, fuzzing))]
    pub const fn of_charges(charges: usize) -> Self {
        Self { charges }
    }

    /// Whether so many charges may be examined, which then count.
    pub fn may_examine(&mut self, charges: usize) -> bool {
        let left = self.charges.checked_sub(charges);
        self.charges = left.unwrap_or(self.charges);
        left.is_some()
    }

    /// Whether a key with so many charges may be copied.
    pub fn may_copy(&mut self, charges: usize) -> bool {
        self.may_examine(charges / COPIED_AS_ONE)
    }
}
