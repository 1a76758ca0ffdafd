//! Finds the keys denied most often lately, among any number of keys, in little memory:
//! Space-Saving (Metwally, Agrawal and El Abbadi, "Efficient Computation of Frequent and Top-k
//! Elements in Data Streams", 2005), with a filter before it (Homem and Carvalho, "Finding
//! Top-k Elements in Data Streams", 2010).
//!
//! ```text
//! order   9:a  4:f  4:c  4:d  2:x    k counters by rank, largest first, each with its slot
//! slots   c  a  x  f  d              the keys; each knows the rank of its counter
//! index   hash of a key -> slot
//! cells   0  2  0  1  0  0  2 ...    8k counts of the keys without a counter, by hash
//!
//! c is denied                   c and f swap ranks, c counts 5
//! y is denied, has no counter   its cell had 1, now has 2, and y gets no counter
//! y is denied once more         y evicts x, whose cell gets x's count of 2;
//!                               y counts 3: this denial, and the 2 it may have had
//! ```
//!
//! A key without a counter is counted in its cell, which it shares with other such keys. Once
//! the cell has reached the smallest counter, the next denied key evicts that counter's key. So
//! in a flood of different keys only about one in eight gets a counter, and keys with large
//! counters keep them longer.
//!
//! An incremented counter moves only past its equals: it swaps ranks with the first of them.
//! Slots do not move, so a swap writes two slot numbers and looks nothing up. For a frequent key, the
//! first equal is the counter itself; otherwise a binary search finds it. So a denial costs one hash and
//! one lookup, two more lookups if a key gets a counter,
//! and sometimes a search of `log k` steps, however many keys there are. Once all counters are
//! taken, a new key takes over the smallest one: the count stays as the `error` of the new key.
//! The new key reuses slot and buffer, so only a longer name allocates.
//!
//! # Long names
//!
//! Clients choose the names of keys, and nothing evicts this memory. So only the first
//! [`KEPT_BYTES`] of a name are kept, with its length and its 64-bit hash, which the index
//! needs anyway. Two long names that begin alike are still two keys. A counter takes at most
//! about 500 bytes for any name.
//!
//! # Decay
//!
//! Every half-life, counts are halved, and counters that reach 0 are dropped. After a time without
//! calls, several halvings are done at once. A halving is one pass over counters and cells: a few
//! microseconds every ten minutes with the default of 128 counters.
//!
//! # Bounds of the error
//!
//! Let `f` be the denials of a key and `N` those of all keys, both halved each half-life
//! as real numbers. With `k` counters, always:
//!
//! ```text
//! 1.  floor(f) <= count         a count misses no whole denial
//! 2.  count - error <= f        and overestimates by at most its error,
//! 3.  error < N/k + 1           which is small
//! 4.  f >= N/k + 1              such a key has a counter
//! ```
//!
//! Without halving all counts are whole and the `+ 1` in 3 and 4 is not needed:
//! `error <= N/k`, and a key with `f > N/k` has a counter. Proof: a denial adds one to at most one
//! counter, and a key that takes over a counter keeps the counter's count. So the counts add up to at
//! most `N`, and the smallest of `k` is at most `N/k`. No cell exceeds the smallest counter, which never
//! decreases: a cell is incremented only while it is less, and is set to the smallest when a key is
//! evicted. No cell is less than the denials of any of its keys: it gets the count of an evicted key,
//! and one for each denial. That proves 1 and 4 for keys without a counter. When a new key gets a
//! counter, its cell has reached the smallest, so the key had between 0 and that many denials. Its count
//! is the smallest plus this denial, and its error is the smallest, which proves 1, 2 and 3.
//!
//! Halving preserves all four if counts and cells are rounded down, and errors up.
//!
//! - Counts: their sum falls to half or less, and `N` to half. Since `floor(floor(f)/2) =
//!   floor(f/2)`, a count of at least `floor(f)` stays so. That keeps 1, and also 4, up to the
//!   fraction of a denial by which `f` may exceed `floor(f)`.
//! - Errors: `floor(c/2) - ceil(e/2) <= (c - e)/2` keeps 2. What rounding adds to an error is
//!   halved each time, and 1/2 + 1/4 + ... < 1: hence the `+ 1` in 3.
//! - Dropped counters: the smallest counter has fallen to 0, so all cells have fallen to 0 too.
//!   While a counter is free, no key without a counter has a whole denial left, so the key that
//!   takes the free one has no error.
//!
//! Resizing replaces the cells by new ones, which start from the smallest counter. With fewer counters
//! the smallest are dropped, and nothing else changes. With more, all counts are dropped if all counters
//! were taken: a key without a counter may have had denials, but could take a free one.
//!
//! # Rejected
//!
//! - Count-Min with a heap: its error bound holds only with some probability, a denial
//!   increments one number in each of several rows, and the heap must hold the keys anyway.
//! - `HeavyKeeper`, as in TOPK: often closer, but it forgets by chance, so a count can be too low
//!   by an unknown amount. Here `count - error` is certain.
//! - Weights that grow with time, instead of halving: then an increment can move a counter past
//!   larger ones, not only past its equals.
//! - A list of the groups of equals, as in the paper: it always knows the first equal, but with about a
//!   hundred counters the upkeep of the list costs more than the searches that it saves.
//! - Exact counts: an attacker who makes up keys would decide how much memory they take.

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use std::borrow::Cow;
use std::hash::BuildHasher;

