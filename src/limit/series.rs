//! A series of timestamps with weights: the memory of the sliding log.
//!
//! ```text
//! offsets   | . | . |o_0|o_1|o_2|o_3| . |     a ring of 4-byte offsets
//!                    ^head          len = 4
//! base_us   time of an entry = base + offset
//! ```
//!
//! An entry is 4 bytes: microseconds since a base. Offsets to a base, unlike
//! differences from entry to entry, give random access, so that counting a
//! window is one search, and next to none where requests come evenly. They
//! reach 71 minutes; an entry further off opens a new segment with a base of
//! its own (16 bytes), the escape for long gaps.
//!
//! Entries of one unit, nearly all there are, store no weight. The first other
//! one adds a running total beside each entry, so that a sum of weights stays
//! one subtraction; a total may wrap, as only differences are read.
//!
//! Rejected: 8-byte timestamps (twice the memory), differences (a scan to
//! count), a counter tree (memory and pointers for what a search does).

use super::blocks::Blocks;
use super::exact::{floor_div, product};
use std::collections::VecDeque;

/// Entries in time order, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// The ring.
    offsets: Box<[u32]>,
    /// What the offsets of the first segment count from.
    base_us: u64,
    tail: Option<Box<Tail>>,
    head: u32,
    len: u32,
}

/// What only some series need.
#[derive(Clone, Debug, Default)]
struct Tail {
    /// Entries that were dropped from the front: what segments count from.
    dropped: u64,
    /// The segments after the first.
    segments: VecDeque<Segment>,
    weights: Option<Weights>,
    /// A second series that the owner hangs here; see `log`.
    companion: Option<Box<Series>>,
}

/// The entries from the `first` ever on count from `base_us`.
#[derive(Clone, Copy, Debug)]
struct Segment {
    first: u64,
    base_us: u64,
}

/// Running totals of the weights, wrapping.
#[derive(Clone, Debug, Default)]
struct Weights {
    /// The total before the oldest unit that is left.
    start: u32,
    /// The total after each entry.
    ends: VecDeque<u32>,
}

/// Slots in a ring, chosen so that it fills a size class of the allocator (four
/// classes a doubling).
fn capacity_for(entries: u32) -> u32 {
    let mut class: u32 = 4;
    let mut step: u32 = 4;
    let mut steps: u32 = 0;
    while class < entries {
        class = class.saturating_add(step);
        steps = steps.saturating_add(1);
        if class >= 16 && steps >= 4 {
            step = step.saturating_mul(2);
            steps = 0;
        } else if class == 16 {
            steps = 0;
        }
    }
    class
}

impl Series {
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn weights(&self) -> Option<&Weights> {
        self.tail.as_ref()?.weights.as_ref()
    }

    pub fn companion(&self) -> Option<&Self> {
        self.tail.as_ref()?.companion.as_deref()
    }

    pub fn companion_mut(&mut self) -> Option<&mut Self> {
        self.tail.as_mut()?.companion.as_deref_mut()
    }

    /// The companion, made if there is none.
    pub fn companion_or_new(&mut self) -> &mut Self {
        self.tail.get_or_insert_default().companion.get_or_insert_default()
    }

    /// Drops a companion that holds nothing, and a tail that is not needed.
    pub fn tidy(&mut self) {
        let Some(tail) = self.tail.as_mut() else { return };
        if tail.companion.as_ref().is_some_and(|series| series.is_empty()) {
            tail.companion = None;
        }
        if tail.companion.is_none() && tail.weights.is_none() && tail.segments.is_empty() {
            self.tail = None;
        }
    }

    fn offset(&self, index: u32) -> u32 {
        let slots = self.offsets.len();
        let slot = (self.head as usize).saturating_add(index as usize);
        let slot = slot.checked_sub(slots).unwrap_or(slot);
        self.offsets.get(slot).copied().unwrap_or(0)
    }

    /// What the offset of an entry counts from.
    fn base(&self, index: u32) -> u64 {
        match &self.tail {
            Some(tail) if !tail.segments.is_empty() => {
                let ever = tail.dropped.saturating_add(u64::from(index));
                let after = tail.segments.partition_point(|segment| segment.first <= ever);
                after
                    .checked_sub(1)
                    .and_then(|at| tail.segments.get(at))
                    .map_or(self.base_us, |segment| segment.base_us)
            }
            _ => self.base_us,
        }
    }

    /// An entry's time; `index < len`, 0 is the oldest.
    pub fn time(&self, index: u32) -> u64 {
        self.base(index).saturating_add(u64::from(self.offset(index)))
    }

    pub fn len(&self) -> u64 {
        u64::from(self.len)
    }

    pub fn oldest_us(&self) -> Option<u64> {
        (!self.is_empty()).then(|| self.time(0))
    }

    pub fn newest_us(&self) -> Option<u64> {
        self.len.checked_sub(1).map(|last| self.time(last))
    }

