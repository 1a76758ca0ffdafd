//! The keys most often denied lately, of however many there are, in the room
//! of a few: Space-Saving (Metwally, Agrawal and El Abbadi, "Efficient
//! Computation of Frequent and Top-k Elements in Data Streams", 2005), with a
//! filter before it (Homem and Carvalho, "Finding Top-k Elements in Data
//! Streams", 2010).
//!
//! ```text
//! order   9:a  4:f  4:c  4:d  2:x    k counts, largest first, each with its slot
//! slots   c  a  x  f  d              the keys; each knows its place in the order
//! index   hash of a key -> slot
//! cells   0  2  0  1  0  0  2 ...    8k counts of the keys that are not here, by hash
//!
//! c is denied                   c and f change places, c counts 5
//! y, not here, is; its cell: 1  it has 2 then, and y stays outside
//! y is denied once more         x leaves, to be counted in its cell, which gets 2;
//!                               y counts 3: the one, and the 2 it may have had
//! ```
//!
//! A key that is not here is counted in its cell, with all others whose cell
//! that is, up to the smallest counter; then it takes that over. So a flood of
//! keys that are all different raises cells, one in eight or so of them a
//! counter, and those who have the counters stay longer.
//!
//! A counter that grows by one goes no further than past its equals: two change
//! places. Slots stay where they are, so that takes two numbers of slots and no
//! look-up. Where the equals begin is seen at once if the counter is the first
//! of them, as those of frequent keys are, or if they begin where the last such
//! raise has left them, as when newcomers take over the smallest one by one;
//! else a binary search of the counts tells. So a denial costs one hash and one
//! look-up, two more if a key enters, and now and then a search of `log k`
//! steps, however many keys there are. Once all counters are taken, a key that
//! enters gets the smallest, with what that counted as its `error`, and its slot,
//! buffer and all: nothing is allocated any more but for a longer key.
//!
//! # Long names
//!
//! Clients choose the names of keys, and nothing evicts what is here. So of a name
//! only the first [`KEPT_BYTES`] are kept, with its length and the 64 bits of its
//! hash, which the index needs anyway: two names with one beginning are two keys.
//! A counter takes some 500 bytes at most, whatever is denied.
//!
//! # DirectMapped
//!
//! Every half-life, counts are halved, and those that fall to nothing leave;
//! after a pause, several halvings at once. It costs a pass over counters and
//! cells, a few microseconds in ten minutes with the hundred there usually are.
//!
//! # How wrong it can be
//!
//! Let `f` be the denials of a key and `N` those of all keys, both halved each
//! half-life as real numbers. With `k` counters, always:
//!
//! ```text
//! 1.  floor(f) <= count         a count misses no whole denial
//! 2.  count - error <= f        and overestimates by at most its error,
//! 3.  error < N/k + 1           which is small
//! 4.  f >= N/k + 1              is here
//! ```
//!
//! Without halving all counts are whole and the ones in 3 and 4 are not needed:
//! `error <= N/k`, and a key with `f > N/k` is here. Why: a denial adds one to
//! one counter at most, and a key that enters takes its counter over, so the
//! counts add up to `N` at most, and the smallest of `k` is at most `N/k`. No
//! cell has more than that smallest, which only ever grows: it is added to only
//! while it has less, and gets the smallest when a key leaves for it. No cell
//! has less than any of its keys had: it gets the count of one that leaves, and
//! one for each denial. That is 1 and 4 for those that are not here. One that
//! enters had 0 to the smallest, as its cell has as much as that: it counts the
//! smallest and the one, its error is the smallest, which is 1, 2 and 3.
//!
//! Halving keeps all of it if counts and cells are rounded down, and errors up.
//! Down, the sum is at most halved, as `N` is. Whole denials halve as counts do,
//! `floor(floor(f)/2) = floor(f/2)`, so that what was at least `floor(f)` stays
//! so: 1, and 4 with the part of a denial that `f` may have beyond `floor(f)`.
//! Up, `floor(c/2) - ceil(e/2) <= (c - e)/2`, so 2 holds; what an error gains is
//! halved each time: 1/2 + 1/4 + ... < 1, hence the one in 3. And if a counter
//! leaves, the smallest fell to 0, so all cells did too: a place is free only if
//! nobody is missed, and who takes it has no error.
//!
//! With another number of counters the cells are new ones, which start from
//! `missed`, the most that any key may have had that is not here. Fewer counters
//! change nothing else: those that leave are the smallest. With more, 1 and 2
//! hold, but who takes a free place starts from `missed` too, and 3 and 4 come
//! back only as that is halved away.
//!
//! # Rejected
//!
//! Count-Min with a heap: the same error only with some probability, for a number
//! to raise in each of several rows, and the heap holds the keys all the same.
//! HeavyKeeper (what TOPK has): often closer, but it forgets by chance, so that a
//! count can be too low by any amount, and nothing says by how much; here
//! `count - error` is sure. Newer
//! denials that weigh more, instead of halving: with steps of one, a counter goes
//! no further than past its equals. A list of the groups of equals, as the paper
//! has it: where they begin is then at hand always, but with the hundred counters
//! there usually are, to keep it costs more than the searches it saves. Exact
//! counts: an attacker, who can make up keys, says how much room.

