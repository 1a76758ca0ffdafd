//! The saved form of a fixed window. If it keeps past windows, they follow the other fields.

use super::{Anchor, Past};
use crate::algorithm::{Algorithm, Fixed, FixedWithPast, Meter, OpenWindow, Saved};
use crate::rule::{MAX_KEEP, MAX_TZ_MIN};
use crate::saved::{
    DecodeError, check_start, check_units, load_items, put, save_items, take, within,
};
use alloc::{boxed::Box, vec::Vec};

impl Saved for Fixed {
    const CODE: u32 = 2;

    fn save(&self, to: &mut Vec<u8>) {
        self.save_with(None, to);
    }
}

impl Fixed {
    fn save_with(&self, past: Option<(u16, Vec<u8>)>, to: &mut Vec<u8>) {
        put(to, &(self.window.last_us(), self.period_us(), self.start_us(), self.count()));
        put(to, &(self.limit, self.anchor.tz_min(), self.anchor.code(), past));
    }
}

impl Saved for FixedWithPast {
    const CODE: u32 = Fixed::CODE;

    fn save(&self, to: &mut Vec<u8>) {
        let windows = save_items(self.past.iter().map(|past| (past.start_us, past.count)));
        self.fixed.save_with(Some((self.keep, windows)), to);
    }
}

/// Takes the fields of a fixed window, with or without past windows, and tests them.
pub fn load(from: &mut &[u8]) -> Result<Meter, DecodeError> {
    let (last_us, period_us, start_us, count, limit) = take(from)?;
    let (tz_min, calendar, past): (_, _, Option<(u16, &[u8])>) = take(from)?;
    check_units(limit)?;
    within((-MAX_TZ_MIN..=MAX_TZ_MIN).contains(&tz_min), "a time zone")?;
    within(calendar <= Anchor::MAX_CODE, "a calendar")?;
    let window = OpenWindow::load(last_us, period_us, start_us)?;
    let fixed = Fixed::new(window, count, Anchor::of_code(calendar, tz_min), limit);
    let Some((keep, windows)) = past else { return Ok(Meter::Fixed(Box::new(fixed))) };
    within(keep <= MAX_KEEP, "a number of past windows")?;
    let what = "the past windows' number";
    let past = load_items(windows, keep.into(), what, |(start_us, count)| {
        check_start(start_us)?;
        Ok(Past { start_us, count })
    })?;
    Ok(Meter::FixedWithPast(Box::new(FixedWithPast { fixed, keep, past: past.into() })))
}
