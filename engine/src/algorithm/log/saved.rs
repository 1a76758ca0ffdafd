//! The saved form of a log.

use super::series::Series;
use super::series::needs::{MAX_RETAINED_UNITS, MOST_PAST, PastNeeds};
use crate::algorithm::{Log, Meter, Needs, Saved};
use crate::rule::MAX_TIME_US;
use crate::saved::{
    DecodeError, MAX_WINDOW_US, check_time, check_units, check_window, each_item, load_items, put,
    save_items, take, within,
};
use alloc::vec::Vec;

/// A [`Needs`]: its window, its units, and whether a rule counts admitted requests only.
type SavedNeeds = (u64, u32, bool);

impl Saved for Log {
    const CODE: u32 = 0;

    fn save(&self, to: &mut Vec<u8>) {
        let past = self.past_needs().iter();
        let past = save_items(past.map(|past| (save_needs(past.needs.unpack()), past.until_us)));
        let admitted = save_entries(self.admitted().iter());
        let charged = save_entries(self.charged().into_iter().flat_map(Series::iter));
        put(to, &(save_needs(self.needs()), past, admitted, charged));
    }
}

/// Takes the fields and tests them.
pub fn load(from: &mut &[u8]) -> Result<Meter, DecodeError> {
    let (needs, past, admitted, charged) = take(from)?;
    let needs = load_needs(needs)?;
    let past = load_items(past, MOST_PAST, "a number of needs", |(needs, until_us)| {
        within(until_us <= MAX_TIME_US.saturating_add(MAX_WINDOW_US), "a time")?;
        Ok(PastNeeds { needs: load_needs(needs)?.pack(), until_us })
    })?;
    let (admitted, charged) = (load_series(admitted)?, load_series(charged)?);
    Ok(Meter::Log(Log::of(admitted, charged, needs, past)))
}

const fn save_needs(Needs { window_us, units, admitted }: Needs) -> SavedNeeds {
    (window_us, units, admitted)
}

fn load_needs((window_us, units, admitted): SavedNeeds) -> Result<Needs, DecodeError> {
    check_window(window_us)?;
    check_units(units)?;
    Ok(Needs { window_us, units, admitted })
}

/// Each entry is saved as the time since the entry before it, and its units.
fn save_entries(entries: impl Iterator<Item = (u64, u32)>) -> Vec<u8> {
    let mut before_us = 0u64;
    save_items(entries.map(|(time_us, units)| {
        let gap_us = time_us.saturating_sub(before_us);
        before_us = time_us;
        (gap_us, units)
    }))
}

/// A first pass counts the entries, so that a number too large for memory is refused.
fn load_series(bytes: &[u8]) -> Result<Series, DecodeError> {
    let (mut entries, mut oldest_us, mut newest_us) = (0_u32, None, 0);
    let (mut total, mut weighted) = (0_u64, false);
    each_entry(bytes, |time_us, units| {
        total = total.saturating_add(u64::from(units));
        check_time(time_us)?;
        within(units > 0 && total <= MAX_RETAINED_UNITS, "an entry's units")?;
        entries = entries.saturating_add(1);
        oldest_us.get_or_insert(time_us);
        newest_us = time_us;
        weighted |= units != 1;
        Ok(())
    })?;
    let span_us = newest_us.saturating_sub(oldest_us.unwrap_or(newest_us));
    let mut series = Series::with_room(entries, span_us, weighted)
        .ok_or(DecodeError::NoMemory(entries as usize))?;
    each_entry(bytes, |time_us, units| {
        series.push(time_us, units);
        Ok(())
    })?;
    Ok(series)
}

/// Passes each entry's time and units to a function.
fn each_entry(
    bytes: &[u8],
    mut show: impl FnMut(u64, u32) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut time_us = 0_u64;
    each_item(bytes, |(gap_us, units): (u64, u32)| {
        time_us = time_us.saturating_add(gap_us);
        show(time_us, units)
    })
}
