//! The saved form of an interval.

use super::Interval;
use crate::algorithm::Saved;
use crate::algorithm::list::Meter;
use crate::algorithm::open_window::OpenWindow;
use crate::saved::bounds::{check_time, check_units};
use crate::saved::error::DecodeError;
use crate::saved::form::{put, take};
use alloc::boxed::Box;
use alloc::vec::Vec;

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
