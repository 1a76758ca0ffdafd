//! A series of timestamps with weights: the memory of the sliding log.
//!
//! ```text
//! | front, len, base_us ... | . | . |o_0|o_1|o_2|o_3| . |   a ring of 4-byte offsets
//!                                   ^front        len = 4
//! time of an entry = base + offset
//! ```
//!
//! All of it is one block of memory, which is what a check waits for.
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

mod search;
mod tail;

use self::tail::{Tail, Weights};
use super::blocks::Blocks;
use super::exact::{floor_div, product};
use crate::headed::Headed;
use std::ptr;

/// Entries in time order, oldest first.
#[derive(Clone, Debug)]
pub struct Series {
    ring: Headed<Head, u32>,
}

#[derive(Clone, Debug, Default)]
struct Head {
    /// What the offsets of the first segment count from.
    base_us: u64,
    /// The time of the newest entry, which every check asks for.
    newest_us: u64,
    tail: Option<Box<Tail>>,
    /// Where in the ring the oldest entry is.
    front: u32,
    len: u32,
    /// The owner's.
    note: u32,
}

/// Bytes of a block before its ring.
const OVERHEAD: u32 = 44;

const _: () = assert!(Headed::<Head, u32>::OVERHEAD == OVERHEAD as usize);

/// Bytes of a block of 60 entries, as many as a busy client's log may have.
const USUAL: usize = 320;

/// Slots in a ring, chosen so that the block fills a size class of the
/// allocator: 64 bytes at least, then steps of 16, and from 128 on four to a
/// doubling.
fn capacity_for(entries: u32) -> u32 {
    let bytes = entries.saturating_mul(4).saturating_add(OVERHEAD).max(64);
    let doubling = bytes.saturating_sub(1).checked_ilog2().unwrap_or(0);
    let step = 1u32 << doubling.saturating_sub(2).max(4);
    let class = bytes.checked_next_multiple_of(step).unwrap_or(u32::MAX);
    class.saturating_sub(OVERHEAD) / 4
}

impl Default for Series {
    fn default() -> Self {
        Self::with_slots(Head::default(), capacity_for(1))
    }
}

impl Series {
    fn with_slots(head: Head, slots: u32) -> Self {
        Self { ring: Headed::new(head, 0, slots) }
    }

    #[inline]
    fn head(&self) -> &Head {
        self.ring.header()
    }

    #[inline]
    fn head_mut(&mut self) -> &mut Head {
        self.ring.header_mut()
    }

    /// Where it lies, as far as one can say without looking there: it may be
    /// smaller or larger.
    #[inline]
    pub fn block(&self) -> *const [u8] {
        ptr::slice_from_raw_parts(self.ring.start(), USUAL)
    }

    /// Four bytes that the owner keeps here.
    pub fn note(&self) -> u32 {
        self.head().note
    }

    pub fn set_note(&mut self, note: u32) {
        self.head_mut().note = note;
    }

    pub fn is_empty(&self) -> bool {
        self.head().len == 0
    }

    fn tail(&self) -> Option<&Tail> {
        self.head().tail.as_deref()
    }

    fn tail_mut(&mut self) -> Option<&mut Tail> {
        self.head_mut().tail.as_deref_mut()
    }

    fn tail_or_new(&mut self) -> &mut Tail {
        self.head_mut().tail.get_or_insert_default()
    }

    fn weights(&self) -> Option<&Weights> {
        self.tail()?.weights.as_ref()
    }

    fn weights_mut(&mut self) -> Option<&mut Weights> {
        self.tail_mut()?.weights.as_mut()
    }

    pub fn companion(&self) -> Option<&Self> {
        self.tail()?.companion.as_ref()
    }

    pub fn companion_mut(&mut self) -> Option<&mut Self> {
        self.tail_mut()?.companion.as_mut()
    }

    /// The companion, made if there is none.
    pub fn companion_or_new(&mut self) -> &mut Self {
        self.tail_or_new().companion.get_or_insert_default()
    }

    /// Drops a companion that holds nothing, and a tail that is not needed.
    pub fn tidy(&mut self) {
        if self.tail_mut().is_some_and(|tail| !tail.tidy()) {
            self.head_mut().tail = None;
        }
    }

    /// The slot of an entry, also of the one that comes after the newest.
    #[inline]
    fn slot(&self, index: u32) -> usize {
        let slot = u64::from(self.head().front).saturating_add(index.into());
        let slot = slot.checked_sub(self.ring.count().into()).unwrap_or(slot);
        usize::try_from(slot).unwrap_or(usize::MAX)
    }

