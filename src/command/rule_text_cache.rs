//! Rules in words, for the effects of commands whose callers write none.

use crate::parse::direct_mapped::{DirectMapped, slot_of};
use crate::rule::Rule;
use crate::server::{Args, Texts};

/// Rules told direct_mapped, each with its words: applications send the same few again
/// and again. A rule has one spelling, so what was rule_texts out once need not be
/// again.
#[derive(Debug, Default)]
pub struct RuleTextCache {
    entries: DirectMapped<Entry>,
}

#[derive(Debug)]
struct Entry {
    rule: Rule,
    words: Texts,
}

impl RuleTextCache {
    /// The rule as one argument.
    pub fn words(&mut self, rule: &Rule) -> Args<'_> {
        let slot = slot(rule);
        let is_known = self.entries.get(slot).is_some_and(|entry| entry.rule == *rule);
        if !is_known {
            let words = Texts::new([rule.to_string()].iter());
            self.entries.put(slot, Entry { rule: *rule, words });
        }
        self.entries.get(slot).map_or(Args::default(), |entry| entry.words.args())
    }
}

/// The numbers of a rule tell most rules apart.
fn slot(rule: &Rule) -> usize {
    slot_of([rule.limit().into(), rule.period_us(), rule.capacity()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::direct_mapped::SLOTS;

    #[test]
    fn a_place_has_the_rule_that_came_last() {
        let mut rule_texts = RuleTextCache::default();
        for n in 1..200 {
            let rule =
                Rule::from_text(format!("bucket:{}/{}s,burst={n}", n % 3, n % 5 + 1).as_bytes())
                    .unwrap();
            for _ in 0..2 {
                rule_texts.words(&rule);
                let kept = rule_texts.entries.get(slot(&rule)).map(|entry| entry.rule);
                assert_eq!(kept, Some(rule));
            }
        }
        let kept = rule_texts.entries.iter_mut().count();
        assert_eq!(kept, SLOTS, "some slots are of no use");
    }
}
