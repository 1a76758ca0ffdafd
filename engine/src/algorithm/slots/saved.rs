//! The saved form of slots: the limit of the rule that consumed last.

use crate::algorithm::{Meter, Saved, Slots};
use crate::saved::{DecodeError, check_units, put, take};
use alloc::vec::Vec;

impl Saved for Slots {
    const CODE: u32 = 5;

    fn save(&self, to: &mut Vec<u8>) {
        put(to, &self.limit);
    }
}

/// Takes the fields and tests them.
pub fn load(from: &mut &[u8]) -> Result<Meter, DecodeError> {
    let limit = take(from)?;
    check_units(limit)?;
    Ok(Meter::Slots(Slots { limit }))
}
