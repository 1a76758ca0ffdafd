//! The keys most often denied lately, of however many there are, in the room
//! of a few: Space-Saving (Metwally, Agrawal and El Abbadi, "Efficient
//! Computation of Frequent and Top-k Elements in Data Streams", 2005).
//!
//! ```text
//! counters   a:9  f:4  c:4  d:4  x:2      k of them, largest first
//! firsts     ^9   ^4             ^2       where the counters of a count begin
//! index      key -> place
//!
//! c is denied        c and f change places, c counts 5
//! y, not here, is    x leaves, y counts 3: the one, and the 2 it may have had
//! ```
//!
//! A counter that grows by one goes no further than past its equals: two change
//! places. So a denial costs a few look-ups, however many keys there are, and a
//! key that is not here gets the smallest counter, with what that counted as
//! its `error`. Nothing is allocated but a key that enters.
//!
//! # Lately
//!
//! Every half-life, counts are halved, and those that fall to nothing leave;
//! after a pause, several halvings at once. It costs a pass over the counters,
//! a few microseconds in ten minutes.
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
//! one counter, and a key that enters takes its counter over, so the counts add
//! up to `N` at most, and the smallest of `k` is at most `N/k`. Let `missed` be
//! the last count that made room. The smallest only ever grows, so no key that
//! left had more than `missed`, which is 1 and 4 for those that are not here,
//! and `missed <= N/k`. One that enters had 0 to `missed`: it counts `missed`
//! and the one, its error is `missed`, which is 1, 2 and 3.
//!
//! Halving keeps all of it if counts and `missed` are rounded down, and errors
//! up. Down, the sum is at most halved, as `N` is. Whole denials halve as counts
//! do, `floor(floor(f)/2) = floor(f/2)`, so that what was at least `floor(f)`
//! stays so: 1, and 4 with the part of a denial that `f` may have beyond
//! `floor(f)`. Up, `floor(c/2) - ceil(e/2) <= (c - e)/2`, so 2 holds; what an
//! error gains is halved each time: 1/2 + 1/4 + ... < 1, hence the one in 3.
//! And if a counter leaves, the smallest fell to 0, so `missed` did too: a place
//! is free only if nobody is missed, and who takes it has no error.
//!
//! Fewer counters than before change nothing: those that leave are the smallest.
//! With more, 1 and 2 hold, but newcomers start from `missed`, and 3 and 4 come
//! back only as that is halved away.
//!
//! # Rejected
//!
//! Count-Min with a heap: the same error only with some probability, and in more
//! room, as each of its rows has to be wider than this is long, and the heap
//! holds the keys all the same. HeavyKeeper (what TOPK has): often closer in the
//! same room, but it forgets by chance, so that a count can be too low by any
//! amount, and nothing says by how much; here `count - error` is sure. Newer
//! denials that weigh more, instead of halving: steps of one are what makes this
//! O(1). Exact counts: an attacker, who can make up keys, says how much room.

#![forbid(unsafe_code)]

use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::Arc;

/// In this time, a denial comes to count for half.
pub const HALF_LIFE_US: u64 = 10 * 60 * 1_000_000;

/// The sketch. See the module's text for what it promises.
#[derive(Debug, Default)]
pub struct Top {
    /// Largest first.
    counters: Vec<Counter>,
    /// Where a key's counter is.
    index: HashMap<Arc<[u8]>, usize, RandomState>,
    /// Where the counters with a count begin.
    firsts: HashMap<u64, usize, RandomState>,
    /// The most counters there may be.
    capacity: usize,
    /// No key that is not here has more; nor has any here less.
    missed: u64,
    /// Up to when halvings are done.
    halved_us: u64,
}

#[derive(Debug)]
struct Counter {
    key: Arc<[u8]>,
    count: u64,
    error: u64,
    /// When it came in.
    since_us: u64,
}

/// A key that is denied often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    pub key: &'a [u8],
    /// Its denials, the older the less; too many by at most `error`.
    pub count: u64,
    pub error: u64,
    /// The first of these denials; older ones have faded.
    pub since_us: u64,
}

impl Top {
    /// Keeps at most so many keys; with 0, none.
    #[must_use]
    pub fn new(counters: usize) -> Self {
        Self { capacity: counters, ..Self::default() }
    }

