//! Finds the rules that a request's arguments stand for: names of policies, and texts of rules.

use super::direct_mapped::DirectMapped;
use super::error::RuleArgError;
use ratelimit_core::rule::{Rule, RuleError, looks_like_rule};
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

    /// Whether the request has asked for a key's plan.
    fn asked_for_plan(&self) -> bool {
        false
    }

    /// The rules of earlier requests, if they are cached.
    fn cache(&mut self) -> Option<&mut RuleCache> {
        None
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

/// Reads a rule and adds it, through a cache if there is one; `false` if the text does not look like a
/// rule.
///
/// # Errors
/// Why the text is no rule.
#[inline(always)]
pub(crate) fn add_rule(
    text: &[u8],
    cache: Option<&mut RuleCache>,
    rules: &mut Vec<Rule>,
) -> Result<bool, RuleError> {
    let read = || match looks_like_rule(text) {
        true => Rule::from_text(text).map_err(Some),
        false => Err(None),
    };
    let read = match cache.filter(|_| text.len() <= Text::MAX) {
        // `push` would copy the rule twice.
        Some(RuleCache { rules: cache }) => cache
            .get_or_try_insert(
                numbers(text),
                |cached| cached.is(text),
                || Ok((Text::new(text), read()?)),
            )
            .map(|rule| rules.extend_from_slice(slice::from_ref(rule))),
        None => read().map(|rule| rules.push(rule)),
    };
    match read {
        Ok(()) => Ok(true),
        Err(None) => Ok(false),
        Err(Some(error)) => Err(error),
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
                    add_rule(text.as_bytes(), Some(&mut cache), &mut cached),
                    add_rule(text.as_bytes(), None, &mut read)
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
