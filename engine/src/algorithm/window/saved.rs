//! The saved form of a window.

use crate::algorithm::{Algorithm, Meter, Saved, Window};
use crate::rule::MAX_RES;
use crate::saved::{
    DecodeError, check_period, check_time, check_units, load_items, put, save_items, take, within,
};
use alloc::vec::Vec;

const COUNTERS: &str = "a number of counters";

impl Saved for Window {
    const CODE: u32 = 1;

    fn save(&self, to: &mut Vec<u8>) {
        let counts = save_items(self.counts());
        let limit = u32::from_le_bytes(self.counts.header().limit);
        put(to, &(self.last_us(), self.period_us(), limit, counts));
    }
}

/// Takes the fields and tests them.
pub fn load(from: &mut &[u8]) -> Result<Meter, DecodeError> {
    let (last_us, period_us, limit, counts) = take(from)?;
    check_time(last_us)?;
    check_period(period_us)?;
    check_units(limit)?;
    let most = usize::from(MAX_RES).saturating_add(1);
    let counts: Vec<u64> = load_items(counts, most, COUNTERS, Ok)?;
    within(counts.len() >= 2, COUNTERS)?;
    Ok(Meter::Window(Window::new(last_us, period_us, limit, &counts)))
}
