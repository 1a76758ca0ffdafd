//! Slots, saved: the limit of the rule that consumed last.

use super::Slots;
use crate::algorithm::Saved;
use crate::algorithm::list::Meter;
use crate::saved::bounds::check_units;
use crate::saved::error::DecodeError;
use crate::saved::form::{put, take};
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
