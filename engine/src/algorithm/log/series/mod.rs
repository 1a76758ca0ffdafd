//! A series of timestamps with weights: the storage of the sliding log.
//!
//! ```text
//! | newest, width, front, len ... | . | . |t_0|t_1|t_2|t_3| . |   a ring of entries
//!                                         ^front        len = 4
//! age of an entry = (newest - its bytes) modulo 2^(8 * width)
//! ```
//!
//! Header and ring are one allocation, so a check follows one pointer.
//!
//! An entry stores the low bytes of its time, in microseconds. The number of bytes depends on the span
//! from the oldest entry to the newest: 4 bytes up to 71 minutes, 5 up to 12.7 days, 6 up to 8.9 years.
//! The newest time is stored whole, and restores each entry's whole time from its low bytes. Unlike
//! differences between entries, low bytes allow random access, so counting a window takes one search.
//! The search is short if requests come evenly.
//!
//! An entry that makes the span too long widens all entries, which copies them. Entries narrow only
//! when the ring grows or shrinks, which copies it anyway. By then, enough entries were added or
//! dropped to pay for the copy.
//!
//! Nearly all entries have one unit. While all entries have one unit, the series stores no weights.
//! The first entry of another weight adds a running total beside each entry, so a sum of weights is
//! still one subtraction. A total may wrap, since only differences are read.
//!
//! Rejected:
//!
//! - 8-byte timestamps: twice the memory.
//! - Offsets to a base: each long gap needs a new base, so a request every half hour took 16 bytes.
//! - Differences: counting takes a scan.
//! - A counter tree: it takes memory and pointers to do what a search does.

mod entries;
mod layout;
pub mod needs;
mod take;
mod trim;
mod weights;

use self::entries::{Entries, Width, at_width, mask, position};
pub use self::layout::Series;
use self::layout::{Extras, Head, Newest, ring_for};
use self::needs::PackedNeeds;
pub use self::take::Take;
use self::weights::Weights;
use crate::algorithm::NO_TIME_US;
use crate::exact::{floor_div, product};
use crate::header_slice::HeaderSlice;
use crate::heap::HeapVisitor;
use alloc::vec::Vec;

impl Default for Series {
    fn default() -> Self {
        Self::with_ring(Head::default(), ring_for(1, Width::Four))
    }
}

impl Series {
    fn with_ring(head: Head, bytes: u32) -> Self {
        Self { ring: HeaderSlice::new(head, 0, bytes) }
    }

    /// An empty series with room for this number of entries; `None` if memory is short. `span_us` is
    /// the time from the oldest to the newest entry. `weighted`: some have more than one unit.
    pub fn with_room(entries: u32, span_us: u64, weighted: bool) -> Option<Self> {
        let width = Width::for_span(span_us);
        let head = Head { newest: Newest::new(0, width), ..Head::default() };
        let bytes = ring_for(entries, width);
        let mut series = Self { ring: HeaderSlice::try_new(head, 0, bytes)? };
        if weighted {
            series.extras_or_new().weights = Some(Weights::with_room(entries)?);
        }
        Some(series)
    }

    #[inline]
    fn head(&self) -> &Head {
        self.ring.header()
    }

    #[inline]
    fn head_mut(&mut self) -> &mut Head {
        self.ring.header_mut()
    }

    /// The address of its memory, for a prefetch.
    #[inline]
    pub fn address(&self) -> *const u8 {
        self.ring.start()
    }

    /// The needs of the log that owns the series.
    #[inline]
    pub fn needs(&self) -> PackedNeeds {
        self.head().needs
    }

    pub fn set_needs(&mut self, needs: PackedNeeds) {
        self.head_mut().needs = needs;
    }

    pub fn is_empty(&self) -> bool {
        self.head().len == 0
    }

    pub fn extras(&self) -> Option<&Extras> {
        self.head().extras.as_deref()
    }

    pub fn extras_mut(&mut self) -> Option<&mut Extras> {
        self.head_mut().extras.as_deref_mut()
    }

    pub fn extras_or_new(&mut self) -> &mut Extras {
        self.head_mut().extras.get_or_insert_default()
    }

    fn weights(&self) -> Option<&Weights> {
        self.extras()?.weights.as_ref()
    }

    fn weights_mut(&mut self) -> Option<&mut Weights> {
        self.extras_mut()?.weights.as_mut()
    }