/// The time in which the weight of a denial halves.
pub const HALF_LIFE_US: u64 = 10 * 60 * 1_000_000;

/// How many bytes of a name are kept at most.
pub const KEPT_BYTES: usize = 256;

/// How many cells there are for each counter.
const CELLS: usize = 8;

/// The sketch, which counts nothing until it is resized. The module's documentation states its
/// guarantees.
#[derive(Debug, Default)]
pub struct Top {
    /// The counters by rank, largest first.
    order: Vec<RankedCount>,
    /// The keys of the counters. A key keeps its slot until counters are dropped.
    slots: Vec<Slot>,
    /// The slot of each key.
    index: HashTable<usize>,
    hashing: RandomState,
    /// How many counters there may be.
    capacity: usize,
    /// By hash: how many denials a key without a counter may have had at most. No cell exceeds the
    /// smallest counter; while a counter is free, each is 0.
    cells: Vec<u64>,
    /// The time up to which halvings are done.
    halved_us: u64,
}

#[derive(Debug)]
struct RankedCount {
    count: u64,
    slot: usize,
}

#[derive(Debug, Default)]
struct Slot {
    /// The first [`KEPT_BYTES`] of the key's name. Its capacity is no larger.
    key: Vec<u8>,
    /// The length and the hash of the whole name.
    len: usize,
    hash: u64,
    /// The index of its counter in the order.
    rank: usize,
    error: u64,
    /// When the key got its counter.
    since_us: u64,
}

/// A key that is denied often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The first [`KEPT_BYTES`] of the key's name.
    pub key: &'a [u8],
    /// The length of the whole name, in bytes.
    pub len: usize,
    /// The 64-bit hash of the whole name.
    pub hash: u64,
    /// Its denials, halved each half-life. Overestimates by at most `error`.
    pub count: u64,
    /// By how much `count` can be too high at most.
    pub error: u64,
    /// When the key got its counter. Earlier denials have decayed, or are part of `error`.
    pub since_us: u64,
}

impl<'a> Entry<'a> {
    /// The name, or for a cut name its beginning, hash and length. Only a cut name is shown as
    /// more than [`KEPT_BYTES`].
    pub fn shown(&self) -> Cow<'a, [u8]> {
        if self.len == self.key.len() {
            return Cow::Borrowed(self.key);
        }
        let rest = format!("...#{:016x} ({} bytes)", self.hash, self.len);
        Cow::Owned([self.key, rest.as_bytes()].concat())
    }
}