    /// Units before an entry, counted from an arbitrary start.
    fn before(&self, index: u32) -> u32 {
        match self.weights() {
            None => index,
            Some(weights) => index
                .checked_sub(1)
                .and_then(|previous| weights.ends.get(previous as usize).copied())
                .unwrap_or(weights.start),
        }
    }

    /// Units of an entry.
    pub fn weight(&self, index: u32) -> u32 {
        self.before(index.saturating_add(1)).wrapping_sub(self.before(index))
    }

    /// Units of the entries from `index` on.
    pub fn units_from(&self, index: u32) -> u64 {
        u64::from(self.before(self.len).wrapping_sub(self.before(index)))
    }

    pub fn units(&self) -> u64 {
        self.units_from(0)
    }

    /// The first entry for which `later` holds, which must hold for all after
    /// it too; `len` if it holds for none. Galloping from a guess: the cost is
    /// the logarithm of the distance to it.
    pub fn first_where(&self, guess: u32, later: impl Fn(u32) -> bool) -> u32 {
        let Some(last) = self.len.checked_sub(1) else { return 0 };
        let (mut low, mut high, mut step) = (0, self.len, 1u32);
        let guess = guess.min(last);
        if later(guess) {
            high = guess;
            while high > 0 {
                let probe = high.saturating_sub(step);
                if !later(probe) {
                    low = probe.saturating_add(1);
                    break;
                }
                high = probe;
                step = step.saturating_mul(2);
            }
        } else {
            low = guess.saturating_add(1);
            while low < self.len {
                let probe = low.saturating_add(step).min(last);
                if later(probe) {
                    high = probe;
                    break;
                }
                low = probe.saturating_add(1);
                step = step.saturating_mul(2);
            }
        }
        while low < high {
            let middle = low.midpoint(high);
            if later(middle) {
                high = middle;
            } else {
                low = middle.saturating_add(1);
            }
        }
        low
    }

    /// The first entry later than a time, guessed as if entries came evenly.
    fn first_after(&self, time_us: u64) -> u32 {
        let Some(last) = self.len.checked_sub(1) else { return 0 };
        let oldest = self.time(0);
        let Some(into) = time_us.checked_sub(oldest) else { return 0 };
        let span = self.time(last).saturating_sub(oldest);
        let guess = floor_div(product(into.min(span), u64::from(last)), span);
        let guess = u32::try_from(guess).unwrap_or(last);
        self.first_where(guess, |index| self.time(index) > time_us)
    }

    /// Units of the entries later than a time; of all without one.
    pub fn units_after(&self, time_us: Option<u64>) -> u64 {
        match time_us {
            None => self.units(),
            Some(time_us) => self.units_from(self.first_after(time_us)),
        }
    }

    /// The entry that holds the `nth` newest unit, counted from 1.
    pub fn entry_of_newest(&self, nth: u64) -> Option<u32> {
        if nth == 0 || nth > self.units() {
            return None;
        }
        if self.weights().is_none() {
            return self.len.checked_sub(u32::try_from(nth).ok()?);
        }
        // The last entry with at least `nth` units from it on.
        let older = self.units().saturating_sub(nth);
        let guess = floor_div(product(older, u64::from(self.len)), self.units());
        let guess = u32::try_from(guess).unwrap_or(self.len);
        self.first_where(guess, |index| self.units_from(index) < nth).checked_sub(1)
    }

    /// Adds an entry, not earlier than the newest.
    pub fn push(&mut self, time_us: u64, weight: u32) {
        if weight == 0 {
            return;
        }
        let time_us = time_us.max(self.newest_us().unwrap_or(0));
        if weight != 1 && self.weights().is_none() {
            let ends = (1..=self.len).collect();
            self.tail.get_or_insert_default().weights = Some(Weights { start: 0, ends });
        }
        let total = self.before(self.len).wrapping_add(weight);
        let offset = self.offset_for(time_us);
        if self.is_full() {
            self.resize(capacity_for(self.len.saturating_add(1)));
        }
        let slots = self.offsets.len();
        let slot = (self.head as usize).saturating_add(self.len as usize);
        let slot = slot.checked_sub(slots).unwrap_or(slot);
        if let Some(free) = self.offsets.get_mut(slot) {
            *free = offset;
            self.len = self.len.saturating_add(1);
            if let Some(weights) = self.tail.as_mut().and_then(|tail| tail.weights.as_mut()) {
                weights.ends.push_back(total);
            }
        }
    }

    /// The offset of a new entry, with a new segment if it is out of reach.
    fn offset_for(&mut self, time_us: u64) -> u32 {
        let Some(last) = self.len.checked_sub(1) else {
            self.base_us = time_us;
            return 0;
        };
        if let Ok(offset) = u32::try_from(time_us.saturating_sub(self.base(last))) {
            return offset;
        }
        let len = u64::from(self.len);
        let tail = self.tail.get_or_insert_default();
        let first = tail.dropped.saturating_add(len);
        tail.segments.push_back(Segment { first, base_us: time_us });
        0
    }

    /// No entry can be added without another ring.
    pub fn is_full(&self) -> bool {
        self.len as usize == self.offsets.len()
    }

