//! The saved form of an interval.

use crate::algorithm::{Interval, Meter, OpenWindow, Saved};
use crate::saved::{DecodeError, check_time, check_units, put, take};
use alloc::{boxed::Box, vec::Vec};

impl Saved for Interval {
    const CODE: u32 = 4;

    fn save(&self, to: &mut Vec<u8>) {
        let Self { window, used, limit, burst } = *self;
        let start_us = window.start_us().cast_unsigned();
        put(to, &(window.last_us(), window.period_us(), start_us, used, limit, burst));
    }
}

/// Takes the fields and tests them.
pub fn load(from: &mut &[u8]) -> Result<Meter, DecodeError> {
    let (last_us, period_us, start_us, used, limit, burst): (_, _, u64, _, _, _) = take(from)?;
    check_time(start_us)?;
    check_units(limit)?;
    check_units(burst)?;
    let window = OpenWindow::load(last_us, period_us, start_us.cast_signed())?;
    Ok(Meter::Interval(Box::new(Interval { window, used, limit, burst })))
}
