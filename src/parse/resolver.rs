//! What need not be read: policies, and rules that were read before.

use super::direct_mapped::{DirectMapped, slot_of};
use super::error::RuleArgError;
use crate::rule::{Rule, RuleTextError, looks_like_rule};
use std::slice;

/// What the words of a request may stand for.
pub trait RuleResolver {
    /// The rules of a policy.
    ///
    /// # Errors
    /// Why there are none.
    fn policy(&mut self, name: &[u8]) -> Result<&[Rule], RuleArgError>;

    /// Adds the rule that a text writes; `false` if the text is not meant as one.
    ///
    /// # Errors
    /// Why the text is no rule.
    fn rule(&mut self, text: &[u8], rules: &mut Vec<Rule>) -> Result<bool, RuleTextError> {
        let is_rule = looks_like_rule(text);
        if is_rule {
            rules.push(Rule::from_text(text)?);
        }
        Ok(is_rule)
    }
}

/// No policy is known, and each rule is read.
#[derive(Clone, Copy, Debug)]
pub struct NoPolicies;

impl RuleResolver for NoPolicies {
    fn policy(&mut self, _: &[u8]) -> Result<&[Rule], RuleArgError> {
        Err(RuleArgError::UnknownPolicy)
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
    ///
    /// # Errors
    /// Why the text is no rule.
    #[inline(always)]
    pub fn rule(&mut self, text: &[u8], rules: &mut Vec<Rule>) -> Result<bool, RuleTextError> {
        let slot = slot(text);
        match self.entries.get(slot) {
            Some(entry) if entry.text() == Some(text) => {
                // Not pushed: that would copy it twice.
                rules.extend_from_slice(slice::from_ref(&entry.rule));
                Ok(true)
            }
            _ if looks_like_rule(text) => {
                rules.push(self.read(text, slot)?);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Reads a rule, and keeps it in its slot.
    #[cold]
    fn read(&mut self, text: &[u8], slot: usize) -> Result<Rule, RuleTextError> {
        let rule = Rule::from_text(text)?;
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
        fn policy(&mut self, _: &[u8]) -> Result<&[Rule], RuleArgError> {
            Err(RuleArgError::UnknownPolicy)
        }

        fn rule(&mut self, text: &[u8], rules: &mut Vec<Rule>) -> Result<bool, RuleTextError> {
            self.rule(text, rules)
        }
    }

    fn read(known: &mut impl RuleResolver, text: &str) -> (Result<bool, RuleTextError>, Vec<Rule>) {
        let mut rules = Vec::new();
        (known.rule(text.as_bytes(), &mut rules), rules)
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
        read(&mut memo, "20/m").0.unwrap();
        let entry = memo.entries.iter_mut().next().unwrap();
        entry.rule = Rule::from_text(b"30/m").unwrap();
        let again = read(&mut memo, "20/m").1;
        assert_eq!(again, vec![Rule::from_text(b"30/m").unwrap()], "it was read again");
    }
}
