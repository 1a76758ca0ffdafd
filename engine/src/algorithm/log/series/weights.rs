//! The weights of entries, for a series in which some entry has more than one unit.

use crate::heap::HeapVisitor;
use alloc::collections::VecDeque;
use core::ops::Range;

/// Running totals of the weights. They may wrap: only differences are read.
#[derive(Clone, Debug)]
pub struct Weights {
    /// The total before the oldest remaining unit.
    start: u32,
    /// The total after each entry.
    ends: VecDeque<u32>,
}

impl Weights {
    /// The weights of entries that have one unit each.
    pub fn ones(entries: u32) -> Self {
        Self { start: 0, ends: (1..=entries).collect() }
    }

    /// An empty list with room for the weights of `entries` entries; `None` if memory is short.
    pub fn with_room(entries: u32) -> Option<Self> {
        let mut ends = VecDeque::new();
        ends.try_reserve_exact(entries as usize).ok()?;
        Some(Self { start: 0, ends })
    }

    /// The total before an entry, or before the next one to be added.
    pub fn before(&self, index: u32) -> u32 {
        let previous = index.checked_sub(1).and_then(|previous| self.ends.get(previous as usize));
        previous.copied().unwrap_or(self.start)
    }

    pub fn push(&mut self, weight: u32) {
        let total = self.ends.back().copied().unwrap_or(self.start);
        self.ends.push_back(total.wrapping_add(weight));
    }

    /// Drops the weights of the oldest entries.
    pub fn drop_front(&mut self, entries: u32) {
        self.start = self.before(entries);
        self.ends.drain(..entries as usize);
    }

    /// Removes units from the oldest entry, which must have more.
    pub fn cut_oldest(&mut self, units: u32) {
        self.start = self.start.wrapping_add(units);
    }

    /// Drops the weights of entries, and removes `part` units from the entry before them, which has
    /// more. Both together remove `taken` units. Changes the totals of the entries before or after
    /// them, whichever are fewer.
    pub fn cut(&mut self, Range { start, end }: Range<u32>, part: u32, taken: u32) {
        let last = start.checked_sub(1).and_then(|last| self.ends.get_mut(last as usize));
        if let Some(total) = last {
            *total = total.wrapping_sub(part);
        }
        let (earlier, later) = (start as usize, self.ends.len().saturating_sub(end as usize));
        if later <= earlier {
            for total in self.ends.range_mut(end as usize..) {
                *total = total.wrapping_sub(taken);
            }
        } else {
            self.start = self.start.wrapping_add(taken);
            for total in self.ends.range_mut(..start as usize) {
                *total = total.wrapping_add(taken);
            }
        }
        self.ends.drain(start as usize..end as usize);
    }

    pub fn visit_heap(&mut self, to: &mut impl HeapVisitor) {
        to.ring(&mut self.ends);
    }

    pub fn shrink(&mut self) {
        self.ends.shrink_to_fit();
    }
}