#![forbid(unsafe_code)]

pub mod shared;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use std::borrow::Cow;
use std::hash::BuildHasher;

/// In this time, a denial comes to count for half.
pub const HALF_LIFE_US: u64 = 10 * 60 * 1_000_000;

/// How much of a name is kept.
pub const KEPT_BYTES: usize = 256;

/// For each counter.
const CELLS: usize = 8;

/// The sketch. See the module's text for what it promises.
#[derive(Debug, Default)]
pub struct Top {
    /// Largest first.
    order: Vec<Counter>,
    /// The keys of the counters; one stays where it is until counters are dropped.
    slots: Vec<Slot>,
    /// Which slot has a key.
    index: HashTable<usize>,
    hashing: RandomState,
    /// Where equals may begin: behind the last of them that was raised.
    hint: usize,
    /// The most counters there may be.
    capacity: usize,
    /// What who takes a free place may have had; no counter has less.
    missed: u64,
    /// What keys that are not here may have had, by hash. None has less than
    /// `missed`, nor more while a place is free; and none has more than the
    /// smallest counter.
    cells: Vec<u64>,
    /// Up to when halvings are done.
    halved_us: u64,
}

#[derive(Debug)]
struct Counter {
    count: u64,
    slot: usize,
}

#[derive(Debug, Default)]
struct Slot {
    /// The first [`KEPT_BYTES`] of the key's name; no more room than that either.
    key: Vec<u8>,
    /// The length and the hash of the whole name.
    len: usize,
    hash: u64,
    /// Where its counter is in the order.
    place: usize,
    error: u64,
    /// When the key came in.
    since_us: u64,
}

/// A key that is denied often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The first [`KEPT_BYTES`] of its name.
    pub key: &'a [u8],
    /// The length of the whole name, in bytes, and its hash.
    pub len: usize,
    pub hash: u64,
    /// Its denials, the older the less; too many by at most `error`.
    pub count: u64,
    pub error: u64,
    /// When it came in. What it was denied before then has faded, or is part of
    /// its error.
    pub since_us: u64,
}

impl<'a> Entry<'a> {
    /// The name; of one that was cut its beginning, hash and length. Only a cut
    /// name is shown as more than [`KEPT_BYTES`].
    #[must_use]
    pub fn shown(&self) -> Cow<'a, [u8]> {
        if self.len == self.key.len() {
            return Cow::Borrowed(self.key);
        }
        let rest = format!("...#{:016x} ({} bytes)", self.hash, self.len);
        Cow::Owned([self.key, rest.as_bytes()].concat())
    }
}

impl Top {
    /// Keeps at most so many keys; with 0, none.
    #[must_use]
    pub fn new(counters: usize) -> Self {
        let mut top = Self::default();
        top.resize(counters);
        top
    }

    /// Keeps at most so many keys from now on, the largest, and no memory for
    /// more.
    #[inline]
    pub fn resize(&mut self, counters: usize) {
        if counters != self.capacity {
            self.make_room(counters);
        }
    }

