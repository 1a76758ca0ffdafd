//! What need not be read: policies, and rules that were read before.

use super::direct_mapped::{DirectMapped, slot_of};
use super::error::{ParseError, RuleTextError};
use super::rule::{looks_like_rule, rule};
use crate::rule::Rule;
use std::slice;

/// What the words of a request may stand for.
pub trait RuleResolver {
    /// The rules of a policy.
    ///
    /// # Errors
    /// Why there are none.
    fn policy(&mut self, name: &[u8]) -> Result<&[Rule], RuleTextError>;

    /// Adds the rule that a text writes, or says what is wrong with it; `None`
    /// if it is not meant as a rule.
    fn rule(&mut self, text: &[u8], rules: &mut Vec<Rule>) -> Option<Result<(), ParseError>> {
        looks_like_rule(text).then(|| rule(text).map(|rule| rules.push(rule)))
    }
}

/// No policy is known, and each rule is read.
#[derive(Clone, Copy, Debug)]
pub struct NoPolicies;

impl RuleResolver for NoPolicies {
    fn policy(&mut self, _: &[u8]) -> Result<&[Rule], RuleTextError> {
        Err(RuleTextError::UnknownPolicy)
    }
}

/// Rules read direct_mapped, by their text: applications send the same few again and
/// again. A text has one reading, so what was read once need not be read again.
#[derive(Debug, Default)]
pub struct Memo {
    entries: DirectMapped<Entry>,
}

/// Longer texts are read each time.
const MAX_TEXT: usize = 39;

#[derive(Clone, Copy, Debug)]
struct Entry {
    len: u8,
    text: [u8; MAX_TEXT],
    rule: Rule,
}

impl Memo {
    /// As [`RuleResolver::rule`].
    #[inline(always)]
    pub fn rule(&mut self, text: &[u8], rules: &mut Vec<Rule>) -> Option<Result<(), ParseError>> {
        let slot = slot(text);
        match self.entries.get(slot) {
            Some(entry) if entry.text() == Some(text) => {
                // Not pushed: that would copy it twice.
                rules.extend_from_slice(slice::from_ref(&entry.rule));
                Some(Ok(()))
            }
            _ => looks_like_rule(text).then(|| self.read(text, slot).map(|rule| rules.push(rule))),
        }
    }

    /// Reads a rule, and keeps it in its slot.
    #[cold]
    fn read(&mut self, text: &[u8], slot: usize) -> Result<Rule, ParseError> {
        let rule = rule(text)?;
        if let Some(entry) = Entry::new(text, rule) {
            self.entries.put(slot, entry);
        }
        Ok(rule)
    }
}

/// The first and the last eight bytes tell most rules apart.
fn slot(text: &[u8]) -> usize {
    match (text.first_chunk(), text.last_chunk()) {
        (Some(&first), Some(&last)) => slot_of([first, last].map(u64::from_le_bytes)),
        _ => slot_of(text.iter().copied().map(u64::from)),
    }
}

impl Entry {
    fn new(text: &[u8], rule: Rule) -> Option<Self> {
        let mut kept = [0; MAX_TEXT];
        kept.get_mut(..text.len())?.copy_from_slice(text);
        Some(Self { len: u8::try_from(text.len()).ok()?, text: kept, rule })
    }

    fn text(&self) -> Option<&[u8]> {
        self.text.get(..self.len.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Few enough texts that they meet again, and more than there are slots.
    fn texts() -> impl Strategy<Value = Vec<String>> {
        let text = prop_oneof![
            (0..9u32, "[smhd]").prop_map(|(limit, unit)| format!("{limit}/{unit}")),
            (0..9u32, "[a-c]{25,40}").prop_map(|(limit, name)| format!("{limit}/s,name={name}")),
            "[0-9a-z/:,=]{0,12}",
        ];
        prop::collection::vec(text, 1..200)
    }

    impl RuleResolver for Memo {
        fn policy(&mut self, _: &[u8]) -> Result<&[Rule], RuleTextError> {
            Err(RuleTextError::UnknownPolicy)
        }

        fn rule(&mut self, text: &[u8], rules: &mut Vec<Rule>) -> Option<Result<(), ParseError>> {
            self.rule(text, rules)
        }
    }

    fn read(known: &mut impl RuleResolver, text: &str) -> Option<Result<Vec<Rule>, ParseError>> {
        let mut rules = Vec::new();
        known.rule(text.as_bytes(), &mut rules).map(|read| read.map(|()| rules))
    }

    proptest! {
        #[test]
        fn what_was_read_before_is_what_would_be_read(texts in texts()) {
            let mut memo = Memo::default();
            for text in texts {
                prop_assert_eq!(read(&mut memo, &text), read(&mut NoPolicies, &text));
            }
        }
    }

    #[test]
    fn a_rule_is_read_once() {
        let mut memo = Memo::default();
        read(&mut memo, "20/m").unwrap().unwrap();
        let entry = memo.entries.iter_mut().next().unwrap();
        entry.rule = rule(b"30/m").unwrap();
        let again = read(&mut memo, "20/m").unwrap();
        assert_eq!(again, Ok(vec![rule(b"30/m").unwrap()]), "it was read again");
    }
}
