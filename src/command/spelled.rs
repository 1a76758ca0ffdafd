//! Rules in words, for the effects of commands whose callers write none.

use crate::limit::Rule;
use crate::parse::lately::{Lately, place_of};
use crate::server::{Args, Texts};

/// Rules told lately, each with its words: applications send the same few again
/// and again. A rule has one spelling, so what was spelled out once need not be
/// again.
#[derive(Debug, Default)]
pub struct Spelled {
    entries: Lately<Entry>,
}

#[derive(Debug)]
struct Entry {
    rule: Rule,
    words: Texts,
}

impl Spelled {
    /// The rule as one argument.
    pub fn words(&mut self, rule: &Rule) -> Args<'_> {
        let place = place(rule);
        let is_known = self.entries.get(place).is_some_and(|entry| entry.rule == *rule);
        if !is_known {
            let words = Texts::new([rule.to_string()].iter());
            self.entries.put(place, Entry { rule: *rule, words });
        }
        self.entries.get(place).map_or(Args::default(), |entry| entry.words.args())
    }
}

/// The numbers of a rule tell most rules apart.
fn place(rule: &Rule) -> usize {
    place_of([rule.limit().into(), rule.period_us(), rule.capacity()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::lately::PLACES;
    use crate::parse::rule;

    #[test]
    fn a_place_has_the_rule_that_came_last() {
        let mut spelled = Spelled::default();
        for n in 1..200 {
            let rule =
                rule(format!("bucket:{}/{}s,burst={n}", n % 3, n % 5 + 1).as_bytes()).unwrap();
            for _ in 0..2 {
                spelled.words(&rule);
                let kept = spelled.entries.get(place(&rule)).map(|entry| entry.rule);
                assert_eq!(kept, Some(rule));
            }
        }
        let kept = spelled.entries.iter_mut().count();
        assert_eq!(kept, PLACES, "some places are of no use");
    }
}
