//! A map of bounded size, which forgets keys that have not been used for long.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// Two generations: once the young one holds half of the bound, it replaces the old one.
#[derive(Debug)]
pub struct Bounded<K, V> {
    half: usize,
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Eq + Hash, V> Bounded<K, V> {
    /// Holds at most `most` entries, rounded up to an even number of two or more.
    pub fn new(most: usize) -> Self {
        Self { half: most.div_ceil(2).max(1), young: HashMap::new(), old: HashMap::new() }
    }

    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    pub fn take<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.young.remove(key).or_else(|| self.old.remove(key))
    }

    /// Inserts a key that has been taken.
    pub fn put(&mut self, key: K, value: V) {
        if self.young.len() >= self.half {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&key);
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recently_used_keys_stay() {
        let mut map = Bounded::new(10);
        for key in 0..100 {
            map.put(key, key);
            let first = map.take(&0).expect("it is asked for each time");
            map.put(0, first);
            assert!(map.young.len() + map.old.len() <= 10, "{key}");
        }
        assert!((97..100).all(|key| map.get(&key) == Some(&key)));
        assert_eq!(map.get(&80), None);
    }
}