impl Top {
    /// Sets how many counters there may be. Keeps the largest counters, and frees the memory of
    /// the others. If all are taken and there may be more, drops all counts.
    #[inline]
    pub fn resize(&mut self, counters: usize) {
        if counters != self.capacity {
            self.change_capacity(counters);
        }
    }

    fn change_capacity(&mut self, counters: usize) {
        let is_full = self.order.len() == self.capacity;
        self.keep(if is_full && counters > self.capacity { 0 } else { counters });
        self.capacity = counters;
        self.cells = vec![self.smallest().unwrap_or(0); counters.saturating_mul(CELLS)];
        self.order.shrink_to(counters);
        self.slots.shrink_to(counters);
        let slots = &self.slots;
        self.index.shrink_to(counters, |&slot| hash_of(slots, slot));
    }

    /// Drops all counts.
    pub fn clear(&mut self) {
        self.keep(0);
        self.cells.fill(0);
    }

    /// Counts a denial of a key.
    pub fn count(&mut self, key: &[u8], now_us: u64) {
        self.decay(now_us);
        let hash = self.hashing.hash_one(key);
        match self.find(key, hash) {
            Some(slot) => self.increment(slot),
            None => self.count_in_cell(key, hash, now_us),
        }
    }

    /// The keys most often denied, at most `n`, largest first.
    pub fn largest(&mut self, now_us: u64, n: usize) -> impl ExactSizeIterator<Item = Entry<'_>> {
        self.decay(now_us);
        let entry = |&RankedCount { count, slot }: &RankedCount| {
            let &Slot { ref key, len, hash, error, since_us, .. } = self.slots.get(slot)?;
            Some(Entry { key, len, hash, count, error, since_us })
        };
        self.order.iter().take(n).filter_map(entry).collect::<Vec<_>>().into_iter()
    }

    /// The slot of a key.
    fn find(&self, key: &[u8], hash: u64) -> Option<usize> {
        // The hash is that of the whole name, so it distinguishes long names.
        let has = |slot: &Slot| slot.hash == hash && slot.key == kept(key);
        self.index.find(hash, |&slot| self.slots.get(slot).is_some_and(has)).copied()
    }

    /// Counts a denial of a key without a counter: in its cell, or, if the cell has reached the
    /// smallest counter, in that counter.
    #[inline(never)]
    fn count_in_cell(&mut self, key: &[u8], hash: u64, now_us: u64) {
        if let (Some(smallest), Some(cell)) = (self.smallest(), self.cell(hash))
            && *cell < smallest
        {
            *cell = cell.saturating_add(1);
        } else if let Some(slot) = self.insert(key, hash, now_us) {
            self.increment(slot);
        }
    }

    /// The smallest counter; `None` while a counter is free.
    fn smallest(&self) -> Option<u64> {
        self.order.get(self.capacity.wrapping_sub(1)).map(|counter| counter.count)
    }

    /// The cell of a hash.
    fn cell(&mut self, hash: u64) -> Option<&mut u64> {
        // The hash as a fraction of 2^64, times the number of cells.
        let cells = u128::try_from(self.cells.len()).unwrap_or(0);
        let cell = u128::from(hash).wrapping_mul(cells) >> 64;
        self.cells.get_mut(usize::try_from(cell).ok()?)
    }

    /// Gives a key a counter, the smallest if all are taken. The counter starts from the
    /// denials that the key may have had; the caller adds the present one.
    fn insert(&mut self, key: &[u8], hash: u64, now_us: u64) -> Option<usize> {
        let at =
            if self.slots.len() < self.capacity { self.add_slot() } else { self.evict_smallest()? };
        let slot = self.slots.get_mut(at)?;
        // Reserves exactly, so that no slot's capacity exceeds KEPT_BYTES.
        slot.key.reserve_exact(kept(key).len());
        slot.key.extend_from_slice(kept(key));
        slot.len = key.len();
        slot.hash = hash;
        slot.error = self.order.get(slot.rank)?.count;
        slot.since_us = now_us;
        self.index_slot(at, hash);
        Some(at)
    }

    /// Adds a slot with the smallest counter.
    fn add_slot(&mut self) -> usize {
        let rank = self.order.len();
        let slot = self.slots.len();
        self.order.push(RankedCount { count: 0, slot });
        self.slots.push(Slot { rank, ..Slot::default() });
        slot
    }

    /// Evicts the key of the smallest counter, and returns the counter's slot.
    fn evict_smallest(&mut self) -> Option<usize> {
        let &RankedCount { count, slot: at } = self.order.last()?;
        let slot = self.slots.get_mut(at)?;
        let hash = slot.hash;
        slot.key.clear();
        if let Ok(entry) = self.index.find_entry(hash, |&slot| slot == at) {
            entry.remove();
        }
        *self.cell(hash)? = count;
        Some(at)
    }

    /// Adds a slot to the index.
    fn index_slot(&mut self, slot: usize, hash: u64) {
        self.index.insert_unique(hash, slot, |&slot| hash_of(&self.slots, slot));
    }

    /// Adds one to a counter. The counter swaps ranks with the first of its equals, and so becomes
    /// the last of the counters with the new count.
    fn increment(&mut self, slot: usize) {
        let Some(rank) = self.slots.get(slot).map(|slot| slot.rank) else { return };
        let Some(count) = self.order.get(rank).map(|counter| counter.count) else { return };
        let Some(more) = count.checked_add(1) else { return };
        let first = self.first_of_equals(rank, count);
        self.swap(rank, first);
        if let Some(counter) = self.order.get_mut(first) {
            counter.count = more;
        }
    }

    /// The rank of the first counter with this count, given the rank of any of them.
    fn first_of_equals(&self, rank: usize, count: u64) -> usize {
        let before = rank.checked_sub(1).and_then(|before| self.order.get(before));
        if before.is_none_or(|before| before.count > count) {
            return rank;
        }
        self.order.partition_point(|counter| counter.count > count)
    }

    /// Swaps the ranks of two counters.
    fn swap(&mut self, one: usize, other: usize) {
        let Ok([a, b]) = self.order.get_disjoint_mut([one, other]) else { return };
        std::mem::swap(a, b);
        for (counter, rank) in [(a, one), (b, other)] {
            if let Some(slot) = self.slots.get_mut(counter.slot) {
                slot.rank = rank;
            }
        }
    }

    /// Halves as often as is due. Without counters, or after the clock stepped back, no
    /// halving is due, and the next one is a half-life away.
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

    /// Keeps this number of the largest counters, drops the others, and sorts the slots by rank.
    fn keep(&mut self, counters: usize) {
        if counters >= self.order.len() {
            return;
        }
        self.order.truncate(counters);
        self.slots.sort_unstable_by_key(|slot| slot.rank);
        self.slots.truncate(counters);
        self.index.clear();
        for rank in 0..counters {
            let Some(counter) = self.order.get_mut(rank) else { return };
            counter.slot = rank;
            let Some(hash) = self.slots.get(rank).map(|slot| slot.hash) else { return };
            self.index_slot(rank, hash);
        }
    }
}

/// The part of a name that is kept.
fn kept(key: &[u8]) -> &[u8] {
    key.get(..KEPT_BYTES).unwrap_or(key)
}

fn hash_of(slots: &[Slot], slot: usize) -> u64 {
    slots.get(slot).map_or(0, |slot| slot.hash)
}

/// A number after some halvings, rounded down.
fn halved(number: u64, halvings: u32) -> u64 {
    number.checked_shr(halvings).unwrap_or(0)
}

/// A number after some halvings, rounded up.
fn halved_up(number: u64, halvings: u32) -> u64 {
    halved(number.saturating_sub(1), halvings).saturating_add(1).min(number)
}

#[cfg(test)]
mod tests;
