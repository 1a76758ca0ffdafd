//! Removes units from the entries of one time, anywhere in the ring.
//!
//! ```text
//! | . |t_0|t_1|t_2|t_2|t_2|t_3| . | . |     takes 2 units at t_2
//! | . |t_0|t_1|t_2|t_3| . | . | . | . |     the shorter side moves: here the newer entries
//! ```
//!
//! Finding the entries takes O(log n). Removing them moves the entries on one side, at most half of
//! all. Units of many times are removed in one pass, which copies the remaining entries.

use super::entries::{self, Width, at_width};
use super::layout::{Newest, Series};
use core::ops::Range;

/// Units to remove from the entries of one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Take {
    pub time_us: u64,
    pub units: u64,
}

/// Up to this number of takes are applied one after another. For more takes, a new series is built.
const FEW_TAKES: usize = 128;

impl Series {
    /// Removes units from the entries of several times. Many takes are sorted, and then removed in
    /// one pass.
    pub fn take_each(&mut self, takes: &mut [Take]) {
        if takes.len() > FEW_TAKES
            && let Some(kept) = self.without(takes)
        {
            *self = kept;
            return;
        }
        for take in takes {
            self.take_at(take.time_us, take.units);
        }
    }

    /// A copy without these units; `None` if there is no memory for it.
    pub(super) fn without(&mut self, takes: &mut [Take]) -> Option<Self> {
        takes.sort_unstable();
        let entries = self.head().len;
        let mut kept = Self::with_room(entries, self.age(0), self.weights().is_some())?;
        let mut next = 0;
        for of_time in takes.chunk_by(|one, other| one.time_us == other.time_us) {
            let Some(&Take { time_us, .. }) = of_time.first() else { continue };
            let Range { start, end } = self.entries_at(time_us);
            kept.push_entries(self, next..start);
            // The newest units of this time are removed.
            let units = of_time.iter().fold(0_u64, |sum, take| sum.saturating_add(take.units));
            let mut left = u64::from(self.units_between(start..end)).saturating_sub(units);
            for weight in (start..end).map(|index| self.weight(index)) {
                let stays = u32::try_from(left).map_or(weight, |left| left.min(weight));
                kept.push(time_us, stays);
                left = left.saturating_sub(stays.into());
            }
            next = end;
        }
        kept.push_entries(self, next..entries);
        if kept.is_empty() {
            kept = Self::default();
        }
        kept.shrink();
        kept.set_needs(self.needs());
        let weights = kept.extras_mut().and_then(|extras| extras.weights.take());
        kept.head_mut().extras = self.head_mut().extras.take();
        if let Some(extras) = kept.extras_mut() {
            extras.weights = weights;
        }
        Some(kept)
    }

    /// The entries of one time.
    fn entries_at(&self, time_us: u64) -> Range<u32> {
        let start = time_us.checked_sub(1).map_or(0, |earlier_us| self.first_after(earlier_us));
        start..self.first_after(time_us)
    }

    /// Adds a range of another series' entries.
    fn push_entries(&mut self, other: &Self, entries: Range<u32>) {
        for index in entries {
            self.push(other.time(index), other.weight(index));
        }
    }

    /// Removes up to `units` from the entries of one time, and returns how many.
    pub fn take_at(&mut self, time_us: u64, units: u64) -> u64 {
        let Range { start, end } = self.entries_at(time_us);
        let taken = self.units_between(start..end).min(u32::try_from(units).unwrap_or(u32::MAX));
        if taken > 0 {
            let goes = |index| index >= end || self.units_between(index..end) <= taken;
            let first = self.first_where(end, |index| index >= start && goes(index));
            self.remove(first..end, taken);
        }
        u64::from(taken)
    }

    /// Units of a range of entries.
    pub(super) fn units_between(&self, entries: Range<u32>) -> u32 {
        self.before(entries.end).wrapping_sub(self.before(entries.start))
    }

    /// Removes these entries. If they have fewer than `taken` units, the entry before them loses the
    /// rest.
    pub(super) fn remove(&mut self, entries: Range<u32>, taken: u32) {
        let part = taken.saturating_sub(self.units_between(entries.clone()));
        if let Some(weights) = self.weights_mut() {
            weights.cut(entries.clone(), part, taken);
        }
        let removed = entries.end.saturating_sub(entries.start);
        let len = self.head().len;
        if removed == 0 {
            return;
        }
        if removed >= len {
            return self.clear();
        }
        let later = len.saturating_sub(entries.end);
        let newest_us = match entries.start.checked_sub(1) {
            Some(newest) if later == 0 => self.time(newest),
            _ => self.head().newest.us(),
        };
        let newest = Newest::new(newest_us, self.width());
        if later <= entries.start {
            for to in entries.start..len.saturating_sub(removed) {
                self.copy_entry(to.saturating_add(removed), to);
            }
        } else {
            for to in (removed..entries.end).rev() {
                self.copy_entry(to.saturating_sub(removed), to);
            }
            let front = self.position(removed);
            self.head_mut().front = u32::try_from(front).unwrap_or(0);
        }
        let head = self.head_mut();
        head.len = len.saturating_sub(removed);
        head.newest = newest;
        self.shrink();
    }
    /// Writes the time of an entry over that of another.
    fn copy_entry(&mut self, from: u32, to: u32) {
        let (time_us, to) = (self.time(from), self.position(to));
        at_width!(self.width(), W => entries::write::<W>(self.ring.items_mut(), to, time_us));
    }
}
