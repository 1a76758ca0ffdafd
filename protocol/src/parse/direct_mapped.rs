//! A direct-mapped cache, because applications use the same few rules again and again.

/// How many entries a cache holds.
pub const SLOTS: usize = 32;

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
    /// Returns the cached value of the key that `is_key` recognizes. Without one, caches the key and
    /// the value that `make` returns. `numbers` choose the slot; they differ between most keys.
    ///
    /// # Errors
    /// The error of `make`; the entries then stay as they are.
    #[inline(always)]
    pub fn get_or_try_insert<E>(
        &mut self,
        numbers: impl IntoIterator<Item = u64>,
        is_key: impl FnOnce(&K) -> bool,
        make: impl FnOnce() -> Result<(K, V), E>,
    ) -> Result<&V, E> {
        let slots = self.slots.get_or_insert_with(empty);
        #[expect(clippy::indexing_slicing, reason = "`slot_of` is less than SLOTS")]
        let slot = &mut slots[slot_of(numbers)];
        let is_cached = slot.as_ref().is_some_and(|(cached, _)| is_key(cached));
        if is_cached && let Some((_, ref value)) = *slot {
            return Ok(value);
        }
        insert(slot, make)
    }

    /// How many entries there are.
    pub fn entries(&self) -> usize {
        self.slots.iter().flat_map(|slots| slots.iter()).flatten().count()
    }
}

#[cold]
#[expect(clippy::unnecessary_box_returns, reason = "too large for the stack")]
fn empty<K, V>() -> Box<Slots<K, V>> {
    Box::new([const { None }; SLOTS])
}

#[cold]
fn insert<K, V, E>(
    slot: &mut Option<(K, V)>,
    make: impl FnOnce() -> Result<(K, V), E>,
) -> Result<&V, E> {
    let (_, value) = slot.insert(make()?);
    Ok(value)
}

#[inline]
fn slot_of(numbers: impl IntoIterator<Item = u64>) -> usize {
    /// 2^64 divided by the golden ratio, as in Fibonacci hashing (Knuth, TAOCP 6.4).
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, number: u64| (hash.rotate_left(5) ^ number).wrapping_mul(ODD);
    let hash = numbers.into_iter().fold(0, mix) >> 32;
    usize::try_from(hash).unwrap_or(0) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn get<V, E>(
        cache: &mut DirectMapped<u64, V>,
        key: u64,
        make: impl FnOnce() -> Result<V, E>,
    ) -> Result<&V, E> {
        cache.get_or_try_insert([key], |cached| *cached == key, || Ok((key, make()?)))
    }

    #[test]
    fn a_cached_value_is_made_once() {
        let mut cache = DirectMapped::<u64, _>::default();
        let made = Cell::new(0);
        let make = || Ok::<_, ()>(made.replace(made.get() + 1));
        assert_eq!(get(&mut cache, 7, make), Ok(&0));
        assert_eq!(get(&mut cache, 7, make), Ok(&0));
        assert_eq!(made.get(), 1);
    }

    #[test]
    fn a_key_never_gets_the_value_of_another_key() {
        let mut cache = DirectMapped::<u64, _>::default();
        for key in (0..1_000).chain(0..1_000) {
            assert_eq!(get(&mut cache, key, || Ok::<_, ()>(key * 3)), Ok(&(key * 3)));
        }
        assert_eq!(cache.entries(), SLOTS, "some slots stay empty");
    }

    #[test]
    fn an_error_changes_nothing() {
        let mut cache = DirectMapped::<u64, _>::default();
        get(&mut cache, 7, || Ok::<_, ()>('a')).unwrap();
        let same_slot = (8..1_000_000).find(|&key| slot_of([key]) == slot_of([7])).unwrap();
        assert_eq!(get(&mut cache, same_slot, || Err(())), Err(()));
        assert_eq!(get(&mut cache, 7, || Err(())), Ok(&'a'));
    }
}
