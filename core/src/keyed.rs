//! The limiters of many clients in one process, by key.

use crate::answer::Answer;
use crate::limiter::Limiter;
use crate::micros;
use crate::rules::Rules;
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use core::borrow::Borrow;
use core::hash::{BuildHasher, Hash};
use core::mem::forget;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use core::time::Duration;
use foldhash::quality::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};
use thiserror::Error;

/// The limiters of some keys.
type Shard<K> = HashTable<(K, Limiter)>;

/// Keys are spread over this number of locks.
const SHARDS: usize = 64;
/// Up to this number of limiters, idle ones are not dropped.
const FEW: usize = 1_024;
/// The least time between two searches for idle limiters.
const PAUSE_US: u64 = 1_000_000;

/// The limiters of many clients, by key, for many threads.
///
/// A limiter is made when its key first consumes, and dropped some time after it has become
/// [idle](Limiter::is_idle): whenever the number of limiters has doubled, and at the latest when there
/// is no room for another one.
///
/// There are never more limiters than `most`. If that number is reached and none is idle, a key without a
/// limiter is refused with [`Full`], and the program decides what it means. No limiter is dropped before
/// it is idle, because its key could consume its limit once more. Idle limiters are searched for at most
/// once a second, so keys may be refused for a second longer.
///
/// ```
/// use ratelimit_core::{Cost, Keyed, Rules};
/// use std::time::Duration;
///
/// let (rules, now): (Rules, _) = ("bucket:2/m".parse()?, Duration::from_secs(1_800_000_000));
/// let clients: Keyed<String> = Keyed::new(100_000);
/// assert!(clients.check("ann", &rules, now)?.is_allowed());
/// assert!(clients.with("ann", now, |ann| ann.check_cost(&rules, Cost::ONE, now))?.is_allowed());
/// assert!(!clients.check("ann", &rules, now)?.is_allowed());
/// assert!(clients.check("bob", &rules, now)?.is_allowed());
/// assert_eq!(clients.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Keyed<K> {
    shards: Box<[Mutex<Shard<K>>]>,
    hasher: RandomState,
    most: usize,
    len: AtomicUsize,
    /// From this number of limiters on, idle ones are searched for.
    many: AtomicUsize,
    /// The earliest time of the next search.
    search_us: AtomicU64,
}

impl<K: Hash + Eq> Keyed<K> {
    /// Room for `most` limiters. It takes no memory before keys consume, except for the locks.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
            most,
            len: AtomicUsize::new(0),
            many: AtomicUsize::new(FEW.min(most)),
            search_us: AtomicU64::new(0),
        }
    }

    /// Decides a request of one unit of this key, as [`Limiter::check`] does.
    ///
    /// # Errors
    /// [`Full`] if there is no room for the limiter of a new key.
    pub fn check<Q, const HELD: bool>(
        &self,
        key: &Q,
        rules: &Rules<HELD>,
        now: Duration,
    ) -> Result<Answer, Full>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.with(key, now, |limiter| limiter.check(rules, now))
    }

    /// Calls a function with the limiter of a key, which is new if the key has none. Meanwhile other
    /// threads wait for this key and some others, so the function must not use this `Keyed`.
    ///
    /// # Errors
    /// [`Full`] if there is no room for the limiter of a new key. The function was not called then.
    pub fn with<Q, T>(
        &self,
        key: &Q,
        now: Duration,
        call: impl FnOnce(&mut Limiter) -> T,
    ) -> Result<T, Full>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        let is_key = |(other, _): &(K, Limiter)| other.borrow() == key;
        // A table looks at the lowest and the highest bits.
        let shard =
            self.shards.get((hash >> 48) as usize % SHARDS).ok_or(Full { most: self.most })?;
        if let Some((_, limiter)) = lock(shard).find_mut(hash, is_key) {
            return Ok(call(limiter));
        }
        let place = self.place(now)?;
        match lock(shard).entry(hash, is_key, |(key, _)| self.hasher.hash_one(key)) {
            Entry::Occupied(mut added_meanwhile) => Ok(call(&mut added_meanwhile.get_mut().1)),
            Entry::Vacant(entry) => {
                let mut limiter = Limiter::new();
                let result = call(&mut limiter);
                if !limiter.is_idle(now) {
                    entry.insert((key.to_owned(), limiter));
                    forget(place);
                }
                Ok(result)
            }
        }
    }

    /// How many limiters there are, with idle ones that are not dropped yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// True if there is no limiter.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops the limiters that are idle, and memory that is no longer needed.
    pub fn drop_idle(&self, now: Duration) {
        for shard in &self.shards {
            let (mut shard, hash_of) =
                (lock(shard), |(key, _): &(K, Limiter)| self.hasher.hash_one(key));
            let before = shard.len();
            shard.retain(|(_, limiter)| !limiter.is_idle(now));
            let len = shard.len();
            if len < shard.capacity() / 4 {
                shard.shrink_to(len.saturating_mul(2), hash_of);
            }
            self.len.fetch_sub(before.saturating_sub(len), Relaxed);
        }
        self.many.store(self.len().saturating_mul(2).max(FEW).min(self.most), Relaxed);
    }

    /// Takes a place for another limiter.
    fn place(&self, now: Duration) -> Result<Place<'_>, Full> {
        if self.len() >= self.many.load(Relaxed) && self.may_search(micros(now)) {
            self.drop_idle(now);
        }
        let one_more = |len: usize| len.checked_add(1).filter(|&len| len <= self.most);
        let taken = self.len.fetch_update(Relaxed, Relaxed, one_more);
        taken.map(|_| Place(&self.len)).map_err(|_| Full { most: self.most })
    }

    /// True for one thread a second, and if the clock has stepped back.
    fn may_search(&self, now_us: u64) -> bool {
        let (next_us, after_us) = (self.search_us.load(Relaxed), now_us.saturating_add(PAUSE_US));
        (now_us >= next_us || next_us > after_us)
            && self.search_us.compare_exchange(next_us, after_us, Relaxed, Relaxed).is_ok()
    }
}

fn lock<T>(shard: &Mutex<T>) -> MutexGuard<'_, T> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place that is given back, unless a limiter has taken it.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A [`Keyed`] has no room for the limiter of a new key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{most} limiters already, and none is idle")]
pub struct Full {
    most: usize,
}