    /// Keeps at most so many keys from now on: the largest.
    pub fn resize(&mut self, counters: usize) {
        self.capacity = counters;
        self.keep(counters);
        if counters == 0 {
            self.clear();
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.counters.clear();
        self.index.clear();
        self.firsts.clear();
        self.missed = 0;
    }

    /// Counts a denial of a key.
    pub fn count(&mut self, key: &[u8], now_us: u64) {
        self.decay(now_us);
        let place = self.index.get(key).copied();
        if let Some(place) = place.or_else(|| self.enter(key, now_us)) {
            self.raise(place);
        }
    }

    /// The keys most often denied, at most `n`, largest first.
    pub fn largest(&mut self, now_us: u64, n: usize) -> impl ExactSizeIterator<Item = Entry<'_>> {
        self.decay(now_us);
        self.counters.iter().take(n).map(|counter| Entry {
            key: &counter.key,
            count: counter.count,
            error: counter.error,
            since_us: counter.since_us,
        })
    }

    /// Gives a key a counter, the smallest if all are taken: with what it may
    /// have had, the denial that brings it here still to come.
    fn enter(&mut self, key: &[u8], now_us: u64) -> Option<usize> {
        if self.counters.len() >= self.capacity {
            let smallest = self.counters.pop()?;
            self.index.remove(&smallest.key);
            self.missed = smallest.count;
        }
        let key: Arc<[u8]> = key.into();
        let place = self.counters.len();
        self.index.insert(Arc::clone(&key), place);
        let (count, error) = (self.missed, self.missed);
        self.counters.push(Counter { key, count, error, since_us: now_us });
        Some(place)
    }

    /// Adds one to the counter at a place: it becomes the first of its equals,
    /// and then the last of those that have one more.
    fn raise(&mut self, place: usize) {
        let Some(count) = self.counters.get(place).map(|counter| counter.count) else { return };
        let Some(more) = count.checked_add(1) else { return };
        let first = self.firsts.get(&count).copied().unwrap_or(place);
        self.exchange(place, first);
        if let Some(counter) = self.counters.get_mut(first) {
            counter.count = more;
        }
        let second = first.saturating_add(1);
        if self.counters.get(second).is_some_and(|counter| counter.count == count) {
            self.firsts.insert(count, second);
        } else {
            self.firsts.remove(&count);
        }
        self.firsts.entry(more).or_insert(first);
    }

    fn exchange(&mut self, one: usize, other: usize) {
        let Ok([a, b]) = self.counters.get_disjoint_mut([one, other]) else { return };
        std::mem::swap(a, b);
        for (counter, at) in [(a, one), (b, other)] {
            if let Some(place) = self.index.get_mut(&counter.key) {
                *place = at;
            }
        }
    }

    /// Does the halvings that are due. With nothing here, or if the clock
    /// stepped back, none is, and the next is a half-life away.
    fn decay(&mut self, now_us: u64) {
        if self.counters.is_empty() || now_us < self.halved_us {
            self.halved_us = now_us;
        }
        let halvings = now_us.saturating_sub(self.halved_us) / HALF_LIFE_US;
        if halvings == 0 {
            return;
        }
        self.halved_us = self.halved_us.saturating_add(halvings.saturating_mul(HALF_LIFE_US));
        let halvings = u32::try_from(halvings).unwrap_or(u32::MAX);
        self.missed = halved(self.missed, halvings);
        for counter in &mut self.counters {
            counter.count = halved(counter.count, halvings);
            counter.error = halved_up(counter.error, halvings).min(counter.count);
        }
        self.keep(self.counters.partition_point(|counter| counter.count > 0));
        self.firsts.clear();
        for (place, counter) in self.counters.iter().enumerate() {
            self.firsts.entry(counter.count).or_insert(place);
        }
    }

    /// Drops all but so many of the largest.
    fn keep(&mut self, counters: usize) {
        while self.counters.len() > counters
            && let Some(smallest) = self.counters.pop()
        {
            self.index.remove(&smallest.key);
            self.missed = self.missed.max(smallest.count);
            if self.firsts.get(&smallest.count) == Some(&self.counters.len()) {
                self.firsts.remove(&smallest.count);
            }
        }
    }
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
