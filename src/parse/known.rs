//! What need not be read: policies, and rules that were read before.

use super::error::{Fault, ParseError};
use super::lately::{Lately, place_of};
use super::rule::{looks_like_rule, rule};
use crate::limit::Rule;
use std::slice;

/// What the words of a request may stand for.
pub trait Known {
    /// The rules of a policy.
    ///
    /// # Errors
    /// Why there are none.
    fn policy(&mut self, name: &[u8]) -> Result<&[Rule], Fault>;

    /// Adds the rule that a text writes, or says what is wrong with it; `None`
    /// if it is not meant as a rule.
    fn rule(&mut self, text: &[u8], rules: &mut Vec<Rule>) -> Option<Result<(), ParseError>> {
        looks_like_rule(text).then(|| rule(text).map(|rule| rules.push(rule)))
    }
}

/// No policy is known, and each rule is read.
#[derive(Clone, Copy, Debug)]
pub struct Nothing;

impl Known for Nothing {
    fn policy(&mut self, _: &[u8]) -> Result<&[Rule], Fault> {
        Err(Fault::UnknownPolicy)
    }
}

/// Rules read lately, by their text: applications send the same few again and
/// again. A text has one reading, so what was read once need not be read again.
#[derive(Debug, Default)]
pub struct Memo {
    entries: Lately<Entry>,
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
    /// As [`Known::rule`].
    #[inline(always)]
    pub fn rule(&mut self, text: &[u8], rules: &mut Vec<Rule>) -> Option<Result<(), ParseError>> {
        let place = place(text);
        match self.entries.get(place) {
            Some(entry) if entry.text() == Some(text) => {
                // Not pushed: that would copy it twice.
                rules.extend_from_slice(slice::from_ref(&entry.rule));
                Some(Ok(()))
            }
            _ => looks_like_rule(text).then(|| self.read(text, place).map(|rule| rules.push(rule))),
        }
    }

    /// Reads a rule, and keeps it in its place.
    #[cold]
    fn read(&mut self, text: &[u8], place: usize) -> Result<Rule, ParseError> {
        let rule = rule(text)?;
        if let Some(entry) = Entry::new(text, rule) {
            self.entries.put(place, entry);
        }
        Ok(rule)
    }
}

/// The first and the last eight bytes tell most rules apart.
fn place(text: &[u8]) -> usize {
    match (text.first_chunk(), text.last_chunk()) {
        (Some(&first), Some(&last)) => place_of([first, last].map(u64::from_le_bytes)),
        _ => place_of(text.iter().copied().map(u64::from)),
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

    /// Few enough texts that they meet again, and more than there are places.
    fn texts() -> impl Strategy<Value = Vec<String>> {
        let text = prop_oneof![
            (0..9u32, "[smhd]").prop_map(|(limit, unit)| format!("{limit}/{unit}")),
            (0..9u32, "[a-c]{25,40}").prop_map(|(limit, name)| format!("{limit}/s,name={name}")),
            "[0-9a-z/:,=]{0,12}",
        ];
        prop::collection::vec(text, 1..200)
    }

    impl Known for Memo {
        fn policy(&mut self, _: &[u8]) -> Result<&[Rule], Fault> {
            Err(Fault::UnknownPolicy)
        }

        fn rule(&mut self, text: &[u8], rules: &mut Vec<Rule>) -> Option<Result<(), ParseError>> {
            self.rule(text, rules)
        }
    }

    fn read(known: &mut impl Known, text: &str) -> Option<Result<Vec<Rule>, ParseError>> {
        let mut rules = Vec::new();
        known.rule(text.as_bytes(), &mut rules).map(|read| read.map(|()| rules))
    }

    proptest! {
        #[test]
        fn what_was_read_before_is_what_would_be_read(texts in texts()) {
            let mut memo = Memo::default();
            for text in texts {
                prop_assert_eq!(read(&mut memo, &text), read(&mut Nothing, &text));
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