    /// Frees the extras if they are empty.
    #[inline]
    pub fn tidy(&mut self) {
        if self.extras_mut().is_some_and(|extras| !extras.tidy()) {
            self.head_mut().extras = None;
        }
    }

    fn width(&self) -> Width {
        self.head().newest.width()
    }

    #[inline(always)]
    fn entries<const W: usize>(&self) -> Entries<'_, W> {
        let head = self.head();
        let (front, newest_us) = (head.front as usize, head.newest.us());
        Entries { ring: self.ring.items(), front, newest_us }
    }

    /// Where in the ring an entry begins.
    fn position(&self, index: u32) -> usize {
        let (ring, front) = (self.ring.items().len(), self.head().front as usize);
        position(ring, front, index, self.width().bytes() as usize)
    }

    /// How much older an entry is than the newest.
    #[inline]
    fn age(&self, index: u32) -> u64 {
        at_width!(self.width(), W => self.entries::<W>().age(index))
    }

    /// An entry's time; `index < len`, 0 is the oldest.
    pub fn time(&self, index: u32) -> u64 {
        self.head().newest.us().saturating_sub(self.age(index))
    }

    pub fn len(&self) -> u64 {
        u64::from(self.head().len)
    }

    pub fn oldest_us(&self) -> Option<u64> {
        (!self.is_empty()).then(|| self.time(0))
    }

    pub fn newest_us(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.last_us())
    }

    /// The time of the newest entry; [`NO_TIME_US`] without entries.
    #[inline]
    pub fn last_us(&self) -> u64 {
        let last_us = self.head().newest.us();
        debug_assert!(!self.is_empty() || last_us == NO_TIME_US, "no entry has this time");
        last_us
    }

    /// The running total of units before an entry. It starts at an arbitrary number.
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

    /// The first entry for which `later` holds, or `len`. `later` must also hold for all entries
    /// after it. Gallops from `guess` (Bentley and Yao, "An Almost Optimal Algorithm for Unbounded
    /// Searching", 1976): the cost is the logarithm of the distance from the guess.
    pub fn first_where(&self, guess: u32, later: impl Fn(u32) -> bool) -> u32 {
        let len = self.head().len;
        let Some(last) = len.checked_sub(1) else { return 0 };
        let guess = guess.min(last);
        let (mut low, mut high, mut step) = (guess.saturating_add(1), guess, 1u32);
        if later(guess) {
            while high > 0 && later(high.saturating_sub(step)) {
                high = high.saturating_sub(step);
                step = step.saturating_mul(2);
            }
            low = high.saturating_sub(step).saturating_add(1).min(high);
        } else {
            while low < len && !later(low.saturating_add(step).min(last)) {
                low = low.saturating_add(step).min(last).saturating_add(1);
                step = step.saturating_mul(2);
            }
            high = low.saturating_add(step).min(last);
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

    /// The first entry later than a time.
    #[inline]
    fn first_after(&self, time_us: u64) -> u32 {
        match self.age_at(time_us) {
            None => self.head().len,
            Some(age) => at_width!(self.width(), W => self.first_younger::<W>(age)),
        }
    }

    /// The age that an entry at `time_us` has; `None` unless the newest is later.
    #[inline]
    fn age_at(&self, time_us: u64) -> Option<u64> {
        self.head().newest.us().checked_sub(time_us).filter(|&age| age > 0)
    }

    /// The first entry younger than `age`; the newest entry must be younger. The search starts where
    /// the result would be if requests came evenly.
    #[inline]
    fn first_younger<const W: usize>(&self, age: u64) -> u32 {
        let entries = self.entries::<W>();
        let Some(last) = self.head().len.checked_sub(1) else { return 0 };
        let oldest = entries.age(0);
        let Some(older) = oldest.checked_sub(age) else { return 0 };
        let guess = floor_div(product(older, last.into()), oldest);
        let guess = u32::try_from(guess).unwrap_or(last);
        self.first_where(guess, |index| entries.age(index) < age)
    }

    /// Units of entries later than `time_us`; of all entries if it is `None`.
    pub fn units_after(&self, time_us: Option<u64>) -> u64 {
        match time_us {
            None => self.units(),
            Some(time_us) => self.units_from(self.first_after(time_us)),
        }
    }

    /// The entry that contains the `nth` newest unit, counted from 1.
    pub fn entry_of_newest(&self, nth: u64) -> Option<u32> {
        if nth == 0 || nth > self.units() {
            return None;
        }
        if self.weights().is_none() {
            return self.head().len.checked_sub(u32::try_from(nth).ok()?);
        }
        // The last entry with at least `nth` units from it to the end.
        let older = self.units().saturating_sub(nth);
        let guess = floor_div(product(older, self.len()), self.units());
        let guess = u32::try_from(guess).unwrap_or(u32::MAX);
        self.first_where(guess, |index| self.units_from(index) < nth).checked_sub(1)
    }

    /// Adds an entry, whose time must not be before that of the newest entry.
    #[inline]
    pub fn push(&mut self, time_us: u64, weight: u32) {
        if weight == 0 {
            return;
        }
        if weight != 1 && self.weights().is_none() {
            let ones = Weights::ones(self.head().len);
            self.extras_or_new().weights = Some(ones);
        }
        let time_us = time_us.min(Newest::MAX_US).max(self.head().newest.us());
        if !at_width!(self.width(), W => self.append::<W>(time_us)) {
            self.make_room_for(time_us);
            at_width!(self.width(), W => self.append::<W>(time_us));
        }
        if let Some(weights) = self.weights_mut() {
            weights.push(weight);
        }
    }

    /// Adds an entry of the present width. Returns false if the ring is full or the width too
    /// narrow.
    #[inline(always)]
    fn append<const W: usize>(&mut self, time_us: u64) -> bool {
        let (len, front) = (self.head().len, self.head().front as usize);
        let entries = self.entries::<W>();
        if len > 0 {
            let span = time_us.wrapping_sub(entries.newest_us).wrapping_add(entries.age(0));
            if span > mask(W) || (len as usize).wrapping_mul(W) >= entries.ring.len() {
                return false;
            }
        }
        let start = position(entries.ring.len(), front, len, W);
        entries::write::<W>(self.ring.items_mut(), start, time_us);
        let newest = Newest::new(time_us, self.width());
        let head = self.head_mut();
        head.len = len.saturating_add(1);
        head.newest = newest;
        true
    }

    /// Moves to a ring with room for one more entry, of the width that `time_us` needs.
    #[cold]
    fn make_room_for(&mut self, time_us: u64) {
        let span = time_us.saturating_sub(self.time(0));
        self.resize(self.head().len.saturating_add(1), Width::for_span(span));
        let used = self.head().len.saturating_mul(self.width().bytes());
        if used >= self.ring.count() {
            // Four gigabytes of entries: drop the oldest.
            self.drop_front(1);
        }
    }

    /// Moves to a new ring with room for `entries` entries of this width.
    fn resize(&mut self, entries: u32, width: Width) {
        let mut other = Self::with_ring(Head::default(), ring_for(entries, width));
        at_width!(width, W => for index in 0..self.head().len {
            let start = (index as usize).wrapping_mul(W);
            entries::write::<W>(other.ring.items_mut(), start, self.time(index));
        });
        let head = core::mem::take(self.head_mut());
        let newest = Newest::new(head.newest.us(), width);
        *other.head_mut() = Head { newest, front: 0, ..head };
        *self = other;
    }

    /// Each entry's time and weight, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u32)> + '_ {
        (0..self.head().len).map(|index| (self.time(index), self.weight(index)))
    }

    /// Visits each heap allocation.
    pub fn visit_heap(&mut self, to: &mut impl HeapVisitor) {
        to.header_slice(&mut self.ring);
        to.optional(&mut self.head_mut().extras, Extras::visit_heap);
    }
}

impl Extras {
    /// Drops empty parts. Returns true if any part is left.
    pub fn tidy(&mut self) -> bool {
        self.charged = self.charged.take().filter(|series| !series.is_empty());
        if self.past.is_empty() {
            self.past = Vec::new();
        }
        self.charged.is_some() || self.weights.is_some() || !self.past.is_empty()
    }

    /// Visits each heap allocation, except the extras' own.
    pub fn visit_heap(&mut self, to: &mut impl HeapVisitor) {
        to.vec(&mut self.past);
        if let Some(weights) = &mut self.weights {
            weights.visit_heap(to);
        }
        if let Some(charged) = &mut self.charged {
            charged.visit_heap(to);
        }
    }
}

/// Compares entries only: widths, capacities, positions in the ring and the other extras may differ.
impl PartialEq for Series {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for Series {}

#[cfg(all(test, feature = "testing"))]
mod tests;
