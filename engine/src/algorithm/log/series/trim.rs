//! Drops entries by age and by number, and moves them when the clock stepped back.
//! `take` removes units in the middle.

use super::entries::{Width, at_width};
use super::layout::{Series, ring_for};
use alloc::vec::Vec;

impl Series {
    /// Drops the oldest entries.
    pub(crate) fn drop_front(&mut self, entries: u32) {
        let len = self.head().len;
        if entries >= len {
            return self.clear();
        }
        let front = self.position(entries);
        let head = self.head_mut();
        head.front = u32::try_from(front).unwrap_or(0);
        head.len = len.saturating_sub(entries);
        if let Some(weights) = self.weights_mut() {
            weights.drop_front(entries);
        }
        self.shrink();
    }

    /// Drops all entries, but keeps the needs, past needs and charged denials.
    pub fn clear(&mut self) {
        let head = core::mem::take(self.head_mut());
        if self.ring.count() != ring_for(1, Width::Four) {
            *self = Self::default();
        }
        self.set_needs(head.needs);
        if let Some(mut extras) = head.extras {
            extras.weights = None;
            self.head_mut().extras = Some(extras);
        }
    }

    #[inline(always)]
    pub(super) fn shrink(&mut self) {
        let len = self.head().len;
        let used = len.saturating_mul(self.width().bytes());
        if used < self.ring.count() / 4 {
            self.resize(len, Width::for_span(self.age(0)));
            if let Some(weights) = self.weights_mut() {
                weights.shrink();
            }
        }
    }

    /// Drops the entries at or before `time_us`.
    #[inline]
    pub fn drop_until(&mut self, time_us: u64) {
        let entries = match self.age_at(time_us) {
            None => self.head().len,
            Some(age) => at_width!(self.width(), W => {
                let entries = self.entries::<W>();
                // Usually at most one entry is dropped.
                self.first_where(1, |index| entries.age(index) < age)
            }),
        };
        if entries > 0 {
            self.drop_front(entries);
        }
    }

    /// Keeps the newest `units` units, splitting an entry if needed.
    #[inline]
    pub fn keep_newest(&mut self, units: u64) {
        if self.units() <= units {
            return;
        }
        match self.entry_of_newest(units) {
            None => return self.clear(),
            Some(0) => {}
            Some(oldest) => self.drop_front(oldest),
        }
        let surplus = u32::try_from(self.units().saturating_sub(units)).unwrap_or(0);
        if let Some(weights) = self.weights_mut() {
            weights.cut_oldest(surplus);
        }
    }

    /// Keeps the newest `entries` entries.
    pub fn keep_newest_entries(&mut self, entries: u64) {
        let surplus = u32::try_from(self.len().saturating_sub(entries)).unwrap_or(u32::MAX);
        if surplus > 0 {
            self.drop_front(surplus);
        }
    }

    /// Moves entries later than `latest_us` to that time.
    pub fn pull_back(&mut self, latest_us: u64) {
        let later = self.first_after(latest_us)..self.head().len;
        let weights: Vec<u32> = later.clone().map(|index| self.weight(index)).collect();
        self.remove(later.clone(), self.units_between(later));
        for weight in weights {
            self.push(latest_us, weight);
        }
    }
}