    fn make_room(&mut self, counters: usize) {
        if counters == 0 {
            *self = Self::default();
            return;
        }
        self.missed = self.cells.iter().copied().fold(self.missed, u64::max);
        self.keep(counters);
        self.capacity = counters;
        self.cells = vec![self.missed; counters.saturating_mul(CELLS)];
        self.order.shrink_to(counters);
        self.slots.shrink_to(counters);
        let slots = &self.slots;
        self.index.shrink_to(counters, |&slot| hash_of(slots, slot));
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.order.clear();
        self.slots.clear();
        self.index.clear();
        self.cells.fill(0);
        self.missed = 0;
    }

    /// Counts a denial of a key.
    pub fn count(&mut self, key: &[u8], now_us: u64) {
        self.decay(now_us);
        let hash = self.hashing.hash_one(key);
        match self.find(key, hash) {
            Some(slot) => self.raise(slot),
            None => self.count_outside(key, hash, now_us),
        }
    }

    /// The keys most often denied, at most `n`, largest first.
    pub fn largest(&mut self, now_us: u64, n: usize) -> impl ExactSizeIterator<Item = Entry<'_>> {
        self.decay(now_us);
        let entry = |&Counter { count, slot }: &Counter| {
            let &Slot { ref key, len, hash, error, since_us, .. } = self.slots.get(slot)?;
            Some(Entry { key, len, hash, count, error, since_us })
        };
        self.order.iter().take(n).filter_map(entry).collect::<Vec<_>>().into_iter()
    }

    /// The slot of a key.
    fn find(&self, key: &[u8], hash: u64) -> Option<usize> {
        // The hash is that of the whole name, and so tells long ones apart.
        let has = |slot: &Slot| slot.hash == hash && slot.key == kept(key);
        self.index.find(hash, |&slot| self.slots.get(slot).is_some_and(has)).copied()
    }

    /// The smallest counter, if all are taken.
    fn smallest_of_all(&self) -> Option<u64> {
        let last = self.capacity.checked_sub(1)?;
        self.order.get(last).map(|counter| counter.count)
    }

    /// Counts a denial of a key that is not here: in its cell, or if that then
    /// had more than the smallest counter, in that one.
    #[inline(never)]
    fn count_outside(&mut self, key: &[u8], hash: u64, now_us: u64) {
        let smallest = self.smallest_of_all();
        match (smallest, self.cell(hash)) {
            (Some(smallest), Some(cell)) if *cell < smallest => *cell = cell.saturating_add(1),
            _ => {
                if let Some(slot) = self.enter(key, hash, now_us) {
                    self.raise(slot);
                }
            }
        }
    }

    /// The cell of the keys with this hash, if they are not here.
    fn cell(&mut self, hash: u64) -> Option<&mut u64> {
        // The upper half of a product is the hash as a part of 2^64, of them all.
        let cells = u128::try_from(self.cells.len()).unwrap_or(0);
        let cell = u128::from(hash).wrapping_mul(cells) >> 64;
        self.cells.get_mut(usize::try_from(cell).ok()?)
    }

    /// Gives a key a counter, the smallest if all are taken: with what it may
    /// have had, the denial that brings it here still to come.
    fn enter(&mut self, key: &[u8], hash: u64, now_us: u64) -> Option<usize> {
        let at = if self.slots.len() < self.capacity { self.add() } else { self.vacate()? };
        let slot = self.slots.get_mut(at)?;
        // Exactly: no slot gets more room than the longest name that is kept.
        slot.key.reserve_exact(kept(key).len());
        slot.key.extend_from_slice(kept(key));
        slot.len = key.len();
        slot.hash = hash;
        slot.error = self.order.get(slot.place)?.count;
        slot.since_us = now_us;
        self.list(at, hash);
        Some(at)
    }

    /// A new slot; its counter is the smallest.
    fn add(&mut self) -> usize {
        let place = self.order.len();
        let slot = self.slots.len();
        self.order.push(Counter { count: self.missed, slot });
        self.slots.push(Slot { place, ..Slot::default() });
        slot
    }

    /// The slot of the smallest counter, which its key leaves.
    fn vacate(&mut self) -> Option<usize> {
        let &Counter { count, slot: at } = self.order.last()?;
        let slot = self.slots.get_mut(at)?;
        let hash = slot.hash;
        slot.key.clear();
        if let Ok(listed) = self.index.find_entry(hash, |&listed| listed == at) {
            listed.remove();
        }
        *self.cell(hash)? = count;
        Some(at)
    }

    /// Enters a slot in the index.
    fn list(&mut self, slot: usize, hash: u64) {
        self.index.insert_unique(hash, slot, |&slot| hash_of(&self.slots, slot));
    }

    /// Adds one to a counter: it becomes the first of its equals, and then the
    /// last of those that have one more.
    fn raise(&mut self, slot: usize) {
        let Some(place) = self.slots.get(slot).map(|slot| slot.place) else { return };
        let Some(count) = self.order.get(place).map(|counter| counter.count) else { return };
        let Some(more) = count.checked_add(1) else { return };
        let first = self.first_of_equals(place, count);
        self.exchange(place, first);
        if let Some(counter) = self.order.get_mut(first) {
            counter.count = more;
        }
    }

    /// Where the counters with this count begin, of which one is at a place.
    fn first_of_equals(&mut self, place: usize, count: u64) -> usize {
        if self.is_first(place, count) {
            return place;
        }
        let first = if self.is_first(self.hint, count) {
            self.hint
        } else {
            self.order.partition_point(|counter| counter.count > count)
        };
        self.hint = first.saturating_add(1);
        first
    }

    /// Do the counters with this count begin here?
    fn is_first(&self, place: usize, count: u64) -> bool {
        let before = place.checked_sub(1).and_then(|before| self.order.get(before));
        self.order.get(place).is_some_and(|counter| counter.count == count)
            && before.is_none_or(|before| before.count > count)
    }

    fn exchange(&mut self, one: usize, other: usize) {
        let Ok([a, b]) = self.order.get_disjoint_mut([one, other]) else { return };
        std::mem::swap(a, b);
        for (counter, at) in [(a, one), (b, other)] {
            if let Some(slot) = self.slots.get_mut(counter.slot) {
                slot.place = at;
            }
        }
    }

    /// Does the halvings that are due. With nothing here, or if the clock
    /// stepped back, none is, and the next is a half-life away.
    #[inline]
    fn decay(&mut self, now_us: u64) {
        if self.order.is_empty() || now_us < self.halved_us {
            self.halved_us = now_us;
        }
        let halvings = now_us.saturating_sub(self.halved_us) / HALF_LIFE_US;
        if halvings > 0 {
            self.halve(halvings);
        }
    }

    fn halve(&mut self, halvings: u64) {
        self.halved_us = self.halved_us.saturating_add(halvings.saturating_mul(HALF_LIFE_US));
        let halvings = u32::try_from(halvings).unwrap_or(u32::MAX);
        self.missed = halved(self.missed, halvings);
        for cell in &mut self.cells {
            *cell = halved(*cell, halvings);
        }
        for counter in &mut self.order {
            counter.count = halved(counter.count, halvings);
            if let Some(slot) = self.slots.get_mut(counter.slot) {
                slot.error = halved_up(slot.error, halvings).min(counter.count);
            }
        }
        self.keep(self.order.partition_point(|counter| counter.count > 0));
    }

    /// Drops all but so many of the largest, whose slots come to be in order.
    fn keep(&mut self, counters: usize) {
        let Some(largest) = self.order.get(counters) else { return };
        self.missed = self.missed.max(largest.count);
        self.order.truncate(counters);
        self.slots.sort_unstable_by_key(|slot| slot.place);
        self.slots.truncate(counters);
        self.index.clear();
        for place in 0..counters {
            let Some(counter) = self.order.get_mut(place) else { return };
            counter.slot = place;
            let Some(hash) = self.slots.get(place).map(|slot| slot.hash) else { return };
            self.list(place, hash);
        }
    }
}

/// What is kept of a name.
fn kept(key: &[u8]) -> &[u8] {
    key.get(..KEPT_BYTES).unwrap_or(key)
}

fn hash_of(slots: &[Slot], slot: usize) -> u64 {
    slots.get(slot).map_or(0, |slot| slot.hash)
}

/// A number halved so many times, rounded down.
fn halved(number: u64, halvings: u32) -> u64 {
    number.checked_shr(halvings).unwrap_or(0)
}

/// A number halved so many times, rounded up.
fn halved_up(number: u64, halvings: u32) -> u64 {
    halved(number.saturating_sub(1), halvings).saturating_add(1).min(number)
}

#[cfg(test)]
mod tests;
