//! What a request's arguments stand for: the rules of policies, and rule texts.

use super::error::RuleArgError;
use crate::direct_mapped::{DirectMapped, SlotKey};
use crate::rule::{Rule, RuleError, looks_like_rule};
use std::slice;

/// Turns the arguments of a request into rules.
pub trait RuleResolver {
    /// The rules of a policy.
    ///
    /// # Errors
    /// Why the policy cannot be used.
    fn policy(&mut self, name: &[u8]) -> Result<&[Rule], RuleArgError>;

    /// Whether the request has named a policy.
    fn named_a_policy(&self) -> bool {
        false
    }

    /// Reads a rule and adds it; `false` if the text is not meant as a rule.
    ///
    /// # Errors
    /// Why the text is no rule.
    fn rule(&mut self, text: &[u8], rules: &mut Vec<Rule>) -> Result<bool, RuleError> {
        let is_rule = looks_like_rule(text);
        if is_rule {
            rules.push(Rule::from_text(text)?);
        }
        Ok(is_rule)
    }
}

/// A resolver without policies and without a cache.
#[derive(Clone, Copy, Debug)]
pub struct NoPolicies;

impl RuleResolver for NoPolicies {
    fn policy(&mut self, _: &[u8]) -> Result<&[Rule], RuleArgError> {
        Err(RuleArgError::UnknownPolicy)
    }
}

/// A cache of rules by their text. A text has one reading, so an entry is never
/// out of date.
#[derive(Debug, Default)]
pub struct RuleCache {
    rules: DirectMapped<Text, Rule>,
}

impl RuleCache {
    /// Does what [`RuleResolver::rule`] does, through the cache.
    ///
    /// # Errors
    /// Why the text is no rule.
    #[inline(always)]
    pub fn rule(&mut self, text: &[u8], rules: &mut Vec<Rule>) -> Result<bool, RuleError> {
        let Some(key) = ShortText::new(text) else { return NoPolicies.rule(text, rules) };
        let read = || match looks_like_rule(text) {
            true => Rule::from_text(text).map_err(Some),
            false => Err(None),
        };
        match self.rules.get_or_try_insert(key, read) {
            Ok(rule) => {
                // `push` would copy it twice.
                rules.extend_from_slice(slice::from_ref(rule));
                Ok(true)
            }
            Err(None) => Ok(false),
            Err(Some(error)) => Err(error),
        }
    }
}

/// A text that is short enough to be cached.
#[derive(Clone, Copy, Debug)]
struct ShortText<'a>(&'a [u8]);

impl<'a> ShortText<'a> {
    const MAX: usize = 39;

    fn new(text: &'a [u8]) -> Option<Self> {
        (text.len() <= Self::MAX).then_some(Self(text))
    }
}

impl SlotKey for ShortText<'_> {
    /// The first and the last eight bytes.
    #[inline(always)]
    fn numbers(self) -> impl IntoIterator<Item = u64> {
        match (self.0.first_chunk(), self.0.last_chunk()) {
            (Some(&first), Some(&last)) => [first, last].map(u64::from_le_bytes),
            _ => [self.0.iter().fold(0, |bytes, &byte| bytes << 8 | u64::from(byte)), 0],
        }
    }
}

/// A cached text, stored inline.
#[derive(Clone, Copy, Debug)]
struct Text {
    len: u8,
    bytes: [u8; ShortText::MAX],
}

impl From<ShortText<'_>> for Text {
    fn from(ShortText(text): ShortText<'_>) -> Self {
        let mut bytes = [0; ShortText::MAX];
        bytes.iter_mut().zip(text).for_each(|(byte, given)| *byte = *given);
        Self { len: u8::try_from(text.len()).unwrap_or(0), bytes }
    }
}

impl PartialEq<ShortText<'_>> for Text {
    #[inline(always)]
    fn eq(&self, ShortText(text): &ShortText<'_>) -> bool {
        self.bytes.get(..self.len.into()) == Some(*text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Few enough texts that they repeat, and more than the cache has slots.
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
                    cache.rule(text.as_bytes(), &mut cached),
                    NoPolicies.rule(text.as_bytes(), &mut read)
                );
                prop_assert_eq!(cached, read);
            }
        }
    }

    #[test]
    fn texts_differ_by_their_bytes_and_their_length() {
        let stored = Text::from(ShortText(b"20/m"));
        assert_eq!(stored, ShortText(b"20/m"));
        for other in ["20/s", "20/m,", "20/", ""] {
            assert_ne!(stored, ShortText(other.as_bytes()));
        }
        let longest = [b'x'; ShortText::MAX];
        assert_eq!(Text::from(ShortText(&longest)), ShortText::new(&longest).unwrap());
        assert!(ShortText::new(&[b'x'; ShortText::MAX + 1]).is_none());
    }
}