    /// The offsets, oldest first, in the two runs in which they lie in the ring.
    fn runs(&self) -> (&[u32], &[u32]) {
        let len = self.len as usize;
        let (wrapped, front) =
            self.offsets.split_at_checked(self.head as usize).unwrap_or_default();
        let front = front.get(..len).unwrap_or(front);
        (front, wrapped.get(..len.saturating_sub(front.len())).unwrap_or_default())
    }

    fn resize(&mut self, slots: u32) {
        let mut offsets = Vec::with_capacity(slots as usize);
        let (front, wrapped) = self.runs();
        offsets.extend_from_slice(front);
        offsets.extend_from_slice(wrapped);
        offsets.resize(slots as usize, 0);
        self.offsets = offsets.into_boxed_slice();
        self.head = 0;
    }

    /// Drops the oldest entries.
    fn drop_front(&mut self, entries: u32) {
        let entries = entries.min(self.len);
        if entries == self.len {
            return self.clear();
        }
        if entries == 0 {
            return;
        }
        self.base_us = self.base(entries);
        let start = self.before(entries);
        let slots = u32::try_from(self.offsets.len()).unwrap_or(u32::MAX);
        let head = self.head.saturating_add(entries);
        self.head = head.checked_sub(slots).unwrap_or(head);
        self.len = self.len.saturating_sub(entries);
        if let Some(tail) = self.tail.as_mut() {
            tail.dropped = tail.dropped.saturating_add(u64::from(entries));
            while tail.segments.front().is_some_and(|segment| segment.first <= tail.dropped) {
                tail.segments.pop_front();
            }
            if let Some(weights) = tail.weights.as_mut() {
                weights.ends.drain(..entries as usize);
                weights.start = start;
            }
        }
        self.shrink();
    }

    /// Drops the newest entry, and its segment if it was the only one there.
    fn drop_back(&mut self) {
        let Some(left) = self.len.checked_sub(1) else { return };
        if left == 0 {
            return self.clear();
        }
        self.len = left;
        if let Some(tail) = self.tail.as_mut() {
            let end = tail.dropped.saturating_add(u64::from(left));
            while tail.segments.back().is_some_and(|segment| segment.first >= end) {
                tail.segments.pop_back();
            }
            if let Some(weights) = tail.weights.as_mut() {
                weights.ends.pop_back();
            }
        }
    }

    /// Forgets every entry; a companion stays.
    pub fn clear(&mut self) {
        let companion = self.tail.take().and_then(|tail| tail.companion);
        *self = Self::default();
        if companion.is_some() {
            self.tail.get_or_insert_default().companion = companion;
        }
    }

    fn shrink(&mut self) {
        if (self.len as usize) < self.offsets.len() / 4 {
            self.resize(capacity_for(self.len));
            if let Some(weights) = self.tail.as_mut().and_then(|tail| tail.weights.as_mut()) {
                weights.ends.shrink_to_fit();
            }
        }
    }

    /// Drops the entries not later than a time.
    pub fn drop_until(&mut self, time_us: u64) {
        self.drop_front(self.first_after(time_us));
    }

    /// Keeps the newest units, cutting an entry in two if it must.
    pub fn keep_newest(&mut self, units: u64) {
        if self.units() <= units {
            return;
        }
        let Some(oldest) = self.entry_of_newest(units) else { return self.clear() };
        self.drop_front(oldest);
        let surplus = u32::try_from(self.units().saturating_sub(units)).unwrap_or(0);
        if let Some(weights) = self.tail.as_mut().and_then(|tail| tail.weights.as_mut()) {
            weights.start = weights.start.wrapping_add(surplus);
        }
    }

    /// Takes units off the newest entry; how many it had, at most `units`.
    pub fn take_newest(&mut self, units: u32) -> u32 {
        let Some(last) = self.len.checked_sub(1) else { return 0 };
        let weight = self.weight(last);
        if units >= weight {
            self.drop_back();
            return weight;
        }
        let weights = self.tail.as_mut().and_then(|tail| tail.weights.as_mut());
        if let Some(end) = weights.and_then(|weights| weights.ends.back_mut()) {
            *end = end.wrapping_sub(units);
        }
        units
    }

    /// Each entry's time and weight, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u32)> + '_ {
        (0..self.len).map(|index| (self.time(index), self.weight(index)))
    }

    /// Shows each heap block held.
    pub fn show_blocks(&mut self, to: &mut impl Blocks) {
        to.slice(&mut self.offsets);
        let Some(tail) = &mut self.tail else { return };
        to.boxed(tail);
        to.ring(&mut tail.segments);
        if let Some(weights) = &mut tail.weights {
            to.ring(&mut weights.ends);
        }
        if let Some(companion) = &mut tail.companion {
            to.boxed(companion);
            companion.show_blocks(to);
        }
    }
}

/// Series are equal when their entries are, however they are laid out.
impl PartialEq for Series {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len
            && self.iter().eq(other.iter())
            && self.companion() == other.companion()
    }
}

impl Eq for Series {}

#[cfg(test)]
mod tests;
