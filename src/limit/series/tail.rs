//! What only some series need: bases for entries out of the first one's reach,
//! weights of other than one unit, and a second series.

use super::Series;
use crate::limit::blocks::Blocks;
use std::collections::VecDeque;

#[derive(Clone, Debug, Default)]
pub struct Tail {
    /// Entries that were dropped from the front: what segments count from.
    dropped: u64,
    /// The segments after the first.
    segments: VecDeque<Segment>,
    pub weights: Option<Weights>,
    /// A second series that the owner hangs here; see `log`.
    pub companion: Option<Series>,
}

/// The entries from the `first` ever on count from `base_us`.
#[derive(Clone, Copy, Debug)]
struct Segment {
    first: u64,
    base_us: u64,
}

impl Tail {
    pub fn has_segments(&self) -> bool {
        !self.segments.is_empty()
    }

    /// What an entry counts from, unless it is in the first segment.
    pub fn base_us(&self, index: u32) -> Option<u64> {
        let ever = self.dropped.saturating_add(u64::from(index));
        let after = self.segments.partition_point(|segment| segment.first <= ever);
        Some(self.segments.get(after.checked_sub(1)?)?.base_us)
    }

    /// Which entries are the first of a segment.
    #[cfg(test)]
    pub fn firsts(&self) -> Vec<u64> {
        self.segments.iter().map(|segment| segment.first - self.dropped).collect()
    }

    /// The next entry, after `len`, is the first of a segment.
    pub fn open_segment(&mut self, len: u32, base_us: u64) {
        let first = self.dropped.saturating_add(u64::from(len));
        self.segments.push_back(Segment { first, base_us });
    }

    /// The oldest entries are gone. The segment of the one that is now the oldest
    /// becomes the first, whose base the series has.
    pub fn drop_front(&mut self, entries: u32) {
        self.dropped = self.dropped.saturating_add(u64::from(entries));
        while self.segments.front().is_some_and(|segment| segment.first <= self.dropped) {
            self.segments.pop_front();
        }
        if let Some(weights) = &mut self.weights {
            weights.drop_front(entries);
        }
    }

    /// The newest entry is gone; so many are left.
    pub fn drop_back(&mut self, left: u32) {
        let end = self.dropped.saturating_add(u64::from(left));
        while self.segments.back().is_some_and(|segment| segment.first >= end) {
            self.segments.pop_back();
        }
        if let Some(weights) = &mut self.weights {
            weights.ends.pop_back();
        }
    }

    /// Drops a companion that holds nothing. Whether anything is left.
    pub fn tidy(&mut self) -> bool {
        self.companion = self.companion.take().filter(|series| !series.is_empty());
        self.companion.is_some() || self.weights.is_some() || self.has_segments()
    }

    /// Shows each heap block held, but for the one the tail lies in.
    pub fn show_blocks(&mut self, to: &mut impl Blocks) {
        to.ring(&mut self.segments);
        if let Some(weights) = &mut self.weights {
            to.ring(&mut weights.ends);
        }
        if let Some(companion) = &mut self.companion {
            companion.show_blocks(to);
        }
    }
}

/// Running totals of the weights. They may wrap: only differences are read.
#[derive(Clone, Debug)]
pub struct Weights {
    /// The total before the oldest unit that is left.
    start: u32,
    /// The total after each entry.
    ends: VecDeque<u32>,
}

impl Weights {
    /// Of entries of one unit.
    pub fn ones(entries: u32) -> Self {
        Self { start: 0, ends: (1..=entries).collect() }
    }

    /// The total before an entry, also of the one that comes after the newest.
    pub fn before(&self, index: u32) -> u32 {
        let previous = index.checked_sub(1).and_then(|previous| self.ends.get(previous as usize));
        previous.copied().unwrap_or(self.start)
    }

    pub fn push(&mut self, weight: u32) {
        let total = self.ends.back().copied().unwrap_or(self.start);
        self.ends.push_back(total.wrapping_add(weight));
    }

    fn drop_front(&mut self, entries: u32) {
        self.start = self.before(entries);
        self.ends.drain(..entries as usize);
    }

    /// Takes units off the oldest entry, which has more.
    pub fn cut_oldest(&mut self, units: u32) {
        self.start = self.start.wrapping_add(units);
    }

    /// Takes units off the newest entry, which has more.
    pub fn cut_newest(&mut self, units: u32) {
        if let Some(end) = self.ends.back_mut() {
            *end = end.wrapping_sub(units);
        }
    }

    pub fn shrink(&mut self) {
        self.ends.shrink_to_fit();
    }
}
