//! What a request's arguments stand for: the rules of policies, and rule texts.

use super::direct_mapped::DirectMapped;
use super::error::RuleArgError;
use ratelimit_core::rule::{Rule, RuleError, looks_like_rule};
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
        if text.len() > Text::MAX {
            return NoPolicies.rule(text, rules);
        }
        let make = || match looks_like_rule(text) {
            true => Rule::from_text(text).map(|rule| (Text::new(text), rule)).map_err(Some),
            false => Err(None),
        };
        match self.rules.get_or_try_insert(numbers(text), |cached| cached.is(text), make) {
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
        let stored = Text::new(b"20/m");
        assert!(stored.is(b"20/m"));
        for other in ["20/s", "20/m,", "20/", ""] {
            assert!(!stored.is(other.as_bytes()));
        }
        let longest = [b'x'; Text::MAX];
        assert!(Text::new(&longest).is(&longest));
    }
}