    #[inline]
    fn offset(&self, index: u32) -> u32 {
        self.ring.items().get(self.slot(index)).copied().unwrap_or(0)
    }

    /// What the offset of an entry counts from.
    #[inline]
    fn base(&self, index: u32) -> u64 {
        let of_later = self.tail().and_then(|tail| tail.base_us(index));
        of_later.unwrap_or(self.head().base_us)
    }

    /// An entry's time; `index < len`, 0 is the oldest.
    pub fn time(&self, index: u32) -> u64 {
        self.base(index).saturating_add(u64::from(self.offset(index)))
    }

    pub fn len(&self) -> u64 {
        u64::from(self.head().len)
    }

    pub fn oldest_us(&self) -> Option<u64> {
        (!self.is_empty()).then(|| self.time(0))
    }

    pub fn newest_us(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.head().newest_us)
    }

    /// Units before an entry, counted from an arbitrary start.
    fn before(&self, index: u32) -> u32 {
        match self.weights() {
            None => index,
            Some(weights) => weights.before(index),
        }
    }

    /// Units of an entry.
    pub fn weight(&self, index: u32) -> u32 {
        self.before(index.saturating_add(1)).wrapping_sub(self.before(index))
    }

    /// Units of the entries from `index` on.
    pub fn units_from(&self, index: u32) -> u64 {
        u64::from(self.before(self.head().len).wrapping_sub(self.before(index)))
    }

    pub fn units(&self) -> u64 {
        self.units_from(0)
    }

    /// The first entry for which `later` holds, which must hold for all after
    /// it too; `len` if it holds for none.
    pub fn first_where(&self, guess: u32, later: impl Fn(u32) -> bool) -> u32 {
        search::first_where(self.head().len, guess, later)
    }

    /// The first entry later than a time.
    fn first_after(&self, time_us: u64) -> u32 {
        if self.tail().is_some_and(Tail::has_segments) {
            return self.first_beyond(time_us, |index| self.time(index));
        }
        match time_us.checked_sub(self.head().base_us) {
            None => 0,
            Some(offset) => self.first_beyond(offset, |index| self.offset(index).into()),
        }
    }

    /// The same by what grows from entry to entry, guessed as if it grew evenly.
    #[inline]
    fn first_beyond(&self, bound: u64, of: impl Fn(u32) -> u64) -> u32 {
        let len = self.head().len;
        let Some(last) = len.checked_sub(1) else { return 0 };
        let (oldest, newest) = (of(0), of(last));
        if bound < oldest {
            return 0;
        }
        if bound >= newest {
            return len;
        }
        let (into, span) = (bound.saturating_sub(oldest), newest.saturating_sub(oldest));
        let guess = floor_div(product(into, last.into()), span);
        let guess = u32::try_from(guess).unwrap_or(last);
        self.first_where(guess, |index| of(index) > bound)
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
            return self.head().len.checked_sub(u32::try_from(nth).ok()?);
        }
        // The last entry with at least `nth` units from it on.
        let older = self.units().saturating_sub(nth);
        let guess = floor_div(product(older, self.len()), self.units());
        let guess = u32::try_from(guess).unwrap_or(u32::MAX);
        self.first_where(guess, |index| self.units_from(index) < nth).checked_sub(1)
    }

    /// Adds an entry, not earlier than the newest.
    pub fn push(&mut self, time_us: u64, weight: u32) {
        if weight == 0 {
            return;
        }
        let time_us = time_us.max(self.newest_us().unwrap_or(0));
        if weight != 1 && self.weights().is_none() {
            let ones = Weights::ones(self.head().len);
            self.tail_or_new().weights = Some(ones);
        }
        let offset = self.offset_for(time_us);
        if self.is_full() {
            self.resize(capacity_for(self.head().len.saturating_add(1)));
        }
        let slot = self.slot(self.head().len);
        if let Some(free) = self.ring.items_mut().get_mut(slot) {
            *free = offset;
            let head = self.head_mut();
            head.len = head.len.saturating_add(1);
            head.newest_us = time_us;
            if let Some(weights) = self.weights_mut() {
                weights.push(weight);
            }
        }
    }

    /// The offset of a new entry, with a new segment if it is out of reach.
    fn offset_for(&mut self, time_us: u64) -> u32 {
        let Some(last) = self.head().len.checked_sub(1) else {
            self.head_mut().base_us = time_us;
            return 0;
        };
        if let Ok(offset) = u32::try_from(time_us.saturating_sub(self.base(last))) {
            return offset;
        }
        self.tail_or_new().open_segment(last.saturating_add(1), time_us);
        0
    }

    /// No entry can be added without another ring.
    pub fn is_full(&self) -> bool {
        self.head().len == self.ring.count()
    }

    /// The offsets, oldest first, in the two runs in which they lie in the ring.
    fn runs(&self) -> (&[u32], &[u32]) {
        let (start, len) = (self.slot(0), self.head().len as usize);
        let (wrapped, front) = self.ring.items().split_at_checked(start).unwrap_or_default();
        let front = front.get(..len).unwrap_or(front);
        (front, wrapped.get(..len.saturating_sub(front.len())).unwrap_or_default())
    }

    /// Moves to another ring, in which there is room.
    fn resize(&mut self, slots: u32) {
        let mut other = Self::with_slots(Head::default(), slots);
        let (front, wrapped) = self.runs();
        for (slot, offset) in other.ring.items_mut().iter_mut().zip(front.iter().chain(wrapped)) {
            *slot = *offset;
        }
        *other.head_mut() = Head { front: 0, ..std::mem::take(self.head_mut()) };
        *self = other;
    }

    /// Drops the oldest entries.
    fn drop_front(&mut self, entries: u32) {
        let len = self.head().len;
        if entries >= len {
            return self.clear();
        }
        if entries == 0 {
            return;
        }
        let base_us = self.base(entries);
        let slot = u32::try_from(self.slot(entries)).unwrap_or(0);
        let head = self.head_mut();
        head.base_us = base_us;
        head.front = slot;
        head.len = len.saturating_sub(entries);
        if let Some(tail) = self.tail_mut() {
            tail.drop_front(entries);
        }
        self.shrink();
    }

    /// Drops the newest entry, and its segment if it was the only one there.
    fn drop_back(&mut self) {
        let Some(left) = self.head().len.checked_sub(1) else { return };
        if left == 0 {
            return self.clear();
        }
        self.head_mut().len = left;
        if let Some(tail) = self.tail_mut() {
            tail.drop_back(left);
        }
        self.head_mut().newest_us = self.time(left.saturating_sub(1));
    }

    /// Forgets every entry; a companion stays, and the note.
    pub fn clear(&mut self) {
        let head = std::mem::take(self.head_mut());
        if self.ring.count() > capacity_for(1) {
            *self = Self::default();
        }
        self.set_note(head.note);
        if let Some(companion) = head.tail.and_then(|tail| tail.companion) {
            self.tail_or_new().companion = Some(companion);
        }
    }

    fn shrink(&mut self) {
        let len = self.head().len;
        if len < self.ring.count() / 4 {
            self.resize(capacity_for(len));
            if let Some(weights) = self.weights_mut() {
                weights.shrink();
            }
        }
    }

    /// Drops the entries not later than a time: most often none or one.
    pub fn drop_until(&mut self, time_us: u64) {
        self.drop_front(self.first_where(0, |index| self.time(index) > time_us));
    }

    /// Keeps the newest units, cutting an entry in two if it must.
    pub fn keep_newest(&mut self, units: u64) {
        if self.units() <= units {
            return;
        }
        let Some(oldest) = self.entry_of_newest(units) else { return self.clear() };
        self.drop_front(oldest);
        let surplus = u32::try_from(self.units().saturating_sub(units)).unwrap_or(0);
        if let Some(weights) = self.weights_mut() {
            weights.cut_oldest(surplus);
        }
    }

    /// Takes units off the newest entry; how many it had, at most `units`.
    pub fn take_newest(&mut self, units: u32) -> u32 {
        let Some(last) = self.head().len.checked_sub(1) else { return 0 };
        let weight = self.weight(last);
        if units >= weight {
            self.drop_back();
            return weight;
        }
        if let Some(weights) = self.weights_mut() {
            weights.cut_newest(units);
        }
        units
    }

    /// Each entry's time and weight, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u32)> + '_ {
        (0..self.head().len).map(|index| (self.time(index), self.weight(index)))
    }

    /// Shows each heap block held.
    pub fn show_blocks(&mut self, to: &mut impl Blocks) {
        to.headed(&mut self.ring);
        let Some(tail) = &mut self.head_mut().tail else { return };
        to.boxed(tail);
        tail.show_blocks(to);
    }
}

/// Series are equal when their entries and notes are, however they are laid out.
impl PartialEq for Series {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self.note() == other.note()
            && self.iter().eq(other.iter())
            && self.companion() == other.companion()
    }
}

impl Eq for Series {}

#[cfg(test)]
mod tests;
