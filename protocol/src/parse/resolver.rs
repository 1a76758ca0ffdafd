//! Finds the rules that a request's arguments stand for: names of policies, and texts of rules.

use super::error::RuleArgError;
use ratelimit_engine::rule::{Rule, RuleError, looks_like_rule};
use std::slice;

/// Finds the rules of a request.
pub trait RuleResolver {
    /// The rules of a policy.
    ///
    /// # Errors
    /// Why the policy cannot be used.
    fn policy(&mut self, name: &[u8]) -> Result<&[Rule], RuleArgError>;

    /// The rules of the policy that the plan of a key names, or of this one if the key has no plan.
    ///
    /// # Errors
    /// Why the policy cannot be used.
    fn plan(&mut self, _key: PlanOf, default: &[u8]) -> Result<&[Rule], RuleArgError> {
        self.policy(default)
    }

    /// Whether the request has named a policy.
    fn named_a_policy(&self) -> bool {
        false
    }

    /// Reads a rule and adds it; `false` if the text does not look like a rule.
    ///
    /// # Errors
    /// Why the text is no rule.
    #[inline(always)]
    fn rule(&mut self, text: &[u8], rules: &mut Vec<Rule>) -> Result<bool, RuleError> {
        read(text, rules)
    }
}

/// Which plan a rule asks for.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlanOf {
    /// The index of its key in the request.
    pub key: usize,
    /// The time of the request; `None`: the server's time.
    pub at_us: Option<u64>,
}

/// A resolver without policies and without a cache.
#[derive(Clone, Copy, Debug)]
pub struct NoPolicies;

impl RuleResolver for NoPolicies {
    fn policy(&mut self, _: &[u8]) -> Result<&[Rule], RuleArgError> {
        Err(RuleArgError::UnknownPolicy)
    }
}

/// A cache of rules by their text. A text always gives the same rule, so an entry
/// is never out of date.
#[derive(Debug, Default)]
pub struct RuleCache {
    rules: DirectMapped<Text, Rule>,
}

impl RuleCache {
    /// Does what [`RuleResolver::rule`] does, through this cache.
    ///
    /// # Errors
    /// Why the text is no rule.
    #[inline(always)]
    pub fn add(&mut self, text: &[u8], rules: &mut Vec<Rule>) -> Result<bool, RuleError> {
        if text.len() > Text::MAX {
            return read(text, rules);
        }
        let make = || match looks_like_rule(text) {
            true => Ok((Text::new(text), Rule::from_text(text).map_err(Some)?)),
            false => Err(None),
        };
        match self.rules.get_or_try_insert(numbers(text), |cached| cached.is(text), make) {
            // `push` would copy the rule twice.
            Ok(rule) => rules.extend_from_slice(slice::from_ref(rule)),
            Err(None) => return Ok(false),
            Err(Some(error)) => return Err(error),
        }
        Ok(true)
    }
}

/// Reads a rule and adds it; `false` if the text does not look like a rule.
fn read(text: &[u8], rules: &mut Vec<Rule>) -> Result<bool, RuleError> {
    let is_rule = looks_like_rule(text);
    if is_rule {
        rules.push(Rule::from_text(text)?);
    }
    Ok(is_rule)
}

/// The first and the last eight bytes of a text.
#[inline(always)]
fn numbers(text: &[u8]) -> [u64; 2] {
    match (text.first_chunk(), text.last_chunk()) {
        (Some(&first), Some(&last)) => [first, last].map(u64::from_le_bytes),
        _ => [text.iter().fold(0, |bytes, &byte| bytes << 8 | u64::from(byte)), 0],
    }
}

/// A cached text, stored inline.
#[derive(Clone, Copy, Debug)]
struct Text {
    len: u8,
    bytes: [u8; Self::MAX],
}

impl Text {
    /// The longest text that is cached.
    const MAX: usize = 39;

    /// The first [`MAX`](Self::MAX) bytes of a text.
    fn new(text: &[u8]) -> Self {
        let mut bytes = [0; Self::MAX];
        bytes.iter_mut().zip(text).for_each(|(byte, given)| *byte = *given);
        Self { len: u8::try_from(text.len()).unwrap_or(0), bytes }
    }

    #[inline(always)]
    fn is(&self, text: &[u8]) -> bool {
        self.bytes.get(..self.len.into()) == Some(text)
    }
}

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
    #[cfg(test)]
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
    use proptest::prelude::*;

    /// Few texts, so that they repeat, but more than the cache has slots.
    fn texts() -> impl Strategy<Value = Vec<String>> {
        let text = prop_oneof![
            (0..9u32, "[smhd]").prop_map(|(limit, unit)| format!("{limit}/{unit}")),
            (0..9u32, "[a-c]{25,40}").prop_map(|(limit, name)| format!("{limit}/s,name={name}")),
            "[0-9a-z/:,=]{0,12}",
        ];
        prop::collection::vec(text, 1..200)
    }

    proptest! {
        #[test]
        fn cached_rules_equal_those_read_without_a_cache(texts in texts()) {
            let mut cache = RuleCache::default();
            for text in texts {
                let (mut cached, mut read) = (Vec::new(), Vec::new());
                prop_assert_eq!(
                    cache.add(text.as_bytes(), &mut cached),
                    super::read(text.as_bytes(), &mut read)
                );
                prop_assert_eq!(cached, read);
            }
        }
    }

    #[test]
    fn texts_differ_by_their_bytes_and_their_length() {
        let stored = Text::new(b"20/m");
        assert!(stored.is(b"20/m"));
        for other in ["20/s", "20/m,", "20/", ""] {
            assert!(!stored.is(other.as_bytes()));
        }
        let longest = [b'x'; Text::MAX];
        assert!(Text::new(&longest).is(&longest));
    }
}

#[cfg(test)]
mod direct_mapped_tests {
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
