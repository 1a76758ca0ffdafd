//! A direct-mapped cache, because applications use the same few rules again and again.

/// How many entries a cache holds.
pub const SLOTS: usize = 32;

/// The key of an entry. A cache may store it in another form.
pub trait SlotKey: Copy {
    /// Numbers that differ between most keys; they choose the slot.
    fn numbers(self) -> impl IntoIterator<Item = u64>;
}

type Slots<K, V> = [Option<(K, V)>; SLOTS];

/// A cache in which each key has one slot: a new entry evicts its slot's old one.
#[derive(Debug)]
pub struct DirectMapped<K, V> {
    /// Allocated for the first entry.
    slots: Option<Box<Slots<K, V>>>,
}

impl<K, V> Default for DirectMapped<K, V> {
    fn default() -> Self {
        Self { slots: None }
    }
}

impl<K, V> DirectMapped<K, V> {
    /// The value of a key: the cached one, or the one that `make` returns, which
    /// is cached.
    ///
    /// # Errors
    /// The error of `make`, which changes nothing.
    #[inline(always)]
    pub fn get_or_try_insert<Q, E>(
        &mut self,
        key: Q,
        make: impl FnOnce() -> Result<V, E>,
    ) -> Result<&V, E>
    where
        Q: SlotKey,
        K: PartialEq<Q> + From<Q>,
    {
        let slots = self.slots.get_or_insert_with(empty);
        #[expect(clippy::indexing_slicing, reason = "`slot_of` is less than SLOTS")]
        let slot = &mut slots[slot_of(key)];
        let is_cached = slot.as_ref().is_some_and(|(cached, _)| *cached == key);
        if is_cached && let Some((_, ref value)) = *slot {
            return Ok(value);
        }
        insert(slot, key, make)
    }

    /// How many entries there are.
    pub fn entries(&self) -> usize {
        self.slots.iter().flat_map(|slots| slots.iter()).flatten().count()
    }
}

#[cold]
fn empty<K, V>() -> Box<Slots<K, V>> {
    Box::new([const { None }; SLOTS])
}

#[cold]
fn insert<K: From<Q>, Q, V, E>(
    slot: &mut Option<(K, V)>,
    key: Q,
    make: impl FnOnce() -> Result<V, E>,
) -> Result<&V, E> {
    let (_, value) = slot.insert((key.into(), make()?));
    Ok(value)
}

#[inline]
fn slot_of(key: impl SlotKey) -> usize {
    /// 2^64 by the golden ratio, as in Fibonacci hashing (Knuth, TAOCP 6.4).
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, number: u64| (hash.rotate_left(5) ^ number).wrapping_mul(ODD);
    let hash = key.numbers().into_iter().fold(0, mix) >> 32;
    usize::try_from(hash).unwrap_or(0) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    impl SlotKey for u64 {
        fn numbers(self) -> impl IntoIterator<Item = u64> {
            [self]
        }
    }

    #[test]
    fn a_cached_value_is_made_once() {
        let mut cache = DirectMapped::<u64, _>::default();
        let made = Cell::new(0);
        let make = || Ok::<_, ()>(made.replace(made.get() + 1));
        assert_eq!(cache.get_or_try_insert(7, make), Ok(&0));
        assert_eq!(cache.get_or_try_insert(7, make), Ok(&0));
        assert_eq!(made.get(), 1);
    }

    #[test]
    fn a_key_never_gets_the_value_of_another_key() {
        let mut cache = DirectMapped::<u64, _>::default();
        for key in (0..1_000).chain(0..1_000) {
            assert_eq!(cache.get_or_try_insert(key, || Ok::<_, ()>(key * 3)), Ok(&(key * 3)));
        }
        assert_eq!(cache.entries(), SLOTS, "some slots stay empty");
    }

    #[test]
    fn an_error_changes_nothing() {
        let mut cache = DirectMapped::<u64, _>::default();
        cache.get_or_try_insert(7, || Ok::<_, ()>('a')).unwrap();
        let same_slot = (8..).find(|&key| slot_of(key) == slot_of(7_u64)).unwrap();
        assert_eq!(cache.get_or_try_insert(same_slot, || Err(())), Err(()));
        assert_eq!(cache.get_or_try_insert(7, || Err(())), Ok(&'a'));
    }
}
